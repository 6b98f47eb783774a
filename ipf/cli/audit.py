"""Commands for the audit trail: its public keys and signed heads, an export, and the offline check of one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import orjson

from ipf.cli.api import Api, Refused
from ipf.cli.local import run_in_terminal
from ipf.cli.options import limit
from ipf.cli.output import Output
from ipf.cli.running import query, writes_file

_HEAD = ("at", "tenant", "surface", "day", "number", "reason", "key_id", "hash")
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("audit")
def audit() -> None:
    """Audit trail: public keys, heads, export, offline check."""


@audit.command("key")
@query
async def key(api: Api, output: Output) -> None:
    """Print the public keys that have signed heads, in PEM.

    Give them to your auditors.
    """
    found = await api.get("/admin/audit/heads", limit=1)
    if not output.data(found["keys"]):
        if not output.is_table:
            names = ("key_id", "created_at", "pem")
            output.table(names, [[one[name] for name in names] for one in found["keys"]])
        for one in found["keys"]:
            output.say(f"# key {one['key_id']}, in use since {one['created_at']}")
            output.verbatim(one["pem"].strip())


@audit.command("heads")
@limit(20)
@query
async def heads(api: Api, output: Output, limit: int) -> None:
    """List the signed heads of the chains, newest first."""
    found = await api.get("/admin/audit/heads", limit=limit)
    if not output.data(found):
        output.page(found, _HEAD, "head")
        output.say(f"installation {found['installation']}")


@audit.command("export")
@click.option("-o", "--output", "target", type=click.Path(dir_okay=False, path_type=Path), required=True,
              help="The file to write.")  # fmt: skip
@click.option("--since", help="First day, ISO 8601.")
@click.option("--until", help="Last day, ISO 8601.")
@click.option("--tenant", help="One tenant.")
@click.option("--surface", help="fhir or admin.")
@writes_file
async def export(api: Api, output: Output, target: Path, **filters: Any) -> None:
    """Write the audit trail with its hash chains to a file.

    The file appears when it is complete.
    """
    draft, page, lines = target.with_name(f"{target.name}.part"), None, 0
    try:
        with draft.open("wb") as file, output.waiting.bar("lines of the audit trail", None) as update:
            os.chmod(draft, 0o600)
            while True:
                content = (await api.download("/admin/audit/export", page=page, **filters)).splitlines(keepends=True)
                last = orjson.loads(content[-1])
                more = last["type"] == "page"
                file.writelines(content[:-1] if more else content)
                lines += len(content) - more
                update(lines)
                if not more:
                    break
                page = last["next"]
        draft.replace(target)
    except OSError as failed:
        raise Refused(f"{target}: {failed.strerror}") from None
    if not output.data({"file": str(target), "lines": lines}):
        output.say(f"{target}: {lines} lines")


@audit.command("verify")
@click.argument("file", type=_file)
@click.option("--key", "keys", type=_file, multiple=True, required=True,
              help="File with trusted public keys in PEM; may be repeated.")  # fmt: skip
@click.option("--heads", type=_file, help="Heads that were kept elsewhere, as lines of JSON.")
def verify(file: Path, keys: tuple[Path, ...], heads: Path | None) -> None:
    """Check an export without a service.

    Every record, every chain, every head.  Exit status: 0 nothing was changed; 1 something was; 2 a file cannot be
    read.
    """
    arguments = [str(file), *(f"--key={one}" for one in keys), *([f"--heads={heads}"] if heads else [])]
    run_in_terminal("ipf.app.verify_audit", arguments)
