"""`ipfctl doctor`: checks the service over HTTP, and everything on its host that keeps it from starting or working.

The local checks run in a child process, `ipf.app.doctor`, which works without a running service.
"""

from __future__ import annotations

from pathlib import Path

import click

from ipf.cli.api import Api, Refused
from ipf.cli.local import run_module
from ipf.cli.options import env_file as _env_file
from ipf.cli.output import Output
from ipf.cli.running import query
from ipf.fhir.model.json import loads

OK, FAILED, SKIPPED = "ok", "failed", "skipped"


@click.command("doctor")
@_env_file
@query
async def doctor(api: Api, output: Output, env_file: Path | None) -> bool:
    """Check what keeps a service from starting, on its own host.

    Settings, databases, ports, identity provider, maps, packages, disk and clock.  It needs no running service.
    """
    service = await _service(api)
    arguments = ["--env-file", str(env_file)] if env_file is not None else []
    if service["result"] == OK:
        arguments.append("--service-runs")
    findings = [service, *loads(await run_module("ipf.app.doctor", *arguments))]
    if not output.data(findings):
        output.table(("check", "result", "text"), [(one["check"], one["result"], one["text"]) for one in findings])
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
