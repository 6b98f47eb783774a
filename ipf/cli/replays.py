"""Jobs as commands start them: a preview of what would change, or the job, until its end if that is asked for."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import deferLater

from ipf.cli.api import Api
from ipf.cli.output import Output
from ipf.cli.words import counted

ENDED = frozenset(("done", "cancelled", "failed"))
JOB = ("id", "kind", "status", "total", "done", "changed", "skipped", "created_at", "error")
_MOST_DIFFERENCES = 20


async def start(api: Api, output: Output, path: str, body: dict[str, Any], wait: bool) -> bool:
    """Start a job, or show what it would do; False when it failed."""
    found = await api.post(path, body)
    if body["dry_run"]:
        if not output.data(found):
            _show_preview(output, found)
        return True
    if wait:
        found = await ended(api, output, found)
    if not output.data(found):
        output.record({name: found.get(name) for name in JOB})
        if found["status"] not in ENDED:
            output.say(f"`ipfctl jobs show {found['id']} --wait` follows it to its end")
    return bool(found["status"] != "failed")


async def ended(api: Api, output: Output, job: dict[str, Any]) -> dict[str, Any]:
    """The job when it has ended; a bar shows how far it is."""
    with output.waiting.bar(f"job {job['id']}", job.get("total") or None) as update:
        while job["status"] not in ENDED:
            await deferLater(api.reactor, 0.5)
            job = await api.get(f"/admin/jobs/{job['id']}")
            update(job.get("done") or 0)
    return job


def _show_preview(output: Output, found: dict[str, Any]) -> None:
    output.say(f"{counted(found['total'], 'message')}; nothing was changed")
    for item in found.get("items", ()):
        output.say(f"\nmessage {item['message_id']}: {item.get('error') or item.get('map_url') or 'passed through'}")
        resources = item.get("resources") or ()
        columns = ("outcome", "resource_type", "id")
        title = "" if output.is_table else f"message {item['message_id']}"
        output.table(columns, [[row.get(name) for name in columns] for row in resources], title)
        for row in resources:
            _show_differences(output, row)


def _show_differences(output: Output, row: dict[str, Any]) -> None:
    """The differences of a resource, one element per line; `--json` shows all of them."""
    differences = row.get("differences") or ()
    if differences:
        shown = [(one["path"], one.get("stored"), one.get("replayed")) for one in differences[:_MOST_DIFFERENCES]]
        output.table(("element", "stored", "replayed"), shown, f"{row['resource_type']}/{row['id']}")
    if row.get("retained") and differences:
        output.say(f"kept, since the message leaves it out: {', '.join(row['retained'])}")
    if row.get("left_out"):
        output.say(f"ends, since {row['left_out']} of the message no longer has it")
    if len(differences) > _MOST_DIFFERENCES:
        output.say(f"and {len(differences) - _MOST_DIFFERENCES} more: -o json shows all")
