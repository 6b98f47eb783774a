"""One run of a compiled map: what the closures share, and how the result is tidied when they are done.

The closures write straight into the result.  What they leave behind is put right here, once, at a cost linear in what
was made: elements that stayed empty are removed, references to resources that stayed empty with them, `first` and
`last` items take their places.  Nothing here knows a map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ipf.mapping.language.concepts import Overrides
from ipf.mapping.runtime.trace import Step, Trace
from ipf.ports import Json

_LAST = tuple(f"{number:04x}" for number in range(1024))

Frame = list[Any]
"""Variables of one group while it runs; slot 0 holds the Run."""

Get = Callable[[Frame], Any]
Act = Callable[[Frame], None]


@dataclass(frozen=True, slots=True)
class Unmapped:
    """A code that a ConceptMap did not have.  `code` is data of a message: it goes to operators, not to logs."""

    table: str
    code: str


@dataclass(slots=True)
class Run:
    """State of one run.  `key` names the message: the same key and content give the same uuids.

    `created`: every element that was made and may turn out empty, as (parent, name, element), parents first.
    `references`: every reference to a resource of this run, as (holder, name, resource).
    `trace`: only when one was asked for.  `is_recording`: what a group makes just now will be remembered (`memo`).
    """

    key: bytes
    created: list[tuple[Json, str, Json]] = field(default_factory=list)
    references: list[tuple[Json, str, Json]] = field(default_factory=list)
    urns: dict[int, str] = field(default_factory=dict)
    shared: dict[tuple[int, str], Json] = field(default_factory=dict)
    firsts: dict[int, int] = field(default_factory=dict)
    lasts: list[tuple[list[Any], Any]] = field(default_factory=list)
    unmapped: list[Unmapped] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    trace: Trace | None = None
    loose_references: bool = False
    is_recording: bool = False
    overrides: Overrides | None = None
    _count: int = 0
    _stem: str = ""

    def urn(self, resource: Json) -> str:
        """`urn:uuid:...` of a resource of this run, always the same one."""
        number = id(resource)
        found = self.urns.get(number)
        if found is None:
            count = self._count + 1
            if self._stem and count < len(_LAST):
                self._count = count
                found = self.urns[number] = f"urn:uuid:{self._stem}{_LAST[count]}"
            else:
                found = self.urns[number] = f"urn:uuid:{self.uuid()}"
        return found

    def uuid(self, name: str | None = None) -> str:
        """A uuid (version 8, RFC 9562) made from the run's key and a name, or the number of those asked for so far.

        Those that are numbered share the first 106 bits, a hash of the key: one hash a message instead of twenty.
        """
        if name is None:
            number = self._count = self._count + 1
            if number < len(_LAST):
                stem = self._stem
                if not stem:
                    stem = self._stem = self._hashed("")[:-4]
                return stem + _LAST[number]
            return f"{self._stem}{number:04x}" if number < 0x10000 else self._hashed(str(number))
        return self._hashed(name)

    def _hashed(self, name: str) -> str:
        digest = blake2b(name.encode(), key=self.key, digest_size=16).hexdigest()
        return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-a{digest[17:20]}-{digest[20:]}"

    @property
    def steps(self) -> list[Step] | None:
        """The rules that were run; None without a trace."""
        return None if self.trace is None else self.trace.steps

    def finish(self, root: Json) -> None:
        """Put the result in order; call once, when the map has run."""
        for items, item in self.lasts:
            items[:] = [one for one in items if one is not item] + [item]
        self.prune(0, (root,))
        while self._drop_dead_references():
            self.prune(0, (root,))

    def prune(self, since: int, roots: Iterable[Json]) -> None:
        """Remove elements that are empty, of those made since so many were; `roots`: what was not made since.

        Bottom up: in reverse order of making, a child comes before its parent.
        """
        lists: dict[int, set[str]] = {}
        for parent, name, child in reversed(self.created if not since else self.created[since:]):
            if lists:
                names = lists.pop(id(child), None)
                if names:
                    _filter_lists(child, names)
            if not child or (len(child) == 1 and "resourceType" in child):
                _detach(parent, name, child, lists)
        if lists:
            for root in roots:
                _filter_lists(root, lists.pop(id(root), ()))

    def _drop_dead_references(self) -> bool:
        """Remove references to resources that came out empty; True when there were any."""
        alive: list[tuple[Json, str, Json]] = []
        dropped = False
        for reference in self.references:
            holder, name, resource = reference
            if len(resource) > 1:
                alive.append(reference)
            else:
                dropped = holder.pop(name, None) is not None or dropped
        self.references = alive
        return dropped


def _detach(parent: Json, name: str, child: Json, lists: dict[int, set[str]]) -> None:
    held = parent.get(name)
    if held is child:
        del parent[name]
        if name == "resource":
            parent.clear()  # a Bundle entry stands and falls with its resource
    elif type(held) is list:
        lists.setdefault(id(parent), set()).add(name)


def _filter_lists(owner: Json, names: Iterable[str]) -> None:
    for name in names:
        held = owner.get(name)
        if type(held) is list:
            kept = [one for one in held if type(one) is not dict or not _is_empty(one)]
            if kept:
                owner[name] = kept
            else:
                del owner[name]


def _is_empty(element: Json) -> bool:
    return not element or (len(element) == 1 and "resourceType" in element)
