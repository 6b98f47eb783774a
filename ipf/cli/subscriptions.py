"""Commands for subscriptions: health, delivery attempts, resource, test of the endpoint, and status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ipf.cli.api import Api, segment
from ipf.cli.output import Output

Register = Callable[[Callable[..., Any]], Callable[..., None]]

_HEALTH = (
    "id", "status", "channel_type", "endpoint", "criteria", "delivery_success_count", "delivery_failure_count",
    "last_attempt_at", "last_attempt_outcome", "last_error",
)  # fmt: skip
_HISTORY = ("attempted_at", "outcome", "http_status", "duration_ms", "error")


def register(cli: click.Group, command: Register) -> None:
    """Put the commands of this module under `cli`."""
    group = click.Group("subscriptions", help="Health, history and status of subscriptions.")
    cli.add_command(group)
    one = click.argument("subscription_id")
    group.command("list")(command(health))
    group.command("history")(
        one(click.option("--limit", default=50)(click.option("--offset", default=0)(command(history))))
    )
    group.command("show")(one(command(show)))
    group.command("test")(one(command(test)))
    codes = click.Choice(("active", "off", "requested", "error"))
    group.command("set")(one(click.argument("status", type=codes)(command(set_status))))


async def health(api: Api, output: Output) -> bool:
    """List subscriptions and the results of their deliveries; exit status 1 when one is in error."""
    found = await api.get("/admin/subscriptions/health")
    if not output.data(found):
        output.table(_HEALTH, [[item.get(name) for name in _HEALTH] for item in found["items"]])
        output.say(f"{len(found['items'])} of {found['total']}" if found["items"] else "there are none")
    return all(item["status"] != "error" for item in found["items"])


async def history(api: Api, output: Output, subscription_id: str, limit: int, offset: int) -> None:
    """List delivery attempts of a subscription, newest first."""
    found = await api.get(_path(subscription_id, "history"), limit=limit, offset=offset)
    if not output.data(found):
        output.table(_HISTORY, [[item.get(name) for name in _HISTORY] for item in found["items"]])
        output.say(f"{len(found['items'])} of {found['total']}" if found["items"] else "there are none")


async def show(api: Api, output: Output, subscription_id: str) -> None:
    """Show the Subscription resource."""
    found = await api.get(_path(subscription_id, "resource"))
    if not output.data(found):
        output.record(found)


async def test(api: Api, output: Output, subscription_id: str) -> bool:
    """Send a handshake to the endpoint of a subscription; exit status 1 when it is not acknowledged."""
    attempt = await api.call("POST", _path(subscription_id, "test"))
    if not output.data(attempt):
        output.record(attempt)
    return bool(attempt["outcome"] == "success")


async def set_status(api: Api, output: Output, subscription_id: str, status: str) -> None:
    """Set the status of a subscription: active, off, requested or error."""
    item = await api.call("PATCH", _path(subscription_id, "status"), body=b'{"status":"%s"}' % status.encode())
    if not output.data(item):
        output.record(item)


def _path(subscription_id: str, part: str) -> str:
    return f"/admin/subscriptions/{segment(subscription_id.removeprefix('Subscription/'))}/{part}"
