"""Messages as units of a store: mapped with the maps of the project, stored as the convert stage does."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from ipf.fhir.model.json import loads
from ipf.mapping.language.identity_table import IdentityTable
from ipf.mapping.library.maps import Library
from ipf.ports import DEFAULT_TENANT, Json
from ipf.ports.identity import AnswerKind, IdentityAnswer, IdentityConflict
from ipf.rest.interactions.bundle_entries import entries_of
from ipf.rest.write.unit import Unit
from tests.corpus import samples
from tests.rest.world import CORRELATION_ID, World

_receipts = count()
HEAD = "MSH|^~\\&|APP|HOSP7|||20260101||{}|{}|P|2.5.1\n"


def unit_of(text: str, library: Library | None = None) -> Unit:
    """The unit of a message."""
    made = (library or samples.library()).run(samples.parse(text)).made
    entries = entries_of(made.bundle) if made.entries is None else made.entries
    receipt = f"message/{next(_receipts)}"
    return Unit(DEFAULT_TENANT, entries, CORRELATION_ID, receipt, references=made.references)


def with_table(table: IdentityTable) -> Library:
    """The maps of the project with another identity table."""
    known = samples.library()
    return Library(known.maps, known._types, known.environment.__class__(
        known.environment.models, known.environment.tables, known.environment.offset, known.environment.host, table
    ), compiled=False)  # fmt: skip


def message(event: str, *segments: str) -> str:
    """A message with a control ID of its own."""
    return HEAD.format(event, next(_receipts)) + "\n".join(segments) + "\n"


def adt(numbers: str, family: str = "Muster", born: str = "", event: str = "ADT^A08", **fields: str) -> str:
    """An ADT message about a patient: PID-3, name, birth date; `second`, `fourth` and `ssn`: PID-2, PID-4, PID-19."""
    second, fourth, ssn = fields.get("second", ""), fields.get("fourth", ""), fields.get("ssn", "")
    pid = f"PID||{second}|{numbers}|{fourth}|{family}^Ada||{born}||||||||||||{ssn}"
    return message(event, "EVN||20260101", pid, *fields.get("more", "").split("\n"))


async def store(world: World, *texts: str, library: Library | None = None) -> list[Any]:
    """Store messages one after the other; the result or Problem of each."""
    results = []
    for text in texts:
        world.pass_time()
        results += await world.commit(unit_of(text, library))
    return results


def kinds(results: Iterable[Any]) -> list[str]:
    """`ok` for a stored message, the kind of its conflict, or the text of its Problem."""
    found = []
    for one in results:
        if isinstance(one, IdentityConflict):
            found.append(str(one.finding.kind))
        else:
            found.append(str(one) if isinstance(one, Exception) else "ok")
    return found


async def resources(world: World, search: str) -> list[Json]:
    """The stored resources that a search finds, oldest first."""
    answer = await world.send("GET", search)
    found = loads(answer.body).get("entry", ())
    every = [one["resource"] for one in found if one["search"]["mode"] == "match"]
    return sorted(every, key=lambda one: (one["meta"]["lastUpdated"], one["id"]))


async def patients(world: World) -> list[tuple[str, str]]:
    """Family and numbers (`200 PI secondary`) of each stored Patient, sorted."""
    return sorted((one["name"][0]["family"], numbers(one)) for one in await resources(world, "Patient"))


def numbers(resource: Json) -> str:
    """The identifiers of a resource: value, type and use."""
    texts = []
    for one in resource.get("identifier", ()):
        codes = [coding["code"] for coding in one.get("type", {}).get("coding", ())]
        texts.append(" ".join([one["value"], *codes, *([one["use"]] if "use" in one else [])]))
    return ", ".join(sorted(texts))


async def answer(
    world: World, answers: Any, conflict: IdentityConflict, resource_id: str, kind: AnswerKind = AnswerKind.TAKE
) -> None:
    """Record what an operator decides about a conflict.  Later messages are stored after it."""
    finding = conflict.finding
    world.pass_time()
    await answers.record(IdentityAnswer(finding.resource_type, finding.keys[0].text, resource_id, kind, "operator"))
    world.pass_time(7200)
