"""Commands for the audit trail: its public keys and signed heads, an export, and the offline check of one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import orjson

from ipf.cli.api import Api, Refused
from ipf.cli.output import Output
from ipf.config.paths import python_path

Register = Callable[[Callable[..., Any]], Callable[..., None]]

_HEAD = ("at", "tenant", "surface", "day", "number", "reason", "key_id", "hash")


def register(cli: click.Group, command: Register) -> None:
    """Put the commands of this module under `cli`."""
    group = click.Group("audit", help="The audit trail: export it, and check that nobody has changed it.")
    cli.add_command(group)
    group.command("key")(command(key))
    limit = click.option("--limit", default=20, show_default=True)
    group.command("heads")(limit(command(heads)))
    target = click.option("-o", "--output", "target", type=click.Path(dir_okay=False, path_type=Path), required=True,
                          help="The file to write.")  # fmt: skip
    options = [
        click.option("--since", help="First day, ISO 8601."), click.option("--until", help="Last day, ISO 8601."),
        click.option("--tenant", help="One tenant."), click.option("--surface", help="fhir or admin."),
    ]  # fmt: skip
    work = command(export)
    for option in (*reversed(options), target):
        work = option(work)
    group.command("export")(work)
    group.add_command(verify)
    group.add_command(verify_erasures)


async def key(api: Api, output: Output) -> None:
    """Print the public keys that have signed heads, in PEM; give them to your auditors."""
    found = await api.get("/admin/audit/heads", limit=1)
    if not output.data(found["keys"]):
        for one in found["keys"]:
            output.say(f"# key {one['key_id']}, in use since {one['created_at']}")
            output.say(one["pem"].strip())


async def heads(api: Api, output: Output, limit: int) -> None:
    """List the signed heads of the chains, newest first."""
    found = await api.get("/admin/audit/heads", limit=limit)
    if not output.data(found):
        rows = [[item[name] for name in _HEAD] for item in found["items"]]
        output.table(_HEAD, rows, f"{found['total']} heads; installation {found['installation']}")


async def export(api: Api, output: Output, target: Path, **filters: Any) -> None:
    """Write the audit trail with its hash chains to a file, which appears when it is complete."""
    draft, page, lines = target.with_name(f"{target.name}.part"), None, 0
    try:
        with draft.open("wb") as file:
            os.chmod(draft, 0o600)
            while True:
                content = (await api.download("/admin/audit/export", page=page, **filters)).splitlines(keepends=True)
                last = orjson.loads(content[-1])
                more = last["type"] == "page"
                file.writelines(content[:-1] if more else content)
                lines += len(content) - more
                if not more:
                    break
                page = last["next"]
        draft.replace(target)
    except OSError as failed:
        raise Refused(f"{target}: {failed.strerror}") from None
    if not output.data({"file": str(target), "lines": lines}):
        output.say(f"{target}: {lines} lines")


@click.command("verify")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--key", "keys", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True,
              required=True, help="File with trusted public keys in PEM; may be repeated.")  # fmt: skip
@click.option("--heads", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Heads that were kept elsewhere, as lines of JSON.")  # fmt: skip
def verify(file: Path, keys: tuple[Path, ...], heads: Path | None) -> None:
    """Check an export without a service: every record, every chain, every head.

    Exit status: 0 nothing was changed; 1 something was; 2 a file cannot be read.
    """
    arguments = [str(file), *(f"--key={one}" for one in keys), *([f"--heads={heads}"] if heads else [])]
    _run("ipf.app.verify_audit", arguments)


@click.command("verify-erasures")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--key", "keys", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True,
              required=True, help="File with trusted public keys in PEM; may be repeated.")  # fmt: skip
@click.option("--patient", help="Patient/x: one of the receipts must be about him.")
@click.option("--tenant", default="default", show_default=True, help="Tenant of the Patient.")
def verify_erasures(file: Path, keys: tuple[Path, ...], patient: str | None, tenant: str) -> None:
    """Check receipts of erasures without a service: the JSON of `forget` or `erasures`.

    Exit status: 0 all are genuine; 1 one is not, or none is about the patient; 2 a file cannot be read.
    """
    asked = [f"--patient={patient}", f"--tenant={tenant}"] if patient else []
    _run("ipf.app.verify_erasures", [str(file), *(f"--key={one}" for one in keys), *asked])


def _run(module: str, arguments: list[str]) -> None:
    """End with the exit status of a module."""
    environment = os.environ | {"PYTHONPATH": python_path()}
    sys.exit(subprocess.call([sys.executable, "-m", module, *arguments], env=environment))
