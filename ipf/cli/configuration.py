"""Commands for the configuration: installed maps, unmapped codes, unread fields, effective settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any

import click

from ipf.cli.api import Api
from ipf.cli.output import Output

Register = Callable[[Callable[..., Any]], Callable[..., None]]

_CODES = ("id", "source_system", "concept_map", "code", "status", "count", "messages", "last_seen")

_UNREAD = ("source_system", "message_type", "kind", "path", "occurrences", "last_seen", "message_id", "reason")


def register(cli: click.Group, command: Register) -> None:
    """Put the commands of this module under `cli`."""
    cli.command("maps")(_map_options(command(maps)))
    status = click.option("--status", type=click.Choice(("open", "mapped")), help="Codes in this state only.")
    cli.command("unmapped")(click.option("--limit", default=50, show_default=True)(status(command(unmapped))))
    cli.command("unread")(_unread_options(command(unread)))
    cli.command("config")(command(config))


def _map_options(body: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--remove", metavar="URL", help="Remove a map that was installed over HTTP."),
        click.option("--install", type=click.File("r"), help="Install the text of a map in every process."),
        click.option("--source", metavar="URL", help="Print the text of a map instead."),
        click.option("--reload", is_flag=True, help="Reload the maps first."),
    ):
        body = option(body)
    return body


def _unread_options(body: Callable[..., None]) -> Callable[..., None]:
    kinds = click.Choice(("unread", "declared", "dropped", "invalid"))
    for option in (
        click.option("--message", "message_id", type=int, help="Of this message only, with the maps of now."),
        click.option("--forget", is_flag=True, help="Forget the rows of --sender: what is still unread comes back."),
        click.option("--limit", default=50, show_default=True),
        click.option("--path", help="This field, segment or element only: PV1-40, ZPI, ServiceRequest.code."),
        click.option("--kind", type=kinds, help="This kind only."),
        click.option("--type", "message_type", help="This message type only: ADT_A01."),
        click.option("--sender", help="This sender (MSH-3) only."),
    ):
        body = option(body)
    return body


async def maps(
    api: Api,
    output: Output,
    reload: bool,
    source: str | None = None,
    install: IO[str] | None = None,
    remove: str | None = None,
) -> None:
    """List the installed maps by message type; a reload or a map that does not compile is refused, nothing changes."""
    if source is not None:
        shown = await api.get("/admin/mapping/source", url=source)
        if not output.data(shown):
            output.say(shown["text"])
        return
    if install is not None:
        await api.post("/admin/mapping/install", {"map": install.read()})
    if remove is not None:
        await api.post("/admin/mapping/remove", {"url": remove})
    if reload:
        await api.post("/admin/mapping/reload")
    found = await api.get("/admin/mapping")
    if output.data(found):
        return
    columns = ("url", "version", "file", "message_types")
    broken = [item for item in found["maps"] if item.get("mistake")]
    items = [item for item in found["maps"] if item.get("message_types") or item in broken]
    output.table(columns, [[_words(item.get(name)) for name in columns] for item in items])
    for item in broken:
        mistake = item["mistake"]
        output.say(f"broken: {item['url']}: line {mistake['line']}, column {mistake['column']}: {mistake['message']}")
    output.say(f"{len(items) - len(broken)} maps of message types, {len(found['maps'])} in total")


async def unmapped(api: Api, output: Output, status: str | None, limit: int) -> None:
    """List codes of senders that no ConceptMap maps."""
    found = await api.get("/admin/unmapped-codes", status=status, limit=limit)
    if not output.data(found):
        output.table(_CODES, [[item.get(name) for name in _CODES] for item in found["items"]])
        output.say(f"{len(found['items'])} of {found['total']}" if found["items"] else "there are none")


async def unread(
    api: Api,
    output: Output,
    sender: str | None,
    message_type: str | None,
    kind: str | None,
    path: str | None,
    limit: int,
    forget: bool,
    message_id: int | None = None,
) -> None:
    """List the fields of converted messages that are not in the result, the most frequent first.

    Kinds: unread (no rule read it), dropped (a rule's result was lost), invalid (an element that R4 does not allow);
    last declared (on purpose, with the reason).
    """
    wanted = {"source_system": sender, "message_type": message_type, "kind": kind, "path": path}
    if message_id is not None:
        traced = await api.get(f"/admin/messages/{message_id}/trace")
        if not output.data(traced["unread"]):
            columns = ("segment", "kind", "path", "reason")
            output.table(columns, [[item.get(name) for name in columns] for item in traced["unread"]])
        return
    if forget:
        if sender is None:
            raise click.UsageError("--forget needs --sender")
        gone = await api.call("DELETE", "/admin/unread-fields", wanted)
        if not output.data(gone):
            output.say(f"{gone['forgotten']} rows are forgotten")
        return
    found = await api.call("GET", "/admin/unread-fields", {**wanted, "limit": limit})
    if not output.data(found):
        output.table(_UNREAD, [[item.get(name) for name in _UNREAD] for item in found["items"]])
        output.say(f"{len(found['items'])} of {found['total']}" if found["items"] else "there are none")


async def config(api: Api, output: Output) -> None:
    """Show the settings in effect, and which of them are defaults; secrets are redacted."""
    found = await api.get("/admin/config")
    if not output.data(found):
        columns = ("name", "value", "defaulted")
        output.table(columns, [[_words(item.get(name)) for name in columns] for item in found["settings"]])


def _words(value: Any) -> Any:
    return (", ".join(map(str, value)) or None) if isinstance(value, list) else value
