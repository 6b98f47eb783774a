"""The commands for erasures: forget a patient (dry run, question, removal, receipt), and list the receipts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ipf.cli.api import Api
from ipf.cli.output import Output
from ipf.fhir.model.json import dumps

Register = Callable[[Callable[..., Any]], Callable[..., None]]


def register(cli: click.Group, command: Register) -> None:
    """Put the command of this module under `cli`."""
    decorated = command(forget)
    for decorate in reversed(
        (
            click.argument("patient"),
            click.option("--tenant", help="Tenant of the Patient."),
            click.option("--reason", help="Why; it stays in the receipt, so without a name."),
            click.option("--redact", multiple=True, help="Resource that stays without its references to him; * = all."),
            click.option("--remove", multiple=True, help="Resource that also concerns others, to be removed; * = all."),
            click.option("--shared-messages", type=click.Choice(["remove"]), help="Messages about others, too."),
            click.option("--uncertain-messages", type=click.Choice(["keep", "remove"]), help="Only the number fits."),
            click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        )
    ):
        decorated = decorate(decorated)
    cli.command("forget")(decorated)
    listed = click.option("--limit", default=20, show_default=True)(command(erasures))
    cli.command("erasures")(click.option("--tenant", help="One tenant.")(listed))


async def forget(
    api: Api, output: Output, patient: str, tenant: str | None, reason: str | None, redact: tuple[str, ...],
    remove: tuple[str, ...], shared_messages: str | None, uncertain_messages: str | None, yes: bool,
) -> bool:  # fmt: skip
    """Erase PATIENT (Patient/x): show what it removes, ask, remove, print the receipt.

    Without --reason only the dry run.
    """
    path = f"/admin/patients/{patient.removeprefix('Patient/')}/forget"
    chosen = {"redact": redact, "remove": remove, "shared_messages": shared_messages,
              "uncertain_messages": uncertain_messages}  # fmt: skip
    body: dict[str, Any] = {name: value for name, value in chosen.items() if value}
    shown = await api.call("POST", path, {"tenant": tenant}, dumps(body))
    obstacles = {name: found for name, found in shown["in_the_way"].items() if found and not chosen.get(name)}
    if not reason or obstacles:
        if not output.data(shown):
            _show(output, shown, obstacles)
        return not obstacles
    if not yes:
        _show(output, shown, obstacles)
        click.confirm(f"Erase {', '.join(shown['patients'])} permanently?", abort=True, err=True)
    body |= {"dry_run": False, "reason": reason, "confirm": shown["confirm"]}
    done = await api.call("POST", path, {"tenant": tenant}, dumps(body))
    if not output.data(done):
        output.say(f"{shown['patient']} is erased; the receipt:")
        output.record(done["receipt"])
    return True


async def erasures(api: Api, output: Output, tenant: str | None, limit: int) -> bool:
    """List the receipts of erasures, newest first.  Exit status 1 when one was not finished."""
    found = await api.get("/admin/erasures", tenant=tenant, limit=limit)
    if not output.data(found):
        rows = [[one["id"], one["at"], one["actor"], one["finished"], one["reason"]] for one in found["items"]]
        output.table(("id", "at", "actor", "finished", "reason"), rows, f"{found['total']} erasures")
    return all(one["finished"] for one in found["items"])


def _show(output: Output, shown: dict[str, Any], obstacles: dict[str, Any]) -> None:
    output.say(f"{', '.join(shown['patients'])}: an erasure removes")
    for name, count in shown["counts"].items():
        places = shown["places"].get(name.partition(".")[0], ()) if count else ()
        output.say(f"  {name} {count}" + (f"  ({', '.join(places)})" if places else ""))
    output.say("and keeps")
    for name, why in shown["kept"].items():
        output.say(f"  {name}: {why}")
    for name, found in obstacles.items():
        output.say(f"in the way: {name} {', '.join(map(str, found))}")
