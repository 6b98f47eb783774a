"""`ipfctl subscriptions`: health, delivery attempts, resource, test of the endpoint, and status."""

from __future__ import annotations

import click

from ipf.cli.api import Api, segment
from ipf.cli.options import window
from ipf.cli.output import Output
from ipf.cli.running import action, query

_HEALTH = (
    "id", "status", "channel_type", "endpoint", "criteria", "delivery_success_count", "delivery_failure_count",
    "last_attempt_at", "last_attempt_outcome", "last_error",
)  # fmt: skip
_HISTORY = ("attempted_at", "outcome", "http_status", "duration_ms", "error")
_one = click.argument("subscription_id")


@click.group("subscriptions")
def subscriptions() -> None:
    """Subscriptions: health, delivery attempts, test, status."""


@subscriptions.command("list")
@query
async def health(api: Api, output: Output) -> bool:
    """List subscriptions and the results of their deliveries.

    Exit status 1 when one is in error.
    """
    found = await api.get("/admin/subscriptions/health")
    if not output.data(found):
        output.page(found, _HEALTH, "subscription")
    return all(item["status"] != "error" for item in found["items"])


@subscriptions.command("show")
@_one
@query
async def show(api: Api, output: Output, subscription_id: str) -> None:
    """Show the Subscription resource."""
    found = await api.get(_path(subscription_id, "resource"))
    if not output.data(found):
        output.record(found)


@subscriptions.command("history")
@_one
@window(50)
@query
async def history(api: Api, output: Output, subscription_id: str, limit: int, offset: int) -> None:
    """List delivery attempts of a subscription, newest first."""
    found = await api.get(_path(subscription_id, "history"), limit=limit, offset=offset)
    if not output.data(found):
        output.page({"offset": offset, **found}, _HISTORY, "attempt")


@subscriptions.command("test")
@_one
@action
async def test(api: Api, output: Output, subscription_id: str) -> bool:
    """Send a handshake to the endpoint of a subscription.

    Exit status 1 when it is not acknowledged.
    """
    attempt = await api.call("POST", _path(subscription_id, "test"))
    if not output.data(attempt):
        output.record(attempt)
    return bool(attempt["outcome"] == "success")


@subscriptions.command("set")
@_one
@click.argument("status", type=click.Choice(("active", "off", "requested", "error")))
@action
async def set_status(api: Api, output: Output, subscription_id: str, status: str) -> None:
    """Set the status: active, off, requested or error."""
    item = await api.call("PATCH", _path(subscription_id, "status"), body=b'{"status":"%s"}' % status.encode())
    if not output.data(item):
        output.record(item)


def _path(subscription_id: str, part: str) -> str:
    return f"/admin/subscriptions/{segment(subscription_id.removeprefix('Subscription/'))}/{part}"
