"""`ipfctl interfaces`: the senders, and which of them are silent."""

from __future__ import annotations

import click

from ipf.cli.api import Api
from ipf.cli.output import Output
from ipf.cli.running import query

_COLUMNS = (
    "source_system", "kind", "listener", "last_seen", "is_silent", "expected_seconds", "per_minute", "received_24h",
    "errors_24h", "waiting", "oldest_waiting_at", "tenant",
)  # fmt: skip


@click.group("interfaces")
def interfaces() -> None:
    """Senders: rate, last message, errors, silence."""


@interfaces.command("list")
@click.option("--source-system", help="MSH-3.1.")
@query
async def list_interfaces(api: Api, output: Output, source_system: str | None) -> bool:
    """List the senders: rate, last message, errors, what waits.

    Exit status 1 if one is silent for longer than expected.
    """
    found = await api.get("/admin/observe/interfaces", source_system=source_system)
    if not output.data(found):
        output.page(found, _COLUMNS, "sender")
        if found["silent"]:
            output.say(f"silent for longer than expected: {found['silent']}")
    return not found["silent"]
