"""One run of a compiled map: its state, and the clean-up of its result.

Compiled functions write into the result.  Clean-up happens once, at a cost linear in the result: empty elements and
references to empty resources are removed, and `first` and `last` items move to their positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ipf.fhir.fhirpath.functions import patterns
from ipf.mapping.language.concepts import Overrides
from ipf.mapping.runtime.budget import (
    CHARACTERS_OF_A_STEP,
    LONG,
    LONGEST,
    READ_IN_A_STEP,
    STEPS,
    out_of_steps,
    too_deep,
    too_long,
)
from ipf.mapping.runtime.mending import TypeRules, align, drop_void, keep_as_sent, printable
from ipf.mapping.runtime.references import SourceReferences, settle, unlink
from ipf.mapping.runtime.trace import RulePosition, Step, Trace
from ipf.ports import Json

_LAST = tuple(f"{number:04x}" for number in range(1024))

Frame = list[Any]
"""Variables of one group while it runs; slot 0 holds the Run."""


Get = Callable[[Frame], Any]
Act = Callable[[Frame], None]


@dataclass(frozen=True, slots=True)
class Unmapped:
    """A code without a row in its ConceptMap.  `code` is message data: it may go to operators, not to logs."""

    table: str
    code: str


@dataclass(slots=True)
class Run:
    """State of one run.  `key` identifies the message: the same key and content give the same uuids.

    `source`: the whole of it.  `created`: every element that may stay empty, as (parent, name, element), parents
    first.  `references`: every reference to a resource of this run, as (holder, name, resource).  `is_bundle`: the
    result is a Bundle, and what is in `extensions`, `checked` and `extended` is made valid (`mending`): extensions,
    other elements with the rules of their type, and lists of primitives with extensions, as (owner, key).  `trace`:
    None without a trace.  `named`: resources
    that are referred to where there is no Bundle, with the ids made for them.  `copied`: the objects of copies whose
    type the map does not know, with their FHIR type or "", and the names of their elements, by id().  `sources`: the
    HL7 v2 fields of elements of resources, as (owner, name, value or item, fields), in the order in which they were
    written.  `made_from`: the segments that each resource was made from, by id() of the resource.  `limit`: the steps
    that the run may take (`budget`); `steps_left`: those that it has left.  `depth`: calls of groups from inside
    themselves.
    """

    key: bytes
    source: Any = None
    created: list[tuple[Json, str, Json]] = field(default_factory=list)
    references: list[tuple[Json, str, Json]] = field(default_factory=list)
    is_bundle: bool = False
    extensions: list[Json] = field(default_factory=list)
    checked: list[tuple[TypeRules, Json]] = field(default_factory=list)
    extended: list[tuple[Json, str]] = field(default_factory=list)
    urns: dict[int, str] = field(default_factory=dict)
    shared: dict[tuple[int, str], Json] = field(default_factory=dict)
    firsts: dict[int, int] = field(default_factory=dict)
    lasts: list[tuple[list[Any], Any]] = field(default_factory=list)
    unmapped: list[Unmapped] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    lost: list[tuple[Json, str, Any]] = field(default_factory=list)
    trace: Trace | None = None
    loose_references: bool = False
    overrides: Overrides | None = None
    named: dict[int, tuple[Json, str]] = field(default_factory=dict)
    copied: dict[int, tuple[Json, str, frozenset[str]]] = field(default_factory=dict)
    sources: list[tuple[Json, str, Any, str]] = field(default_factory=list)
    made_from: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    limit: int = STEPS
    steps_left: int = STEPS
    depth: int = 0
    _count: int = 0
    _stem: str = ""
    _in_source: SourceReferences | None = None

    def spend(self, steps: int, at: RulePosition | None = None) -> None:
        """Count steps.  Problem COSTLY beyond the budget."""
        self.steps_left -= steps
        if self.steps_left < 0:
            raise out_of_steps(self.limit, at)

    def spend_on_text(self, characters: int) -> None:
        """Count the work on a long text."""
        self.spend(characters // CHARACTERS_OF_A_STEP)

    def reads(self, characters: int) -> bool:
        """Count the reading of a long field; always true."""
        self.spend(characters // READ_IN_A_STEP)
        return True

    def exhausted(self, at: RulePosition) -> None:
        """Problem COSTLY: the steps are used up."""
        raise out_of_steps(self.limit, at)

    def too_deep(self, at: RulePosition) -> None:
        """Problem COSTLY: groups call themselves too often."""
        raise too_deep(at)

    @property
    def in_source(self) -> SourceReferences:
        """The references of the source."""
        if self._in_source is None:
            self._in_source = SourceReferences(self.source)
        return self._in_source

    def reference(self, resource: Json) -> str:
        """The reference to a resource of this run: the `fullUrl` of its entry; without a Bundle `Type/id`."""
        if self.is_bundle or "resourceType" not in resource:
            return self.urn(resource)
        _, name = self.named.setdefault(id(resource), (resource, self.urn(resource).rpartition(":")[2]))
        return f"{resource['resourceType']}/{resource.get('id') or name}"

    def note_copy(self, value: Any, kind: str = "") -> None:
        """Record the objects of a copy, whose elements stay as they are: single, or lists.  `kind`: its FHIR type."""
        stack = [value]
        while stack:
            one = stack.pop()
            if type(one) is dict:
                self.copied[id(one)] = (one, kind if one is value else "", frozenset(one))
                stack.extend(one.values())
            elif type(one) is list:
                stack.extend(one)

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
        """A uuid (version 8, RFC 9562), derived from the key and a name, or from the key and a counter.

        Uuids by counter share their first 106 bits, so a message needs one hash.
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
        """The executed rules; None without a trace."""
        return None if self.trace is None else self.trace.steps

    def finish(self, root: Json) -> None:
        """Clean up the result; call once, after the map."""
        self.spend(0)
        _place_last(self.lasts)
        self._tidy(root)
        while self._drop_dead_references():
            self.spend(len(self.created) + len(self.references))
            self._tidy(root)
        self._complete()
        if self.named:
            settle(self.references, self.named.values(), self.created, self.spend)

    def refuse(self, owner: Json, key: str, text: str, others: frozenset[str], path: str, text_key: str) -> None:
        """Keep a text that its element does not allow, unless the element has a value.

        `others`: the other names of a choice.  `text_key`: the one of them for text, or "".
        """
        if key in owner or not owner.keys().isdisjoint(others):
            if path:
                self.dropped.append(path)
        elif self.is_bundle and text_key:
            owner[text_key] = printable(text)
        elif self.is_bundle:
            keep_as_sent(owner, key, text)

    def _tidy(self, root: Json) -> None:
        """Remove empty elements and extensions; see `_prune`."""
        self._prune(root)
        while self.is_bundle and (drop_void(self.extensions) or align(self.extended)):
            self.spend(len(self.created))
            self._prune(root)

    def _complete(self) -> None:
        """Make the checked elements valid.  Elements that were removed are empty."""
        if self.is_bundle:
            for rules, element in self.checked:
                if len(element) > 1 or (element and "resourceType" not in element):
                    rules.complete(element)

    def _prune(self, root: Json) -> None:
        """Remove empty elements among those created.

        Bottom up: in reverse order of creation, a child comes before its parent.
        """
        lists: dict[int, set[str]] = {}
        parts: list[Json] = []
        for parent, name, child in reversed(self.created):
            if lists:
                names = lists.pop(id(child), None)
                if names:
                    _filter_lists(child, names)
            if not child or (len(child) == 1 and "resourceType" in child):
                _detach(parent, name, child, lists)
                parts.append(parent)
        if lists:
            _filter_lists(root, lists.pop(id(root), ()))
            # A primitive with extensions is recorded after them.
            late = [(part, lists.pop(id(part))) for part in parts if id(part) in lists]
            for part, names in late:
                _filter_lists(part, names)
            if any(not part for part, _ in late):
                self._prune(root)

    def _drop_dead_references(self) -> bool:
        """Remove references to empty resources; True when there were any."""
        alive: list[tuple[Json, str, Json]] = []
        dropped = False
        for reference in self.references:
            holder, name, resource = reference
            if len(resource) > 1:
                alive.append(reference)
            else:
                self.spend(len(holder.get(name, "")) // CHARACTERS_OF_A_STEP)
                dropped = unlink(holder, name, self.reference(resource)) or dropped
        self.references = alive
        return dropped


def counted(run: Run, text: str) -> str | None:
    """A text that a rule has made, of bounded length; a long one counts as steps.  None for an empty one."""
    if len(text) > LONG:
        run.spend_on_text(len(text))
        if len(text) > LONGEST:
            raise too_long()
    return text or None


def matched(run: Run, text: str, regex: str) -> bool:
    """Whether a regular expression matches any part of a text; counts the work."""
    run.spend(patterns.steps(text, regex))
    return patterns.search(text, regex)


def _place_last(lasts: Iterable[tuple[list[Any], Any]]) -> None:
    """Move the items of list mode `last` to the end of their lists, in the order in which they were made."""
    moved: dict[int, tuple[list[Any], list[Any]]] = {}
    for items, item in lasts:
        moved.setdefault(id(items), (items, []))[1].append(item)
    for items, ends in moved.values():
        moving = Counter(map(id, ends))  # the same text may also be an item that stays
        kept = []
        for one in reversed(items):
            if moving[id(one)]:
                moving[id(one)] -= 1
            else:
                kept.append(one)
        items[:] = kept[::-1] + ends


def _detach(parent: Json, name: str, child: Json, lists: dict[int, set[str]]) -> None:
    held = parent.get(name)
    if held is child:
        del parent[name]
        if name == "resource":
            parent.clear()  # a Bundle entry without a resource is empty
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
