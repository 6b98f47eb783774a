"""Commands for the configuration: installed maps, unmapped codes, effective settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ipf.cli.api import Api
from ipf.cli.output import Output

Register = Callable[[Callable[..., Any]], Callable[..., None]]

_CODES = ("id", "source_system", "concept_map", "code", "status", "count", "messages", "last_seen")


def register(cli: click.Group, command: Register) -> None:
    """Put the commands of this module under `cli`."""
    cli.command("maps")(click.option("--reload", is_flag=True, help="Reload the maps first.")(command(maps)))
    status = click.option("--status", type=click.Choice(("open", "mapped")), help="Codes in this state only.")
    cli.command("unmapped")(click.option("--limit", default=50, show_default=True)(status(command(unmapped))))
    cli.command("config")(command(config))


async def maps(api: Api, output: Output, reload: bool) -> None:
    """List the installed maps by message type; a reload with an invalid map is refused and changes nothing."""
    if reload:
        await api.post("/admin/mapping/reload")
    found = await api.get("/admin/mapping")
    if output.data(found):
        return
    columns = ("url", "version", "file", "message_types")
    items = [item for item in found["maps"] if item.get("message_types")]
    output.table(columns, [[_words(item.get(name)) for name in columns] for item in items])
    output.say(f"{len(items)} maps of message types, {len(found['maps'])} in total")


async def unmapped(api: Api, output: Output, status: str | None, limit: int) -> None:
    """List codes of senders that no ConceptMap maps."""
    found = await api.get("/admin/unmapped-codes", status=status, limit=limit)
    if not output.data(found):
        output.table(_CODES, [[item.get(name) for name in _CODES] for item in found["items"]])
        output.say(f"{len(found['items'])} of {found['total']}" if found["items"] else "there are none")


async def config(api: Api, output: Output) -> None:
    """Show the settings in effect, and which of them are defaults; secrets are redacted."""
    found = await api.get("/admin/config")
    if not output.data(found):
        columns = ("name", "value", "defaulted")
        output.table(columns, [[_words(item.get(name)) for name in columns] for item in found["settings"]])


def _words(value: Any) -> Any:
    return (", ".join(map(str, value)) or None) if isinstance(value, list) else value
