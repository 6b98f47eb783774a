"""Commands for many messages: replay, bulk retry and discard of dead letters, and their jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from twisted.internet.task import deferLater

from ipf.cli.api import Api, Refused
from ipf.cli.output import Output

Register = Callable[[Callable[..., Any]], Callable[..., None]]

_MOST_DIFFERENCES = 20
ENDED = frozenset(("done", "cancelled", "failed"))
_JOB = ("id", "kind", "status", "total", "done", "changed", "skipped", "created_at", "error")
_FILTERS = (
    ("source-system", "MSH-3.1 of the sender."),
    ("type", "For example ADT_A01."),
    ("status", "State of the messages."),
    ("received-from", "Received at or after this time, ISO 8601."),
    ("received-to", "Received before this time, ISO 8601."),
    ("patient", "Patient identifier, PID-3."),
    ("text", "Words inside the message."),
    ("error", "Text of the last error."),
    ("permanent", "true: errors that no retry mends; false: the other errors."),
    ("tenant", "Tenant of the messages; * for all tenants."),
)
_NAMES = {"type": "message_type"}


def register(cli: click.Group, command: Register) -> None:
    """Put the commands of this module under `cli`."""
    cli.command("replay")(_selecting(command(replay), with_following=True))
    group = click.Group("dead-letters", help="Dead letters by error; retry or discard many at once.")
    cli.add_command(group)
    group.command("errors")(click.option("--limit", default=20, show_default=True)(command(errors)))
    for kind in ("retry", "discard"):
        fingerprint = click.option("--fingerprint", help="A fingerprint from `dead-letters errors`.")
        group.command(kind)(fingerprint(_selecting(command(_bulk(kind)))))
    jobs = click.Group("jobs", help="Progress of replays, bulk retries and discards.")
    cli.add_command(jobs)
    jobs.command("list")(click.option("--limit", default=20, show_default=True)(command(list_jobs)))
    one = click.argument("number", type=int)
    jobs.command("show")(
        one(click.option("--wait", is_flag=True, help="Wait until the job has ended.")(command(show_job)))
    )
    jobs.command("cancel")(one(command(cancel_job)))
    cli.command("effects")(click.argument("message_id", type=int)(command(effects)))


def filter_options(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that filter messages."""
    for name, meaning in reversed(_FILTERS):
        work = click.option(f"--{name}", help=meaning)(work)
    return work


def filters_in(arguments: dict[str, Any]) -> dict[str, str]:
    """The filters among the arguments, by the names of the admin API."""
    chosen = [name.replace("-", "_") for name, _ in _FILTERS]
    wanted = {_NAMES.get(name, name): str(arguments[name]) for name in chosen if arguments.get(name)}
    return wanted | ({"status": wanted["status"].upper()} if "status" in wanted else {})


def _selecting(work: Callable[..., Any], *, with_following: bool = False) -> Callable[..., Any]:
    """Add the options that select messages."""
    if with_following:
        text = "Do not convert later messages of the same patients again."
        work = click.option("--only", is_flag=True, help=text)(work)
    work = click.option("--per-second", type=int, help="Messages per second at most.")(work)
    work = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")(work)
    work = click.option("--wait", is_flag=True, help="Wait until the job has ended.")(work)
    return click.argument("message_ids", type=int, nargs=-1)(filter_options(work))


async def replay(api: Api, output: Output, only: bool, **arguments: Any) -> bool:
    """Convert stored messages again with the present maps, by number or filter; `--dry-run` shows the differences."""
    body = {**_selection(arguments), "following": not only}
    return await _start(api, output, "/admin/messages/replay", body, arguments["wait"])


def _bulk(kind: str) -> Callable[..., Any]:
    async def bulk(api: Api, output: Output, fingerprint: str | None, **arguments: Any) -> bool:
        body = _selection(arguments) | ({"fingerprint": fingerprint} if fingerprint else {})
        return await _start(api, output, f"/admin/dead-letters/{kind}", body, arguments["wait"])

    bulk.__doc__ = f"{kind.capitalize()} many dead letters, by number, filter or fingerprint of their error."
    return bulk


def _selection(arguments: dict[str, Any]) -> dict[str, Any]:
    """The body of the request, which selects the messages."""
    body: dict[str, Any] = {"dry_run": arguments["dry_run"]}
    wanted = filters_in(arguments)
    if wanted:
        body["filter"] = wanted
    if arguments["message_ids"]:
        body["ids"] = list(arguments["message_ids"])
    if arguments.get("per_second"):
        body["per_second"] = arguments["per_second"]
    return body


async def _start(api: Api, output: Output, path: str, body: dict[str, Any], wait: bool) -> bool:
    found = await api.post(path, body)
    if body["dry_run"]:
        if not output.data(found):
            _show_preview(output, found)
        return True
    if wait:
        found = await _ended(api, found)
    if not output.data(found):
        output.record({name: found.get(name) for name in _JOB})
    return bool(found["status"] != "failed")


def _show_preview(output: Output, found: dict[str, Any]) -> None:
    output.say(f"{found['total']} messages; nothing was changed")
    for item in found.get("items", ()):
        output.say(f"\nmessage {item['message_id']}: {item.get('error') or item.get('map_url') or 'passed through'}")
        resources = item.get("resources") or ()
        columns = ("outcome", "resource_type", "id")
        output.table(columns, [[row.get(name) for name in columns] for row in resources])
        for row in resources:
            _show_differences(output, row)


def _show_differences(output: Output, row: dict[str, Any]) -> None:
    """The differences of a resource, one element per line; `--json` shows all of them."""
    differences = row.get("differences") or ()
    if differences:
        output.say(f"\n{row['resource_type']}/{row['id']}")
        shown = [(one["path"], one.get("stored"), one.get("replayed")) for one in differences[:_MOST_DIFFERENCES]]
        output.table(("element", "stored", "replayed"), shown)
    if row.get("retained") and differences:
        output.say(f"kept, since the message leaves it out: {', '.join(row['retained'])}")
    if row.get("left_out"):
        output.say(f"ends, since {row['left_out']} of the message no longer has it")
    if len(differences) > _MOST_DIFFERENCES:
        output.say(f"and {len(differences) - _MOST_DIFFERENCES} more: --json shows all")


async def _ended(api: Api, job: dict[str, Any]) -> dict[str, Any]:
    while job["status"] not in ENDED:
        await deferLater(api.reactor, 0.5)
        job = await api.get(f"/admin/jobs/{job['id']}")
    return job


async def errors(api: Api, output: Output, limit: int) -> None:
    """List dead letters grouped by error, the largest group first."""
    found = await api.get("/admin/dead-letters/errors", limit=limit)
    if not output.data(found):
        columns = ("fingerprint", "count", "newest_id", "last_received_at", "sample")
        output.table(columns, [[item.get(name) for name in columns] for item in found["items"]])
        output.say(f"{len(found['items'])} of {found['total']}" if found["items"] else "there are no dead letters")


async def list_jobs(api: Api, output: Output, limit: int) -> None:
    """List jobs, newest first."""
    found = await api.get("/admin/jobs", limit=limit)
    if not output.data(found):
        output.table(_JOB, [[item.get(name) for name in _JOB] for item in found["items"]])
        output.say(f"{len(found['items'])} of {found['total']}" if found["items"] else "there are none")


async def show_job(api: Api, output: Output, number: int, wait: bool) -> bool:
    """Show the progress of a job; exit status 1 when it failed."""
    found = await api.get(f"/admin/jobs/{number}")
    if wait:
        found = await _ended(api, found)
    if not output.data(found):
        output.record(found)
    return bool(found["status"] != "failed")


async def cancel_job(api: Api, output: Output, number: int) -> None:
    """Cancel a job; what it has done is not undone."""
    found = await api.post(f"/admin/jobs/{number}/cancel")
    if not output.data(found):
        output.record({name: found.get(name) for name in _JOB})


async def effects(api: Api, output: Output, message_id: int) -> bool:
    """Show the effects of a message: resources, subscriptions, notifications; exit status 1 when one failed."""
    found = await api.get(f"/admin/messages/{message_id}/effects")
    if found.get("effects_status") is None:
        raise Refused("the service did not report the effects of this message")
    if not output.data(found):
        output.record({"effects_status": found["effects_status"], "transform": found.get("transform")})
        for name in ("fhir_resources_created", "subscriptions_matched", "notifications_fired"):
            items = found.get(name) or []
            if items:
                columns = list(items[0])
                output.table(columns, [[item.get(column) for column in columns] for item in items], title=f"\n{name}")
    return bool(found["effects_status"] != "failed")
