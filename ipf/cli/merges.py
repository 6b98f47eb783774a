"""Commands for merges of Patients: merge two records of one person, and undo it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ipf.cli.api import Api
from ipf.cli.output import Output
from ipf.fhir.model.json import dumps

Register = Callable[[Callable[..., Any]], Callable[..., None]]


def register(cli: click.Group, command: Register) -> None:
    """Put the commands of this module under `cli`."""
    patients = [click.argument("source"), click.argument("target")]
    more = [
        click.option("--reason", help="Why, for those who read it later."),
        click.option("--tenant", help="Tenant of the Patients."),
    ]
    preview = click.option("--preview", is_flag=True, help="Only tell what would be moved.")
    cli.command("merge")(_with(command(merge), [*patients, *more, preview]))
    cli.command("unmerge")(_with(command(unmerge), [*patients, *more]))


def _with(work: Callable[..., Any], decorators: list[Callable[[Any], Any]]) -> Callable[..., Any]:
    for decorate in reversed(decorators):
        work = decorate(work)
    return work


async def merge(
    api: Api, output: Output, source: str, target: str, reason: str | None, tenant: str | None, preview: bool
) -> None:
    """Merge the Patient SOURCE into the Patient TARGET, which survives: Patient/b2 Patient/a1."""
    body = {"source": source, "target": target, **_given(reason=reason), **({"preview": True} if preview else {})}
    done = await api.call("POST", "/admin/patient-merges", {"tenant": tenant}, dumps(body))
    if not output.data(done):
        would = "would refer" if preview else "now refer"
        output.say(f"{_moved(done)} {would} to {done['target']} instead of {done['source']}")


async def unmerge(api: Api, output: Output, source: str, target: str, reason: str | None, tenant: str | None) -> None:
    """Undo the merge of the Patient SOURCE into the Patient TARGET."""
    body = {"source": source, "target": target, **_given(reason=reason)}
    done = await api.call("POST", "/admin/patient-merges/undo", {"tenant": tenant}, dumps(body))
    if not output.data(done):
        output.say(f"{_moved(done)} refer to {done['source']} again instead of {done['target']}")


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def _moved(done: dict[str, Any]) -> str:
    """`12 resources (Encounter 2, Observation 10)`."""
    by_type = ", ".join(f"{name} {count}" for name, count in done["moved"].items())
    return f"{sum(done['moved'].values())} resources{f' ({by_type})' if by_type else ''}"
