"""Commands for destinations of forwarded messages: what waits, dead letters, pause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import click

from ipf.cli.api import Api
from ipf.cli.output import Output

Register = Callable[[Callable[..., Any]], Callable[..., None]]

_COLUMNS = ("name", "pending", "dead_letters", "sent", "oldest_pending_at", "last_sent_at", "paused", "last_error")
_MESSAGES = ("message_id", "message_type", "source_id", "status", "attempts", "code", "text", "ended_at")


def register(cli: click.Group, command: Register) -> None:
    """Put the commands of this module under `cli`."""
    body = command(destinations)
    for option in (
        click.option("--resume", metavar="NAME", help="Go on with a destination that was paused."),
        click.option("--pause", metavar="NAME", help="Send nothing to this destination; messages wait."),
        click.option("--message", "message_id", type=int, help="With --retry or --skip: this message."),
        click.option("--skip", metavar="NAME", help="Give up --message, which holds back others."),
        click.option("--retry", metavar="NAME", help="Send the dead letters of this destination again."),
        click.option("--dead", metavar="NAME", help="List the dead letters of this destination."),
    ):
        body = option(body)
    cli.command("destinations")(body)


async def destinations(
    api: Api,
    output: Output,
    dead: str | None,
    retry: str | None,
    skip: str | None,
    message_id: int | None,
    pause: str | None,
    resume: str | None,
) -> bool:
    """List the destinations of forwarded messages; exit status 1 when one has dead letters or an error."""
    if skip is not None and message_id is None:
        raise click.UsageError("--skip needs --message")
    body = {} if message_id is None else {"message_id": message_id}
    for name, verb, sent in (
        (retry, "retry", body),
        (skip, "skip", body),
        (pause, "pause", {}),
        (resume, "resume", {}),
    ):
        if name is not None:
            made = await api.post(f"/admin/destinations/{quote(name, safe='')}/{verb}", sent)
            if not output.data(made):
                output.say(", ".join(f"{key} {value}" for key, value in made.items()))
            return True
    if dead is not None:
        found = await api.get(f"/admin/destinations/{quote(dead, safe='')}/messages", status="DEAD_LETTER")
        if not output.data(found):
            output.table(_MESSAGES, [[item.get(name) for name in _MESSAGES] for item in found["items"]])
        return not found["items"]
    found = await api.get("/admin/destinations")
    if not output.data(found):
        output.table(_COLUMNS, [[item.get(name) for name in _COLUMNS] for item in found["items"]])
    return not any(item["dead_letters"] or item["last_error"] for item in found["items"])
