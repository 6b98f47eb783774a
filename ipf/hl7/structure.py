"""Message structures: which segments and groups a message has, in which order.

The structures are facts of the standard, in `fhir/v2/structures.json` (see `generate.py` beside it), in the abstract
message syntax of HL7, and are parsed on demand.  `arrange` places segments in them.

Source: HL7 v2.9 section 2.12 (chapter formats, abstract message syntax), table 0354.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ipf.config.paths import folder

DEFAULT_VERSION = "2.5.1"
_TOKEN = re.compile(r"[A-Za-z][A-Za-z0-9_]*|[\[\]{}<>|()]")
_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_]*)(\(?)")
_BATCH = frozenset(("ADD", "BHS", "BTS", "DSC", "FHS", "FTS"))
PRIOR_RESULT = "PRIOR_RESULT"
_PRIOR_RESULT_BEGINS = frozenset(("PID",))
"""In PRIOR_RESULT of an order everything before the order itself is optional, so each further ORC, OBR or PV1 of a
message could be a prior result of the order before.  Senders mean another order, unless they say whose prior result
follows (PID) or that it is one (ORC-1 = PR, table 0119)."""

Path = tuple[tuple[int, "Item"], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One alternative of a slot: a segment, or a group when `group` is set."""

    name: str
    group: Definition | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """One place in a sequence: one item, or one of several."""

    alternatives: tuple[Item, ...]
    required: bool
    repeats: bool


@dataclass(eq=False, slots=True)
class Definition:
    """Content of a message structure or of one of its groups.  `has_patient`: it has a PID, not of a prior result."""

    slots: tuple[Slot, ...]
    first: frozenset[str] = frozenset()
    can_be_empty: bool = True
    has_patient: bool = False
    _paths: dict[tuple[str, int, bool], Path | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        begins: set[str] = set()
        for slot in self.slots:
            for item in slot.alternatives:
                begins |= item.group.first if item.group else {item.name}
            if slot.required and not all(item.group and item.group.can_be_empty for item in slot.alternatives):
                self.can_be_empty = False
                break
        self.first = frozenset(begins)
        items = [item for slot in self.slots for item in slot.alternatives]
        self.has_patient = any(
            item.name == "PID" if item.group is None else item.name != PRIOR_RESULT and item.group.has_patient
            for item in items
        )

    def path(self, name: str, start: int, lenient: bool) -> Path | None:
        """Path to a segment from slot `start`; lenient = also into groups that do not begin with it."""
        key = (name, start, lenient)
        if key not in self._paths:
            if len(self._paths) > 2000:
                self._paths.clear()
            self._paths[key] = self._search(name, start, lenient)
        return self._paths[key]

    def _search(self, name: str, start: int, lenient: bool) -> Path | None:
        for index in range(start, len(self.slots)):
            for item in self.slots[index].alternatives:
                if item.group is None:
                    if item.name == name:
                        return ((index, item),)
                elif name in item.group.first or (lenient and item.name != PRIOR_RESULT):
                    inner = item.group.path(name, 0, lenient)
                    if inner is not None:
                        return ((index, item), *inner)
        return None

    def segment_names(self) -> Iterator[tuple[str, int]]:
        """Each segment with its depth (0 = not in a group), once for each occurrence."""
        for slot in self.slots:
            for item in slot.alternatives:
                if item.group is None:
                    yield item.name, 0
                else:
                    for name, depth in item.group.segment_names():
                        yield name, depth + 1

    def group_names(self) -> Iterator[str]:
        """Each group, at any depth."""
        for slot in self.slots:
            for item in slot.alternatives:
                if item.group is not None:
                    yield item.name
                    yield from item.group.group_names()


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """A message structure of one version.

    `only_at_root`: segments that stand in no group; `all_names`: all segments; `group_names`: all groups.
    """

    name: str
    version: str
    root: Definition
    only_at_root: frozenset[str]
    all_names: frozenset[str]
    group_names: frozenset[str]


class Group:
    """One occurrence of a group, with its segments and groups in order of arrival."""

    __slots__ = ("_by_name", "name", "nodes")
    kind = "group"

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Any] = []
        self._by_name: dict[str, list[Any]] = {}

    @property
    def text(self) -> str | None:
        """A group has no text of its own."""
        return None

    def children(self, name: str) -> list[Any]:
        """Segments or groups of this name; none = empty list.  Z segments are found at any depth."""
        if name[:1] == "Z" and len(name) == 3:
            return list(self._site_segments(name))
        return self._by_name.get(name, [])

    def _site_segments(self, name: str) -> Iterator[Any]:
        """The local segments of this name in this group and in its groups, in order of arrival."""
        for node in self.nodes:
            if isinstance(node, Group):
                yield from node._site_segments(name)
            elif node.name == name:
                yield node

    def is_null(self, name: str) -> bool:
        """Always false: only fields and their parts can be null."""
        return False

    def add(self, node: Any) -> None:
        """Append a segment or group."""
        self.nodes.append(node)
        self._by_name.setdefault(node.name, []).append(node)


def is_site_segment(structure: Structure, name: str) -> bool:
    """Whether it is a local segment (Z segment), which the structure does not have."""
    return len(name) == 3 and name[:1] == "Z" and name not in structure.all_names


# --------------------------------------------------------------------------------------------------------------
# The tables


@lru_cache(maxsize=1)
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = json.loads((folder("fhir") / "v2" / "structures.json").read_text(encoding="utf-8"))
    return tables


@lru_cache(maxsize=1024)
def structure_name(message_code: str, trigger: str, stated: str = "") -> str:
    """Message structure by MSH-9: what MSH-9.3 says when that is a structure, else by table 0354.

    Senders write the event where the structure belongs (`ADT^A04^ADT_A04`), so MSH-9.3 is looked up as an event as
    well.
    """
    events, structures = _tables()["events"], _tables()["structures"]
    own = f"{message_code}_{trigger}" if trigger else message_code
    for candidate in (stated, own, message_code):
        meant = events.get(candidate, candidate)
        if meant in structures:
            return str(meant)
    return stated or own


@lru_cache(maxsize=512)
def structure(name: str, version: str = DEFAULT_VERSION) -> Structure | None:
    """The structure in this version, or in the nearest older one that has it, else the oldest; None when unknown."""
    editions = _tables()["structures"].get(name)
    if editions is None:
        return None
    wanted = _version(version) or _version(DEFAULT_VERSION)
    by_version = sorted((_version(one), one, syntax) for versions, syntax in editions for one in versions.split())
    at_most = [edition for edition in by_version if edition[0] <= wanted]
    _, found, syntax = at_most[-1] if at_most else by_version[0]
    definition = parse_syntax(syntax)
    names = list(definition.segment_names())
    grouped = {segment for segment, depth in names if depth}
    every = frozenset(segment for segment, _ in names)
    return Structure(name, found, definition, every - grouped, every, frozenset(definition.group_names()))


@lru_cache(maxsize=512)
def structure_with(name: str, version: str, segments: frozenset[str]) -> Structure | None:
    """The structure in this version, or in the newest one that has a place for more of these segments."""
    found = structure(name, version)
    if found is None or segments <= found.all_names:
        return found
    versions = {one for versions, _ in _tables()["structures"][name] for one in versions.split()}
    editions = [edition for one in sorted(versions, key=_version) if (edition := structure(name, one)) is not None]
    most = max(editions, key=lambda edition: (len(segments & edition.all_names), _version(edition.version)))
    return most if len(segments & most.all_names) > len(segments & found.all_names) else found


@lru_cache(maxsize=1024)
def newest_structure(name: str) -> Structure | None:
    """The structure in its newest version."""
    versions = {one for versions, _ in _tables()["structures"].get(name, ()) for one in versions.split()}
    return structure(name, max(versions, key=_version)) if versions else None


def is_structure(name: str) -> bool:
    """Whether the standard has a message structure of this name."""
    return name in _tables()["structures"]


@lru_cache(maxsize=1)
def _all_names() -> tuple[frozenset[str], frozenset[str]]:
    syntaxes = [syntax for editions in _tables()["structures"].values() for _, syntax in editions]
    words = {(name, bracket) for syntax in syntaxes for name, bracket in _NAME.findall(syntax)}
    segments = frozenset(name for name, bracket in words if not bracket)
    return segments | _BATCH, frozenset(name for name, bracket in words if bracket)


def all_segment_names() -> frozenset[str]:
    """Segments of any message structure, in any version, and those of batches and files."""
    return _all_names()[0]


def all_group_names() -> frozenset[str]:
    """Groups of any message structure, in any version."""
    return _all_names()[1]


def _version(text: str) -> tuple[int, ...]:
    parts = text.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() and len(part) < 5 for part in parts) else ()


def parse_syntax(text: str) -> Definition:
    """Abstract message syntax to a definition."""
    tokens = _TOKEN.findall(text)
    definition, end = _sequence(tokens, 0)
    if end != len(tokens):
        raise ValueError(f"message structure ends at token {end}")
    return definition


def _sequence(tokens: list[str], at: int) -> tuple[Definition, int]:
    slots: list[Slot] = []
    while at < len(tokens) and tokens[at] != ")":
        slot, at = _slot(tokens, at)
        slots.append(slot)
    return Definition(tuple(slots)), at


def _slot(tokens: list[str], at: int) -> tuple[Slot, int]:
    if tokens[at] == "[":
        inner, at = _slot(tokens, at + 1)
        return Slot(inner.alternatives, False, inner.repeats), at + 1
    if tokens[at] == "{":
        inner, at = _slot(tokens, at + 1)
        return Slot(inner.alternatives, inner.required, True), at + 1
    if tokens[at] == "<":
        return _choice(tokens, at + 1)
    name, at = tokens[at], at + 1
    if at < len(tokens) and tokens[at] == "(":
        group, at = _sequence(tokens, at + 1)
        if name == PRIOR_RESULT:
            group.first &= _PRIOR_RESULT_BEGINS
        return Slot((Item(name, group),), True, False), at + 1
    return Slot((Item(name),), True, False), at


def _choice(tokens: list[str], at: int) -> tuple[Slot, int]:
    alternatives: list[Item] = []
    repeats = False
    while True:
        inner, at = _slot(tokens, at)
        alternatives += inner.alternatives
        repeats = repeats or inner.repeats
        at += 1
        if tokens[at - 1] == ">":
            return Slot(tuple(alternatives), True, repeats), at
