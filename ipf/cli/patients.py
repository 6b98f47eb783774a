"""`ipfctl patients`: merge two records of one person, undo it, erase a patient."""

from __future__ import annotations

from typing import Any

import click

from ipf.cli.api import Api
from ipf.cli.options import tenant
from ipf.cli.output import Output
from ipf.cli.running import action, options
from ipf.cli.words import counted
from ipf.fhir.model.json import dumps

_pair = options(
    click.argument("source"),
    click.argument("target"),
    click.option("--reason", help="Why, for those who read it later."),
    tenant("Tenant of the Patients."),
)


@click.group("patients")
def patients() -> None:
    """Patients: merge, unmerge, forget (erase)."""


@patients.command("merge")
@_pair
@click.option("--preview", is_flag=True, help="Only show what would be moved.")
@action
async def merge(
    api: Api, output: Output, source: str, target: str, reason: str | None, tenant: str | None, preview: bool
) -> None:
    """Merge the Patient SOURCE into the Patient TARGET, which survives.

    Such as: Patient/b2 Patient/a1.
    """
    body = {"source": source, "target": target, **_given(reason=reason), **({"preview": True} if preview else {})}
    done = await api.call("POST", "/admin/patient-merges", {"tenant": tenant}, dumps(body))
    if not output.data(done):
        verb = "would refer" if preview else "now refers" if _total(done) == 1 else "now refer"
        output.say(f"{_moved(done)} {verb} to {done['target']} instead of {done['source']}")


@patients.command("unmerge")
@_pair
@action
async def unmerge(api: Api, output: Output, source: str, target: str, reason: str | None, tenant: str | None) -> None:
    """Undo the merge of the Patient SOURCE into the Patient TARGET."""
    body = {"source": source, "target": target, **_given(reason=reason)}
    done = await api.call("POST", "/admin/patient-merges/undo", {"tenant": tenant}, dumps(body))
    if not output.data(done):
        verb = "refers" if _total(done) == 1 else "refer"
        output.say(f"{_moved(done)} {verb} to {done['source']} again instead of {done['target']}")


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def _total(done: dict[str, Any]) -> int:
    return sum(done["moved"].values())


def _moved(done: dict[str, Any]) -> str:
    """`12 resources (Encounter 2, Observation 10)`."""
    by_type = ", ".join(f"{name} {count}" for name, count in done["moved"].items())
    return f"{counted(_total(done), 'resource')}{f' ({by_type})' if by_type else ''}"


@patients.command("forget")
@click.argument("patient")
@tenant("Tenant of the Patient.")
@click.option("--reason", help="Why; it stays in the receipt, so without a name.")
@click.option("--redact", multiple=True, help="Resource that stays without its references to him; * = all.")
@click.option("--remove", multiple=True, help="Resource that also concerns others, to be removed; * = all.")
@click.option("--shared-messages", type=click.Choice(["remove"]), help="Messages about others, too.")
@click.option("--uncertain-messages", type=click.Choice(["keep", "remove"]), help="Only the number fits.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@action
async def forget(
    api: Api, output: Output, patient: str, tenant: str | None, reason: str | None, redact: tuple[str, ...],
    remove: tuple[str, ...], shared_messages: str | None, uncertain_messages: str | None, yes: bool,
) -> bool:  # fmt: skip
    """Erase PATIENT (Patient/x).

    Shows what it removes, asks, removes, prints the receipt.  Without --reason only the dry run.  Give a long
    --timeout.
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
