"""Sets of segments that a message states: the coverages of IN1, of senders of snapshots also those of AL1 and DG1.

What arrives: the entries of a message, and what each of them is made from.  What leaves: `Entry.sets` of the Patient or
Encounter that a set is about; `rest.write.set_plan` ends what a set no longer has.

IN1 has no action code, so that its segments are the whole list of what the sender knows (snapshot mode): of a message
that updates the Patient all insurances, of one about an account or charges those of the account (PID-18), else of the
visit (PV1-19).  An order or a result says only which coverage it uses: such a message adds to the set.
AL1 has no action code either (IAM has), but an allergy must not end because one message does not repeat it: only
senders that are declared to send snapshots end allergies and diagnoses.

Source: HL7 v2.9 sections 2.10.4 (repeating segments in snapshot mode), 2.5.3 (null), 6.4.1 (BAR P01), 6.4.3 (DFT P03)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ipf.hl7.message import Segment
from ipf.mapping.bundle.field_sources import Update
from ipf.mapping.runtime.run import Run
from ipf.ports.queries.entries import Entry, Method
from ipf.ports.queries.field_sources import SegmentSet

_ALWAYS = {"IN1": ("Coverage", "beneficiary", "Patient")}
_OF_SNAPSHOTS = {
    **_ALWAYS,
    "AL1": ("AllergyIntolerance", "patient", "Patient"),
    "DG1": ("Condition", "encounter", "Encounter"),
}
"""By segment the type that it becomes, the element that names what the set is about, and the type of that."""
_ACTION_CODES = {"DG1": "DG1-21"}


def attach_sets(entries: Sequence[Entry], numbers: Mapping[int, int], run: Run, update: Update) -> None:
    """Give each Patient or Encounter the sets that the message states of it.  `numbers`: see `field_sources.attach`."""
    wanted = _OF_SNAPSHOTS if update.is_snapshot else _ALWAYS
    told = [name for name in wanted if update.statement.whole.fields.get(name)]
    if not told:
        return
    referred = {id(holder): numbers.get(id(resource)) for holder, _, resource in run.references}
    for name in told:
        resource_type, element, of = wanted[name]
        found: dict[int, list[int]] = {}
        for number in _made_from(name, resource_type, entries, run):
            about = referred.get(id((entries[number].resource or {}).get(element)))
            if about is not None:
                found.setdefault(about, []).append(number)
        if not found:
            found = {number: [] for number in _emptied(name, of, entries, update)}
        for about, members in found.items():
            scope = "" if update.is_snapshot or _is_updated(entries[about]) or name not in _ALWAYS else update.scope
            is_whole = update.is_snapshot or _is_updated(entries[about]) or bool(scope)
            if any(_has_action(name, entries[one]) for one in members):
                is_whole = False
            entries[about].sets += (SegmentSet(name, update.sender, resource_type, tuple(members), is_whole, scope),)


def _made_from(name: str, resource_type: str, entries: Sequence[Entry], run: Run) -> Iterator[int]:
    for number, entry in enumerate(entries):
        if entry.resource_type == resource_type:
            nodes = run.made_from.get(id(entry.resource), ())
            if any(type(one) is Segment and one.name == name for one in nodes):
                yield number


def _emptied(name: str, of: str, entries: Sequence[Entry], update: Update) -> list[int]:
    """The Patient of a message with `IN1|1|""`; none when it is not clear whose set is empty."""
    stated, null = update.statement.whole.fields[name], update.statement.whole.nulls.get(name, 0)
    is_null = bool(null) and not stated & ~null & ~_SET_ID
    may_end = bool(update.scope) and name in _ALWAYS
    about = [n for n, one in enumerate(entries) if one.resource_type == of and (may_end or _is_updated(one))]
    return about if is_null and len(about) == 1 else []


_SET_ID = 1 << 1


def _has_action(name: str, entry: Entry) -> bool:
    """Whether the segment of an entry has an action code: then each segment is by itself."""
    code, sources = _ACTION_CODES.get(name), entry.sources
    return bool(code and sources and sources.stated.states_any(code) and not sources.stated.is_null(code))


def _is_updated(entry: Entry) -> bool:
    return entry.method is Method.UPDATE
