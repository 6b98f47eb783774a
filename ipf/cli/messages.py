"""Commands for messages: list, show, retry, discard, trace, and the status of the service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from ipf.cli.api import Api, Refused, segment
from ipf.cli.bulk import filter_options, filters_in
from ipf.cli.output import Output

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
_INTERFACES = (
    "source_system", "kind", "listener", "last_seen", "is_silent", "expected_seconds", "per_minute", "received_24h",
    "errors_24h", "waiting", "oldest_waiting_at", "tenant",
)  # fmt: skip
_UNREAD = ("segment", "kind", "path")

Register = Callable[[Callable[..., Any]], Callable[..., None]]


def register(cli: click.Group, command: Register) -> None:
    """Put the commands of this module under `cli`."""
    cli.command("status")(command(status))
    one = click.argument("message_id", type=int)
    many = click.argument("message_ids", type=int, nargs=-1, required=True)
    page = [
        filter_options,
        click.option("--source-id", help="Message control id, MSH-10."),
        click.option("--correlation-id", help="Correlation id, as in the log."),
        click.option("--limit", default=50, show_default=True),
        click.option("--offset", default=0, show_default=True),
    ]
    cli.command("messages")(_with(command(list_messages), page))
    cli.command("show")(_with(command(show), [one, click.option("--raw", is_flag=True, help="The payload only.")]))
    cli.command("retry")(_with(command(retry), [many]))
    cli.command("discard")(
        _with(command(discard), [many, click.option("--yes", is_flag=True, help="Do not ask for confirmation.")])
    )
    cli.command("dlq")(_with(command(dead_letters), [click.option("--limit", default=20, show_default=True)]))
    cli.command("interfaces")(_with(command(interfaces), [click.option("--source-system", help="MSH-3.1.")]))
    cli.command("trace")(_with(command(trace), [click.argument("key")]))


def _with(work: Callable[..., Any], decorators: list[Callable[[Any], Any]]) -> Callable[..., Any]:
    for decorate in reversed(decorators):
        work = decorate(work)
    return work


async def status(api: Api, output: Output) -> bool:
    """Show the health of each component, and what needs attention; exit status 1 unless the service is UP."""
    code, health = await api.reach("/actuator/health")
    if not isinstance(health, dict):
        raise Refused(f"{api.base} answers HTTP {code}, which is not the health of an ipf", "see --url")
    healthy = health.get("status") == "UP"
    if output.data(health):
        return healthy
    rows = [(name, part.get("status"), _detail(part)) for name, part in health.get("components", {}).items()]
    output.table(("part", "status", "detail"), [("ipf", health.get("status"), api.base), *rows])
    for line in await _attention(api):
        output.say(line)
    return healthy


async def _attention(api: Api) -> list[str]:
    """Failed messages, dead letters and subscriptions in error, each with the command to continue with."""
    lines: list[str] = []
    try:
        failed = await api.get("/admin/messages", status="FAILED", permanent="false", limit=1, tenant="*")
        in_vain = await api.get("/admin/messages", status="FAILED", permanent="true", limit=1, tenant="*")
        conflicts = await api.get("/admin/identity-conflicts", status="open", limit=1, tenant="*")
        groups = await api.get("/admin/dead-letters/errors", limit=3, tenant="*")
        subscriptions = await api.get("/admin/subscriptions/health")
    except Refused as refused:
        return [f"\nmessages and subscriptions cannot be queried: {refused}", *([refused.hint] if refused.hint else [])]
    if failed["total"]:
        lines.append(f"{failed['total']} messages wait for their next attempt: messages --status FAILED")
        lines.append(f"  {failed['items'][0]['last_error']}")
    if in_vain["total"]:
        lines.append(
            f"{in_vain['total']} messages cannot succeed as they are: messages --status FAILED --permanent true"
        )
        lines.append(f"  {in_vain['items'][0]['last_error']}")
    if conflicts["total"]:
        lines.append(f"{conflicts['total']} identity conflicts wait for an answer: identity list --status open")
    if groups["total"]:
        lines.append("there are dead letters: dead-letters errors, then dead-letters retry --fingerprint F")
        lines += [f"  {group['count']} x {group['sample']} ({group['fingerprint']})" for group in groups["items"]]
    in_error = [item for item in subscriptions["items"] if item["status"] == "error"]
    if in_error:
        lines.append("subscriptions are in error: subscriptions list")
        lines += [f"  {item['id']} {item.get('endpoint')}: {item['last_error']}" for item in in_error[:3]]
    return ["", *lines] if lines else []


def _detail(part: dict[str, Any]) -> str | None:
    return ", ".join(f"{key} {_plain(value)}" for key, value in part.get("details", {}).items()) or None


def _plain(value: Any) -> Any:
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else value


async def list_messages(api: Api, output: Output, **arguments: Any) -> None:
    """List messages, newest first; filters combine."""
    others = {name: arguments.get(name) for name in ("source_id", "correlation_id", "limit", "offset")}
    page = await api.get("/admin/messages", **filters_in(arguments), **others)
    if output.data(page):
        return
    _page(output, page, _COLUMNS)


async def show(api: Api, output: Output, message_id: int, raw: bool) -> None:
    """Show one message, its payload last."""
    row = await api.get(f"/admin/messages/{message_id}")
    if output.data(row):
        return
    payload = str(row.pop("raw_message", "")).replace("\r\n", "\n").replace("\r", "\n")
    if not raw:
        output.record(row)
        output.say("")
    output.say(payload)


async def retry(api: Api, output: Output, message_ids: tuple[int, ...]) -> bool:
    """Retry FAILED or DEAD_LETTER messages."""
    return await _each(api, output, message_ids, "POST", "/retry", "is converted again")


async def discard(api: Api, output: Output, message_ids: tuple[int, ...], yes: bool) -> bool:
    """Delete DEAD_LETTER messages permanently."""
    if not yes:
        click.confirm(f"Delete {len(message_ids)} message(s) permanently?", abort=True, err=True)
    return await _each(api, output, message_ids, "DELETE", "", "is deleted")


async def _each(api: Api, output: Output, message_ids: tuple[int, ...], method: str, path: str, done: str) -> bool:
    """Send one request per message; a refused one does not stop the others."""
    results: dict[str, Any] = {}
    for number in message_ids:
        try:
            results[str(number)] = await api.call(method, f"/admin/messages/{number}{path}")
            output.say(f"{number} {done}")
        except Refused as refused:
            if refused.status is None:
                raise
            results[str(number)] = {"error": str(refused)}
            output.error(f"{number}: {refused}", refused.hint)
    output.data(results)
    return not any(isinstance(result, dict) and "error" in result for result in results.values())


async def dead_letters(api: Api, output: Output, limit: int) -> None:
    """List the newest dead letters with their errors."""
    page = await api.get("/admin/observe/dlq", limit=limit)
    if output.data(page):
        return
    items = page.get("items", [])
    columns = ("id", "received_at", "source_system", "source_id", "message_type", "last_error")
    output.table(columns, [[item.get(name) for name in columns] for item in items])
    output.say(f"{len(items)} of {page.get('total', len(items))}" if items else "there are none")


async def interfaces(api: Api, output: Output, source_system: str | None) -> bool:
    """List the senders: rate, last message, errors, what waits; exit status 1 if one is silent for too long."""
    found = await api.get("/admin/observe/interfaces", source_system=source_system)
    if not output.data(found):
        output.table(_INTERFACES, [[item.get(name) for name in _INTERFACES] for item in found["items"]])
        output.say(
            f"{found['total']} senders, {found['silent']} of them silent" if found["items"] else "there are none"
        )
    return not found["silent"]


async def trace(api: Api, output: Output, key: str) -> None:
    """Follow a message from receipt to the last delivery; KEY is a message number or a correlation id."""
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
        output.table(shown, [[item.get(column) for column in shown] for item in items], title=f"\n{name}")
    if found.get("truncated"):
        output.say("\nonly the first 1,000 rows of each kind are shown")
    conflicts = found.get("identity_conflicts") or ()
    for item in found.get("messages") or ():
        if item["status"] in ("FAILED", "DEAD_LETTER"):
            if any(one["message_id"] == item["id"] and one["status"] == "open" for one in conflicts):
                output.say(f"\n{item['id']} waits for an answer: identity list --message {item['id']}")
                continue
            what = "retry" if item.get("original_id") is None else "a retry of its conversion"
            output.say(f"\n{item['id']} is {item['status']}: {what} when the cause is resolved, or discard")
    await _show_unread(api, output, found.get("messages") or ())


async def _show_unread(api: Api, output: Output, rows: Sequence[dict[str, Any]]) -> None:
    """The fields of the first delivered message that are not in its resources, by the maps of now."""
    number = next((row["id"] for row in rows if row["status"] == "DELIVERED" and row.get("original_id") is None), None)
    status, traced = (404, {}) if number is None else await api.reach(f"/admin/messages/{number}/trace")
    items = [one for one in traced["unread"] if one["kind"] != "declared"] if status == 200 else []
    if items:
        output.say(f"\nfields of {number} that are not in its resources")
        output.table(_UNREAD, [[item.get(name) for name in _UNREAD] for item in items])


def _page(output: Output, page: dict[str, Any], columns: tuple[str, ...]) -> None:
    items = page["items"]
    output.table(columns, [[item.get(name) for name in columns] for item in items])
    last = page["offset"] + len(items)
    exact = "" if page.get("total_is_exact", True) else "at least "
    if items:
        output.say(f"{page['offset'] + 1} to {last} of {exact}{page['total']}")
    else:
        output.say("there are none" if not page["total"] else f"no more: there are {exact}{page['total']}")
