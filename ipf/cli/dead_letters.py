"""`ipfctl dead-letters`: the newest ones, their errors, retry and discard of many at once."""

from __future__ import annotations

from typing import Any

import click

from ipf.cli import replays
from ipf.cli.api import Api
from ipf.cli.options import limit, selecting, selection
from ipf.cli.output import Output
from ipf.cli.running import action, query

_COLUMNS = ("id", "received_at", "source_system", "source_id", "message_type", "last_error")
_ERRORS = ("fingerprint", "count", "newest_id", "last_received_at", "sample")
_fingerprint = click.option("--fingerprint", help="A fingerprint from `dead-letters errors`.")


@click.group("dead-letters")
def dead_letters() -> None:
    """Dead letters: by error; retry or discard many at once."""


@dead_letters.command("list")
@limit(20)
@query
async def list_dead_letters(api: Api, output: Output, limit: int) -> None:
    """List the newest dead letters with their errors."""
    page = await api.get("/admin/observe/dlq", limit=limit)
    if not output.data(page):
        output.page(page, _COLUMNS, "dead letter")


@dead_letters.command("errors")
@limit(20)
@query
async def errors(api: Api, output: Output, limit: int) -> None:
    """List dead letters grouped by error, the largest group first."""
    found = await api.get("/admin/dead-letters/errors", limit=limit)
    if not output.data(found):
        output.page(found, _ERRORS, "kind of error")


@dead_letters.command("retry")
@selecting()
@_fingerprint
@action
async def retry(api: Api, output: Output, **arguments: Any) -> bool:
    """Retry many dead letters.

    By number, filter or fingerprint of their error.
    """
    return await _bulk(api, output, "retry", arguments)


@dead_letters.command("discard")
@selecting()
@_fingerprint
@action
async def discard(api: Api, output: Output, **arguments: Any) -> bool:
    """Delete many dead letters permanently.

    By number, filter or fingerprint of their error.
    """
    return await _bulk(api, output, "discard", arguments)


async def _bulk(api: Api, output: Output, kind: str, arguments: dict[str, Any]) -> bool:
    fingerprint = arguments["fingerprint"]
    body = selection(arguments) | ({"fingerprint": fingerprint} if fingerprint else {})
    return await replays.start(api, output, f"/admin/dead-letters/{kind}", body, arguments["wait"])
