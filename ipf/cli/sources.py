"""Commands for polled sources: how far each feed has been read, polling at once and from a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ipf.cli.api import Api
from ipf.cli.output import Output

Register = Callable[[Callable[..., Any]], Callable[..., None]]

_COLUMNS = ("name", "source_system", "read_until", "polled_at", "due_at", "fetched", "stored", "failures", "last_error")
_BEGINNING = "beginning"


def register(cli: click.Group, command: Register) -> None:
    """Put the commands of this module under `cli`."""
    body = command(sources)
    body = click.option("--since", metavar="TIME", help="Poll the feed again from TIME, or from `beginning`.")(body)
    body = click.option("--poll", metavar="NAME", help="Poll this feed at once.")(body)
    cli.command("sources")(body)


async def sources(api: Api, output: Output, poll: str | None, since: str | None) -> bool:
    """List the feeds of polled sources; exit status 1 when one fails.

    With --poll NAME a feed is polled at once, with --since from a time on: what is stored already is recognised.
    """
    if since is not None and poll is None:
        raise click.UsageError("--since needs --poll")
    if poll is not None:
        wanted = {"name": poll} if since is None else {"name": poll, "since": None if since == _BEGINNING else since}
        made = await api.post(f"/admin/sources/{'poll' if since is None else 'rewind'}", wanted)
        if not output.data(made):
            output.say(made["message"])
        return True
    found = await api.get("/admin/sources")
    if not output.data(found):
        output.table(_COLUMNS, [[item.get(name) for name in _COLUMNS] for item in found["items"]])
        output.say(f"{found['total']} feeds" if found["items"] else "there are none")
    return not any(item["failures"] for item in found["items"])
