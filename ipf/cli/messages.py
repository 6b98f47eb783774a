"""`ipfctl messages`: list, show, follow, send, retry, replay, discard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ipf.cli import replays, sending
from ipf.cli.api import Api, Refused, segment
from ipf.cli.options import filters, filters_in, number, selecting, selection, window
from ipf.cli.output import Output
from ipf.cli.running import action, query
from ipf.cli.words import counted

_TRACED = {
    "messages": (
        "id", "original_id", "received_at", "source_system", "source_id", "message_type", "status", "attempt_count",
        "map", "last_error",
    ),
    "resources": ("tenant", "resource_type", "id", "version_id", "action", "written_at"),
    "events": ("subscription_id", "event_number", "resource_type", "id", "version_id", "occurred_at"),
    "deliveries": ("subscription_id", "event_number", "attempted_at", "outcome", "http_status", "duration_ms", "error"),
    "identity_conflicts": ("id", "status", "resource_type", "kind", "candidates", "answer", "target", "answered_by"),
}  # fmt: skip
_COLUMNS = ("id", "received_at", "status", "attempt_count", "source_system", "source_id", "message_type", "last_error")
_UNREAD = ("segment", "kind", "path")
_EFFECTS = ("fhir_resources_created", "subscriptions_matched", "notifications_fired")

_many = click.argument("message_ids", type=int, nargs=-1, required=True)


@click.group("messages")
def messages() -> None:
    """HL7 v2 messages: list, show, trace, send, retry, replay."""


@messages.command("list")
@filters()
@click.option("--source-id", help="Message control id, MSH-10.")
@click.option("--correlation-id", help="Correlation id, as in the log.")
@window(50)
@query
async def list_messages(api: Api, output: Output, **arguments: Any) -> None:
    """List messages, newest first; filters combine."""
    others = {name: arguments.get(name) for name in ("source_id", "correlation_id", "limit", "offset")}
    page = await api.get("/admin/messages", **filters_in(arguments), **others)
    if not output.data(page):
        output.page(page, _COLUMNS, "message")


@messages.command("show")
@number("message_id")
@click.option("--raw", is_flag=True, help="The payload only.")
@query
async def show(api: Api, output: Output, message_id: int, raw: bool) -> None:
    """Show one message, its payload last."""
    row = await api.get(f"/admin/messages/{message_id}")
    if output.data(row):
        return
    payload = str(row.get("raw_message", "")).replace("\r\n", "\n").replace("\r", "\n")
    if output.is_table:
        row.pop("raw_message", None)
    if not raw:
        output.record(row)
        output.say("")
    elif not output.is_table:
        output.record({"raw_message": payload})
    output.verbatim(payload)


@messages.command("trace")
@click.argument("key")
@query
async def trace(api: Api, output: Output, key: str) -> None:
    """Follow a message from receipt to the last delivery.

    KEY is a message number or a correlation id.
    """
    correlation = key
    if key.isdecimal():
        correlation = (await api.get(f"/admin/messages/{key}"))["correlation_id"]
    found = await api.get(f"/admin/observe/trace/{segment(correlation)}")
    if output.data(found):
        return
    output.say(f"correlation id {correlation}")
    for name, columns in _TRACED.items():
        items = [{**item, "map": (item.get("transform") or {}).get("map_url")} for item in found.get(name) or ()]
        shown = [column for column in columns if any(item.get(column) is not None for item in items)]
        if shown:
            output.table(shown, [[item.get(column) for column in shown] for item in items], name)
    if found.get("truncated"):
        output.say("\nonly the first 1,000 rows of each kind are shown")
    for line in _next_steps(found):
        output.say(f"\n{line}")
    await _show_unread(api, output, found.get("messages") or ())


def _next_steps(found: dict[str, Any]) -> list[str]:
    """What to do about each message that failed."""
    conflicts, lines = found.get("identity_conflicts") or (), []
    for item in found.get("messages") or ():
        if item["status"] not in ("FAILED", "DEAD_LETTER"):
            continue
        if any(one["message_id"] == item["id"] and one["status"] == "open" for one in conflicts):
            lines.append(f"{item['id']} waits for a decision: identity list --message {item['id']}")
            continue
        what = "retry" if item.get("original_id") is None else "a retry of its conversion"
        lines.append(f"{item['id']} is {item['status']}: {what} when the cause is resolved, or discard")
    return lines


async def _show_unread(api: Api, output: Output, rows: Sequence[dict[str, Any]]) -> None:
    """The fields of the first delivered message that are not in its resources, by the maps that are installed."""
    number = next((row["id"] for row in rows if row["status"] == "DELIVERED" and row.get("original_id") is None), None)
    status, traced = (404, {}) if number is None else await api.reach(f"/admin/messages/{number}/trace")
    items = [one for one in traced["unread"] if one["kind"] != "declared"] if status == 200 else []
    if items:
        title = f"fields of {number} that are not in its resources"
        output.table(_UNREAD, [[item.get(name) for name in _UNREAD] for item in items], title)


@messages.command("effects")
@number("message_id")
@query
async def effects(api: Api, output: Output, message_id: int) -> bool:
    """Show resources, subscriptions and notifications of a message.

    Exit status 1 when one failed.
    """
    found = await api.get(f"/admin/messages/{message_id}/effects")
    if found.get("effects_status") is None:
        raise Refused("the service did not report the effects of this message")
    if not output.data(found):
        output.record({"effects_status": found["effects_status"], "transform": found.get("transform")})
        for name in _EFFECTS:
            items = found.get(name) or []
            if items:
                columns = list(items[0])
                output.table(columns, [[item.get(column) for column in columns] for item in items], name)
    return bool(found["effects_status"] != "failed")


sending.register(messages)


@messages.command("retry")
@_many
@action
async def retry(api: Api, output: Output, message_ids: tuple[int, ...]) -> bool:
    """Retry FAILED or DEAD_LETTER messages."""
    return await _each(api, output, message_ids, "POST", "/retry", "is converted again")


@messages.command("replay")
@selecting()
@click.option("--only", is_flag=True, help="Do not convert later messages of the same patients.")
@action
async def replay(api: Api, output: Output, only: bool, **arguments: Any) -> bool:
    """Convert stored messages again with the installed maps.

    By number or filter; --dry-run shows the differences.
    """
    body = {**selection(arguments), "following": not only}
    return await replays.start(api, output, "/admin/messages/replay", body, arguments["wait"])


@messages.command("discard")
@_many
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@action
async def discard(api: Api, output: Output, message_ids: tuple[int, ...], yes: bool) -> bool:
    """Delete DEAD_LETTER messages permanently."""
    if not yes:
        click.confirm(f"Delete {counted(len(message_ids), 'message')} permanently?", abort=True, err=True)
    return await _each(api, output, message_ids, "DELETE", "", "is deleted")


async def _each(api: Api, output: Output, message_ids: tuple[int, ...], method: str, path: str, done: str) -> bool:
    """Send one request per message; a refused one does not stop the others."""
    results: dict[str, Any] = {}
    for one in message_ids:
        try:
            results[str(one)] = await api.call(method, f"/admin/messages/{one}{path}")
            output.say(f"{one} {done}")
        except Refused as refused:
            if refused.status is None or refused.status == 401:
                raise
            results[str(one)] = {"error": str(refused)}
            hint = (
                "`ipfctl messages list` shows the numbers"
                if refused.status == 404
                else f"`ipfctl messages show {one}` has more"
            )
            output.error(f"{one}: {refused}", refused.hint or hint)
    output.data(results)
    return not any(isinstance(result, dict) and "error" in result for result in results.values())
