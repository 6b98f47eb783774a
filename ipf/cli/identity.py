"""Commands for identity conflicts: list, show with the candidates, answer, and the answers that apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ipf.cli.api import Api, Refused
from ipf.cli.output import Output

Register = Callable[[Callable[..., Any]], Callable[..., None]]

_LISTED = (
    "id", "detected_at", "status", "resource_type", "kind", "candidates", "message_id", "message_status",
    "source_system", "answer", "target",
)  # fmt: skip
_CANDIDATE = ("reference", "exists", "active", "names", "birth_date", "gender", "identifiers", "subject", "replaced_by")
_ANSWERS = ("id", "answered_at", "resource_type", "key", "answer", "target", "answered_by", "reason", "tenant")


def register(cli: click.Group, command: Register) -> None:
    """Put the commands of this module under `cli`."""
    group = click.Group("identity", help="Ambiguous or conflicting matches, and the answers of operators.")
    cli.add_command(group)
    page = [
        click.option("--tenant", help="Tenant of the messages; * for all tenants."),
        click.option("--limit", default=50, show_default=True),
        click.option("--offset", default=0, show_default=True),
    ]
    filters = [
        click.option("--status", type=click.Choice(("open", "answered", "closed")), help="Default: all."),
        click.option("--source-system", help="MSH-3.1 of the sender."),
        click.option("--resource-type", help="For example Patient."),
        click.option("--message", "message_id", type=int, help="Number of the message."),
        *page,
    ]
    number = click.argument("number", type=int)
    answers = [
        number,
        click.option("--merge", metavar="TARGET", help="They are one person: merge the candidates into this one."),
        click.option("--take", metavar="TARGET", help="This candidate is meant; the others stay as they are."),
        click.option("--apart", is_flag=True, help="None of them is meant: create a new one."),
        click.option("--reason", help="Why, for those who read it later."),
    ]
    group.command("list")(_with(command(list_conflicts), filters))
    group.command("show")(_with(command(show), [number]))
    group.command("answer")(_with(command(answer), answers))
    group.command("answers")(_with(command(list_answers), page))
    group.command("revoke")(_with(command(revoke), [number, click.option("--tenant", help="Tenant of the answer.")]))


def _with(work: Callable[..., Any], decorators: list[Callable[[Any], Any]]) -> Callable[..., Any]:
    for decorate in reversed(decorators):
        work = decorate(work)
    return work


async def list_conflicts(api: Api, output: Output, **filters: Any) -> bool:
    """List identity conflicts, newest first; exit status 1 when one of them is open."""
    page = await api.get("/admin/identity-conflicts", **filters)
    if not output.data(page):
        _table(output, page, _LISTED)
    return all(item["status"] != "open" for item in page["items"])


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
    output.table(columns, [[one[name] for name in columns] for one in shown], title="\ncandidates")
    output.say(f"\n{advice}")
    if item["status"] == "open":
        output.say(f"identity answer {number} --take|--merge {' | '.join(item['candidates'])}, or --apart")


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
    output.say(f"{number}: {done['answer']} {done['target']}")
    output.say(f"{done['retried']} messages are retried, {done['converted_again']} later ones converted again")


async def list_answers(api: Api, output: Output, **filters: Any) -> None:
    """List the answers that apply to later messages, newest first."""
    page = await api.get("/admin/identity-answers", **filters)
    if not output.data(page):
        _table(output, page, _ANSWERS)


async def revoke(api: Api, output: Output, number: int, tenant: str | None) -> None:
    """Take an answer back: later messages with its identifier conflict again.  What was written stays."""
    output.data(await api.call("DELETE", f"/admin/identity-answers/{number}", {"tenant": tenant}))
    output.say(f"{number} is revoked")


def _identifiers(identifiers: list[dict[str, Any]]) -> str:
    return ", ".join("|".join(str(one[name] or "") for name in ("system", "type", "value")) for one in identifiers)


def _table(output: Output, page: dict[str, Any], columns: tuple[str, ...]) -> None:
    items = [{**item, "candidates": ", ".join(item.get("candidates", ()))} for item in page["items"]]
    output.table(columns, [[item.get(name) for name in columns] for item in items])
    last = page["offset"] + len(items)
    output.say(f"{page['offset'] + 1} to {last} of {page['total']}" if items else "there are none")
