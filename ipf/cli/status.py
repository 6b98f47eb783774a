"""`ipfctl status`: the health of the service, and what needs attention."""

from __future__ import annotations

from typing import Any

import click

from ipf.cli.api import Api, Refused
from ipf.cli.output import Output
from ipf.cli.running import query
from ipf.cli.words import counted


@click.command("status")
@query
async def status(api: Api, output: Output) -> bool:
    """Show the health, and what needs attention.

    Exit status 1 unless the service is UP.
    """
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
        verb = "waits" if failed["total"] == 1 else "wait"
        lines.append(f"{counted(failed['total'], 'message')} {verb} for another attempt: messages list --status FAILED")
        lines.append(f"  {failed['items'][0]['last_error']}")
    if in_vain["total"]:
        found = counted(in_vain["total"], "message")
        lines.append(f"{found} cannot succeed without a change: messages list --status FAILED --permanent true")
        lines.append(f"  {in_vain['items'][0]['last_error']}")
    if conflicts["total"]:
        verb = "needs" if conflicts["total"] == 1 else "need"
        found = counted(conflicts["total"], "identity conflict")
        lines.append(f"{found} {verb} a decision: identity list --status open")
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
