"""Damaged messages: each segment of a sample removed, doubled and broken by itself, and what must hold of the outcome.

A message ends DELIVERED only when something about its subject was stored, or an operator decided otherwise
(IPF_WITHOUT_PATIENT_TYPES); and no resource is of another patient than the one whose PID stands before its segment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from random import Random
from typing import Any

from twisted.internet.defer import ensureDeferred

from ipf.config.paths import folder
from ipf.fhir.model.json import loads
from ipf.hl7.header import read_header
from ipf.mapping.library.maps import Library
from ipf.pipeline.convert.convert import Converter
from ipf.pipeline.convert.structure import StructureCheck
from ipf.ports import Backoff, Claimed, Json, Mapped, Status
from ipf.rest.identity.decisions import patient_id, subject_references
from ipf.rest.write.commit import commit
from ipf.rest.write.unit import Unit, UnitResult
from ipf.subscriptions.matching import MatchingIndex
from tests.corpus import samples
from tests.fakes import MemoryFhirStore
from tests.pipeline.convert.test_convert import RecordingMetrics, ScriptedInbox

NOW = datetime(2026, 3, 1, tzinfo=UTC)
OTHER = "PID|1||OTHER77^^^ELSEWHERE^MR||Other^Person||19310203|F"
"""A person of no sample."""
DECIDED = frozenset(("s23_blocked_time", "orm_no_patient", "oru_two_patients"))
"""Samples without a patient, of types that IPF_WITHOUT_PATIENT_TYPES has to name."""
_WITHOUT_PID = frozenset(("ADT_A20", "MFN_M02", "MFN_M05"))
_OF_NOBODY = {
    "ADT_A20": "Location", "MFN_M02": "Practitioner", "MFN_M05": "Location", "SIU_S23": "Slot",
    "ORM_O01": "ServiceRequest", "ORU_R01": "DiagnosticReport",
}  # fmt: skip
"""What messages without a patient are about."""
_SHARED = frozenset(
    ("MessageHeader", "Provenance", "Organization", "Practitioner", "PractitionerRole", "Location", "Device",
     "HealthcareService", "Endpoint", "Medication")
)  # fmt: skip
_OF_EVENTS = frozenset(
    ("ORU", "OUL", "ORM", "OMG", "OML", "OMP", "RDE", "RDS", "RGV", "RAS", "MDM", "SIU", "DFT", "PPR", "REF")
)
"""Messages that bring more than a person and a visit."""
_OF_PERSONS = _SHARED | {"Patient", "Encounter", "Coverage", "RelatedPerson", "Account", "CareTeam"}
_DERIVED = "urn:ipf:derived"


@dataclass(frozen=True, slots=True)
class Case:
    """A damaged message: of which sample, what was done to which line."""

    sample: str
    damage: str
    number: int
    lines: tuple[str, ...]

    @property
    def name(self) -> str:
        """For a report."""
        return f"{self.sample}, line {self.number + 1}: {self.damage}"

    @property
    def raw(self) -> bytes:
        """The message as it is sent."""
        return "\r".join((*self.lines, "")).encode()


def lines_of(sample: str) -> list[str]:
    """The segments of a sample."""
    text = (samples.HERE / f"{sample}.hl7").read_text(encoding="utf-8")
    return [line for line in text.split("\n") if line]


def cases(sample: str) -> Iterator[Case]:
    """Every damage of every line of a sample but MSH."""
    lines = lines_of(sample)
    for number in range(1, len(lines)):
        for damage, made in _damages(lines[number]):
            yield Case(sample, damage, number, (*lines[:number], *made, *lines[number + 1 :]))
        yield Case(sample, "cut off before it", number, tuple(lines[:number]))
        name = lines[number].partition("|")[0]
        if all(line.partition("|")[0] != name for line in lines[:number]):
            yield Case(sample, "none of its name", number, tuple(one for one in lines if not one.startswith(name)))
            bare = (_emptied(one) if one.startswith(name) else one for one in lines)
            yield Case(sample, "all of its name emptied", number, tuple(bare))
            only = (one for one in lines if one[:3] in ("MSH", "PID", name))
            yield Case(sample, "only it and PID", number, tuple(only))
            others = (one if one[:3] in ("MSH", "PID", name) else _emptied(one) for one in lines)
            yield Case(sample, "all but it and PID emptied", number, tuple(others))


def chosen(sample: str, seed: int) -> Iterator[Case]:
    """Each damage of a sample once, on a line that the seed chooses, and all of PID, MRG and PV1."""
    by_damage: dict[str, list[Case]] = {}
    for case in cases(sample):
        by_damage.setdefault(case.damage, []).append(case)
        if lines_of(sample)[case.number][:3] in ("PID", "MRG", "PV1"):
            yield case
    random = Random(f"{seed} {sample}")
    yield from (random.choice(held) for held in by_damage.values())


def _damages(line: str) -> Iterator[tuple[str, Sequence[str]]]:
    name, half = line[:3], len(line) // 2
    yield "removed", ()
    yield "doubled", (line, line)
    yield "another person before it", (OTHER, line)
    yield "another person after it", (line, OTHER)
    yield "in lower case", (name.lower() + line[3:],)
    yield "a blank before it", (" " + line,)
    yield "cut in half", (line[:half], line[half:])
    yield "emptied", (_emptied(line),)
    yield "without fields", (name,)
    yield "of nulls", (name + '|""' * line.count("|"),)


def _emptied(line: str) -> str:
    return line.partition("|")[0] + "|" * line.count("|")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a message: its status, the error of one that failed, and the resources that were stored."""

    status: Status
    error: str
    stored: dict[str, Json]


@lru_cache(maxsize=1)
def strict() -> Library:
    """The maps of the project; nobody has decided that a message may be without a patient."""
    return Library.load(folder("maps"), compiled=False)


def all_faults(damaged: Iterable[Case]) -> list[str]:
    """Each fault of each case."""
    found: list[str] = []

    async def run() -> None:
        for case in damaged:
            library = samples.library() if case.sample in DECIDED else strict()
            outcome = await convert(case.raw, library)
            found.extend(f"{case.name}: {one}" for one in faults(case, outcome))

    errors: list[Any] = []
    ensureDeferred(run()).addErrback(errors.append)
    for error in errors:
        error.raiseException()
    return found


async def convert(raw: bytes, library: Library) -> Outcome:
    """One message through the convert stage to an empty FHIR store in memory."""
    header = read_header(raw)
    claim = Claimed(
        1, 1, "00000000-0000-7000-8000-000000000001", NOW, header.source_system, header.source_id,
        header.message_type, raw, header.codec, 0,
    )  # fmt: skip
    inbox, metrics, store = ScriptedInbox([claim]), RecordingMetrics(), MemoryFhirStore()
    matcher = MatchingIndex()

    async def submit(units: Sequence[Unit]) -> Sequence[UnitResult | Any]:
        return await commit(units, store, matcher, lambda: NOW)

    async def nothing() -> None: ...

    class _Mapper:
        async def transform(self, message: Claimed) -> Mapped:
            return library.transform(message)

    class _Findings:
        def invalid(self, outcome: str) -> None: ...

    converter = Converter(
        inbox, _Mapper(), submit, worker="w", backoff=Backoff(1, 1.0, 1, 1), passthrough_types=(),  # type: ignore[arg-type]
        clock=lambda: NOW, notifier=metrics, metrics=metrics, pause=nothing, wait=nothing,  # type: ignore[arg-type]
        validate=StructureCheck(None, _Findings(), None),  # type: ignore[arg-type]
    )  # fmt: skip
    await converter.step()
    (end,) = inbox.settled
    stored = {f"{kind}/{id}": loads(held[-1].body) for (_, kind, id), held in store.versions.items()}
    return Outcome(end.status, end.error or "", stored)


def faults(case: Case, outcome: Outcome) -> Iterator[str]:
    """What must not be."""
    if outcome.status is not Status.DELIVERED:
        if outcome.stored:
            yield f"failed, and stored {sorted(outcome.stored)}"
        if "unexpected" in outcome.error:
            yield outcome.error
        return
    kind = read_header(case.raw).message_type
    about = _OF_NOBODY[kind] if case.sample in DECIDED or kind in _WITHOUT_PID else None
    if not any(_is_substance(one, about) for one in outcome.stored.values()):
        yield f"nothing about the subject was stored: {sorted(outcome.stored)}"
    if kind[:3] in _OF_EVENTS and all(one["resourceType"] in _OF_PERSONS for one in outcome.stored.values()):
        yield f"a patient and nothing else was stored: {sorted(outcome.stored)}"
    yield from _strangers(case, outcome.stored)


def _is_substance(resource: Json, about: str | None) -> bool:
    if about is not None:
        return resource["resourceType"] == about
    if resource["resourceType"] == "Patient":
        return "identifier" in resource or "name" in resource
    return any(patient_id(one) for one in subject_references(resource))


def _strangers(case: Case, stored: dict[str, Json]) -> Iterator[str]:
    """Resources of another patient than the PID before their segment; `numbers`: of whom each number is."""
    owners = _owners(case.lines)
    for name, resource in stored.items():
        if resource["resourceType"] in _SHARED or resource["resourceType"] == "Patient":
            continue
        own = [stored.get(f"Patient/{patient_id(one)}", {}) for one in subject_references(resource)]
        people = {one["value"] for patient in own for one in patient.get("identifier", ()) if "value" in one}
        held = resource.get("identifier", ())
        for one in held if type(held) is list else [held]:
            allowed = owners.get(one.get("value", ""))
            if one.get("system") != _DERIVED and allowed and people and people.isdisjoint(allowed):
                yield f"{name} ({one['value']}) is of {sorted(people)}, its number of {sorted(allowed)}"


_PART = re.compile(r"[\^&~]")


def _owners(lines: Sequence[str]) -> dict[str, set[str]]:
    """By each value of the message, the numbers of the patients under whose PID it stands."""
    found: dict[str, set[str]] = {}
    person: set[str] = set()
    for line in lines:
        fields = line.split("|")
        if fields[0] == "PID":
            person = {_PART.split(one)[0] for field in fields[2:5] for one in field.split("~")} - {""}
        elif person:
            for field in fields[1:]:
                for part in _PART.split(field):
                    if part:
                        found.setdefault(part, set()).update(person)
    return found
