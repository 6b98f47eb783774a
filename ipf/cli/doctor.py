"""`ipfctl doctor`: checks the service over HTTP, and everything on its host that keeps it from starting or working.

The local checks run in a child process, `ipf.app.doctor`, which works without a running service.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ipf.cli.api import Api, Refused
from ipf.cli.local import run_module
from ipf.cli.output import Output
from ipf.fhir.model.json import loads

Register = Callable[[Callable[..., Any]], Callable[..., None]]

OK, FAILED, SKIPPED = "ok", "failed", "skipped"


def register(cli: click.Group, command: Register) -> None:
    """Put the command of this module under `cli`."""
    option = click.option(
        "--env-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Environment file of the service, such as /etc/ipf.env; default: the environment of this shell.",
    )
    cli.command("doctor")(option(command(doctor)))


async def doctor(api: Api, output: Output, env_file: Path | None) -> bool:
    """Check settings, databases, ports, identity provider, maps, packages, disk and clock on the service's own host."""
    service = await _service(api)
    arguments = ["--env-file", str(env_file)] if env_file is not None else []
    if service["result"] == OK:
        arguments.append("--service-runs")
    findings = [service, *loads(run_module("ipf.app.doctor", *arguments))]
    if not output.data(findings):
        output.table(("check", "result", ""), [(one["check"], one["result"], one["text"]) for one in findings])
    return all(one["result"] != FAILED for one in findings)


async def _service(api: Api) -> dict[str, str]:
    """The health of the service; skipped when it does not run, since it may be about to be started."""

    def finding(result: str, text: str) -> dict[str, str]:
        return {"check": "service", "result": result, "text": text}

    try:
        code, health = await api.reach("/actuator/health")
    except Refused as refused:
        return finding(SKIPPED, f"{refused}; the service does not seem to run, so its ports must be free")
    if not isinstance(health, dict) or "status" not in health:
        return finding(FAILED, f"{api.base} answers HTTP {code}, but it is not ipf")
    down = [name for name, part in health.get("components", {}).items() if part.get("status") != "UP"]
    text = f"{api.base} is {health['status']}" + (f"; not UP: {', '.join(down)}" if down else "")
    return finding(OK if health["status"] == "UP" else FAILED, text)
