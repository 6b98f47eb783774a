"""`ipfctl sources`: how far each feed of a polled source has been read; polling at once, and from a time."""

from __future__ import annotations

import click

from ipf.cli.api import Api
from ipf.cli.output import Output
from ipf.cli.running import action, query
from ipf.cli.times import Moment

_COLUMNS = ("name", "source_system", "read_until", "polled_at", "due_at", "fetched", "stored", "failures", "last_error")
_BEGINNING = "beginning"


class _Since(Moment):
    """A time, or `beginning`."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """ISO 8601, or `beginning` as it is."""
        return value if value == _BEGINNING else super().convert(value, param, ctx)


@click.group("sources")
def sources() -> None:
    """Polled sources: how far each feed is read; poll at once."""


@sources.command("list")
@query
async def list_sources(api: Api, output: Output) -> bool:
    """List the feeds of polled sources; exit status 1 when one fails."""
    found = await api.get("/admin/sources")
    if not output.data(found):
        output.page(found, _COLUMNS, "feed")
    return not any(item["failures"] for item in found["items"])


@sources.command("poll")
@click.argument("name")
@click.option("--since", metavar="TIME", type=_Since(), help="Poll again from TIME, or from `beginning`.")
@action
async def poll(api: Api, output: Output, name: str, since: str | None) -> None:
    """Poll the feed NAME at once.

    With --since from a time on: what is stored already is recognised.
    """
    wanted = {"name": name} if since is None else {"name": name, "since": None if since == _BEGINNING else since}
    made = await api.post(f"/admin/sources/{'poll' if since is None else 'rewind'}", wanted)
    if not output.data(made):
        output.say(made["message"])
