"""`ipfctl destinations`: systems that messages are sent on to; what waits, dead letters, pause."""

from __future__ import annotations

from typing import Any

import click

from ipf.cli.api import Api, segment
from ipf.cli.output import Output
from ipf.cli.running import action, query

_COLUMNS = ("name", "pending", "dead_letters", "sent", "oldest_pending_at", "last_sent_at", "paused", "last_error")
_MESSAGES = ("message_id", "message_type", "source_id", "status", "attempts", "code", "text", "ended_at")
_name = click.argument("name")


@click.group("destinations")
def destinations() -> None:
    """Forwarding: what waits, dead letters, pause."""


@destinations.command("list")
@query
async def list_destinations(api: Api, output: Output) -> bool:
    """List the destinations of forwarded messages.

    Exit status 1 when one has dead letters or an error.
    """
    found = await api.get("/admin/destinations")
    if not output.data(found):
        output.page(found, _COLUMNS, "destination")
    return not any(item["dead_letters"] or item["last_error"] for item in found["items"])


@destinations.command("show")
@_name
@query
async def show(api: Api, output: Output, name: str) -> bool:
    """List the dead letters of a destination; exit status 1 if any."""
    found = await api.get(f"/admin/destinations/{segment(name)}/messages", status="DEAD_LETTER")
    if not output.data(found):
        output.page(found, _MESSAGES, "dead letter")
    return not found["items"]


@destinations.command("retry")
@_name
@click.option("--message", "message_id", type=int, help="This message only.")
@action
async def retry(api: Api, output: Output, name: str, message_id: int | None) -> None:
    """Send the dead letters of a destination again."""
    await _do(api, output, name, "retry", {} if message_id is None else {"message_id": message_id})


@destinations.command("skip")
@_name
@click.option("--message", "message_id", type=int, required=True, help="The message to give up.")
@action
async def skip(api: Api, output: Output, name: str, message_id: int) -> None:
    """Give up a message that holds back others."""
    await _do(api, output, name, "skip", {"message_id": message_id})


@destinations.command("pause")
@_name
@action
async def pause(api: Api, output: Output, name: str) -> None:
    """Send nothing to a destination; messages wait."""
    await _do(api, output, name, "pause", {})


@destinations.command("resume")
@_name
@action
async def resume(api: Api, output: Output, name: str) -> None:
    """Go on with a destination that was paused."""
    await _do(api, output, name, "resume", {})


async def _do(api: Api, output: Output, name: str, verb: str, body: dict[str, Any]) -> None:
    made = await api.post(f"/admin/destinations/{segment(name)}/{verb}", body)
    if not output.data(made):
        output.say(", ".join(f"{key} {value}" for key, value in made.items()))
