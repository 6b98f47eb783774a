"""`ipfctl maps`: installed maps, their text, trials, installation."""

from __future__ import annotations

from typing import IO, Any

import click

from ipf.cli.api import Api
from ipf.cli.options import message_type
from ipf.cli.output import Output
from ipf.cli.running import action, query
from ipf.cli.settings import words
from ipf.cli.words import counted

_COLUMNS = ("url", "version", "file", "message_types")
_UNREAD = ("segment", "kind", "path", "reason")
_DIFFERENT = ("message_id", "before", "after")
_map = click.argument("file", type=click.File("r"))
_url = click.argument("url")


@click.group("maps")
def maps() -> None:
    """Maps: list, show, try, compare, install, remove."""


@maps.command("list")
@query
async def list_maps(api: Api, output: Output) -> None:
    """List the installed maps of message types.

    And those with a mistake.
    """
    _show_maps(output, await api.get("/admin/mapping"))


@maps.command("reload")
@action
async def reload(api: Api, output: Output) -> None:
    """Reload the folder of maps, and list them.

    A map that does not compile is refused, and nothing changes.
    """
    await api.post("/admin/mapping/reload")
    _show_maps(output, await api.get("/admin/mapping"))


def _show_maps(output: Output, found: dict[str, Any]) -> None:
    if output.data(found):
        return
    broken = [item for item in found["maps"] if item.get("mistake")]
    items = [item for item in found["maps"] if item.get("message_types") or item in broken]
    output.table(_COLUMNS, [[words(item.get(name)) for name in _COLUMNS] for item in items])
    for item in broken:
        output.say(f"broken: {item['url']}: {_place(item['mistake'])}")
    of_types = counted(len(items) - len(broken), "map")
    output.say(f"{of_types} of message types, {len(found['maps'])} in total")


@maps.command("show")
@_url
@query
async def show(api: Api, output: Output, url: str) -> None:
    """Print the text of an installed map."""
    shown = await api.get("/admin/mapping/source", url=url)
    if not output.data(shown):
        if not output.is_table:
            output.record(shown)
        output.verbatim(shown["text"])


@maps.command("try")
@_map
@click.option("--message", "message_id", type=int, help="Number of a stored message.")
@click.option("--hl7", type=click.File("r", encoding="utf-8"), help="File with a message.")
@query
async def try_map(api: Api, output: Output, file: IO[str], message_id: int | None, hl7: IO[str] | None) -> bool:
    """Show what a map makes of a message.

    Nothing is installed or stored.

    -o json shows the Bundle.  Exit status 1 when the map has a mistake.
    """
    if (message_id is None) == (hl7 is None):
        raise click.UsageError("give either --message NUMBER or --hl7 FILE")
    message = {"message_id": message_id} if hl7 is None else {"message": hl7.read()}
    found = await api.post("/admin/mapping/try", {"map": file.read(), **message})
    if output.data(found):
        return found["mistake"] is None
    if found["mistake"] is not None:
        output.error(f"{file.name}: {_place(found['mistake'])}", "correct the map at this place, and try it again")
        return False
    made = [one.get("resource") or {} for one in (found.get("result") or {}).get("entry", ())]
    rows = [(one.get("resourceType"), one.get("id")) for one in made]
    output.table(("resource_type", "id"), rows, "resources")
    if found.get("unread"):
        output.table(
            _UNREAD, [[one.get(name) for name in _UNREAD] for one in found["unread"]], "fields not in the result"
        )
    if found.get("unmapped"):
        output.table(
            ("concept_map", "code"), [(one["concept_map"], one["code"]) for one in found["unmapped"]], "unmapped codes"
        )
    for text in found.get("warnings") or ():
        output.say(f"warning: {text}")
    output.say(f"{counted(len(rows), 'resource')}; -o json shows the Bundle")
    return True


@maps.command("compare")
@_map
@click.option("--type", "kind", required=True, help="Message type, such as ADT_A01.")
@click.option("--limit", default=50, show_default=True, help="Newest messages of the type to compare.")
@query
async def compare(api: Api, output: Output, file: IO[str], kind: str, limit: int) -> bool:
    """Compare a map with the installed one on stored messages.

    Exit status 1 when the map has a mistake.
    """
    body = {"map": file.read(), "message_type": message_type(kind), "limit": limit}
    found = await api.post("/admin/mapping/compare", body)
    if output.data(found):
        return found["mistake"] is None
    if found["mistake"] is not None:
        output.error(f"{file.name}: {_place(found['mistake'])}", "correct the map at this place, and try it again")
        return False
    rows = [(one["id"], _entries(one["before"]), _entries(one["after"])) for one in found["differing"]]
    output.table(_DIFFERENT, rows)
    compared, same = counted(found["messages"], "message"), found["same"]
    output.say(f"{compared} of {found['message_type']}: {same} with the same result, {len(rows)} with another")
    return True


def _entries(bundle: dict[str, Any]) -> str:
    """`Encounter, Patient` of a Bundle; the text of a mistake."""
    if "mistake" in bundle:
        return _place(bundle["mistake"])
    kinds = [(one.get("resource") or {}).get("resourceType", "-") for one in bundle.get("entry", ())]
    return ", ".join(kinds)


@maps.command("install")
@_map
@action
async def install(api: Api, output: Output, file: IO[str]) -> None:
    """Install the text of a map in every process.

    A map that does not compile is refused with its place, and nothing changes.
    """
    made = await api.post("/admin/mapping/install", {"map": file.read()})
    found = await api.get("/admin/mapping")
    one: dict[str, Any] = next((item for item in found["maps"] if item["url"] == made["url"]), {})
    types = one.get("message_types") or []
    stored = 0
    for name in types:
        stored += (await api.get("/admin/messages", message_type=name, limit=1, tenant="*"))["total"]
    version = one.get("version") or made.get("version")
    result = {**made, "map_version": one.get("version"), "message_types": types, "stored_messages": stored}
    if not output.data(result):
        output.say(f"{made['url']}: version {version} is installed; {_affected(types, stored)}")


def _affected(types: list[str], stored: int) -> str:
    """Which messages a map is for, and how many of them are stored."""
    if not types:
        return "no message type uses it by itself, so stored messages are not affected"
    of_types = f"messages affected: all later {', '.join(types)}"
    if not stored:
        return f"{of_types}; none is stored"
    options = f"--type {types[0]}" if len(types) == 1 else "--type T"
    stay = "stays" if stored == 1 else "stay"
    return f"{of_types}; {counted(stored, 'stored message')} {stay} until `ipfctl messages replay {options}`"


@maps.command("remove")
@_url
@action
async def remove(api: Api, output: Output, url: str) -> None:
    """Remove a map that was installed over HTTP.

    The one that it replaced is used again.
    """
    made = await api.post("/admin/mapping/remove", {"url": url})
    if not output.data(made):
        after = "the map that it replaced is used again" if made.get("is_installed") else "no map has this URL now"
        output.say(f"{made['url']} is removed; {after}")


def _place(mistake: dict[str, Any]) -> str:
    return f"line {mistake['line']}, column {mistake['column']}: {mistake['message']}"
