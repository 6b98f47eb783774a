"""`ipfctl identity`: conflicts of who is meant, their candidates, answers, and the answers that apply."""

from __future__ import annotations

from typing import Any

import click

from ipf.cli.api import Api, Refused
from ipf.cli.options import number, tenant, window
from ipf.cli.output import Output
from ipf.cli.running import action, query
from ipf.cli.words import counted

_LISTED = (
    "id", "detected_at", "status", "resource_type", "kind", "candidates", "message_id", "message_status",
    "source_system", "answer", "target",
)  # fmt: skip
_CANDIDATE = ("reference", "exists", "active", "names", "birth_date", "gender", "identifiers", "subject", "replaced_by")
_ANSWERS = ("id", "answered_at", "resource_type", "key", "answer", "target", "answered_by", "reason", "tenant")


@click.group("identity")
def identity() -> None:
    """Identity conflicts: list, show, answer, answers that apply."""


@identity.command("list")
@click.option("--status", type=click.Choice(("open", "answered", "closed")), help="Default: all.")
@click.option("--source-system", help="MSH-3.1 of the sender.")
@click.option("--resource-type", help="Such as Patient.")
@click.option("--message", "message_id", type=int, help="Number of the message.")
@tenant("Tenant of the messages; * for all tenants.")
@window(50)
@query
async def list_conflicts(api: Api, output: Output, **filters: Any) -> bool:
    """List identity conflicts, newest first.

    Exit status 1 when one of them is open.
    """
    page = await api.get("/admin/identity-conflicts", **filters)
    if not output.data(page):
        items = [{**item, "candidates": ", ".join(item.get("candidates", ()))} for item in page["items"]]
        output.page({**page, "items": items}, _LISTED, "identity conflict")
    return all(item["status"] != "open" for item in page["items"])


@identity.command("show")
@number("number")
@query
async def show(api: Api, output: Output, number: int) -> None:
    """Show one conflict, its candidates, and what to do."""
    item = await api.get(f"/admin/identity-conflicts/{number}")
    if output.data(item):
        return
    resources, advice = item.pop("candidate_resources"), item.pop("what_to_do")
    output.record({**item, "keys": _identifiers(item["keys"]), "candidates": ", ".join(item["candidates"])})
    shown = [
        {**one, "names": ", ".join(one["names"]), "identifiers": _identifiers(one["identifiers"])} for one in resources
    ]
    columns = [name for name in _CANDIDATE if any(one[name] not in (None, "") for one in shown)]
    if columns:
        output.table(columns, [[one[name] for name in columns] for one in shown], "candidates")
    output.say(f"\n{advice}")
    if item["status"] == "open":
        output.say(f"identity answer {number} --take|--merge {' | '.join(item['candidates'])}, or --apart")


@identity.command("answer")
@number("number")
@click.option("--merge", metavar="TARGET", help="One person: merge the candidates into this one.")
@click.option("--take", metavar="TARGET", help="This candidate is meant; the others stay as they are.")
@click.option("--apart", is_flag=True, help="None of them is meant: create a new one.")
@click.option("--reason", help="Why, for those who read it later.")
@action
async def answer(
    api: Api, output: Output, number: int, merge: str | None, take: str | None, apart: bool, reason: str | None
) -> None:
    """Decide a conflict: its messages are converted again, in order."""
    given: list[tuple[str, str | None]] = [
        (kind, target) for kind, target in (("merge", merge), ("take", take)) if target is not None
    ]
    given += [("apart", None)] if apart else []
    if len(given) != 1:
        raise Refused("name exactly one of --merge TARGET, --take TARGET, --apart")
    ((kind, target),) = given
    body = {name: value for name, value in (("answer", kind), ("target", target), ("reason", reason)) if value}
    done = await api.post(f"/admin/identity-conflicts/{number}/answer", body)
    if output.data(done):
        return
    output.say(f"{number}: {done['answer']} {done['target'] or ''}".rstrip())
    retried = counted(done["retried"], "message")
    output.say(f"retried: {retried}; converted again: {counted(done['converted_again'], 'later message')}")


@identity.command("answers")
@tenant("Tenant of the messages; * for all tenants.")
@window(50)
@query
async def list_answers(api: Api, output: Output, **filters: Any) -> None:
    """List the answers that apply to later messages, newest first."""
    page = await api.get("/admin/identity-answers", **filters)
    if not output.data(page):
        output.page(page, _ANSWERS, "answer")


@identity.command("revoke")
@number("number")
@tenant("Tenant of the answer.")
@action
async def revoke(api: Api, output: Output, number: int, tenant: str | None) -> None:
    """Take an answer back.

    Later messages with its identifier conflict again.  What was written stays.
    """
    output.data(await api.call("DELETE", f"/admin/identity-answers/{number}", {"tenant": tenant}))
    output.say(f"{number} is revoked")


def _identifiers(identifiers: list[dict[str, Any]]) -> str:
    return ", ".join("|".join(str(one[name] or "") for name in ("system", "type", "value")) for one in identifiers)
