"""A resource that a unit will write, from its entry to its result."""

from __future__ import annotations

from dataclasses import dataclass

from ipf.ports import Json
from ipf.rest.write.second_look import Key
from ipf.rest.write.snapshot import State
from ipf.rest.write.unit import Entry, EntryResult, Method, Outcome


@dataclass(slots=True)
class Pending:
    """A resource to be written unless it is unchanged; `state`: its current state."""

    entry: Entry
    text: bytes
    key: Key
    state: State | None
    result: EntryResult | None = None

    @property
    def has_new_id(self) -> bool:
        """Whether nothing that is stored can refer to it."""
        return self.state is None and self.entry.id != self.key[2]


def result_of(entry: Entry, end: Pending) -> EntryResult:
    """The result of an entry whose resource is settled."""
    if end.result is None:
        raise RuntimeError("a pending resource was not settled")
    if end.entry is entry or entry.method is Method.PATCH:  # a patched entry is a copy
        return end.result
    outcome = Outcome.FOUND if entry.method is Method.CREATE else Outcome.UNCHANGED
    return EntryResult(200, outcome, end.result.version)


def interaction(state: State | None, resource: Json | None) -> str:
    """The interaction that a change is; `state`: before it, `resource`: after it."""
    if resource is None:
        return "delete"
    return "update" if state is not None and state.exists else "create"
