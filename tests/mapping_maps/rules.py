"""What the maps do, read from their parsed text: which rule reads which field and writes which element.

Comments beside the rules say what was decided (`ipf.mapping.language.notes`): `PID-12 (address)` is only about rows
whose path begins so; a table's name, `PV1[Coverage]`, is about all its rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ipf.mapping.language.grammar import parse
from ipf.mapping.language.model import Rule, StructureMap
from ipf.mapping.language.notes import Note, notes

_FIELD = re.compile(r"\b([A-Z][A-Z0-9]{1,2})_(\d+)\b")
_ABSENT = re.compile(r"\b[A-Z][A-Z0-9_]*(?:\.[A-Z][A-Z0-9_]*)*\.empty\(\)")


@dataclass(eq=False, slots=True)
class Seen:
    """A rule with what it reads and writes.  `around`: elements written by the rules that it is nested in."""

    place: str
    reads: frozenset[tuple[str, str]]
    writes: frozenset[str]
    around: frozenset[str]
    calls: frozenset[str]
    path: str


@dataclass(eq=False)
class File:
    """One map, and the tables that it serves."""

    name: str
    content: StructureMap
    tables: frozenset[str]
    notes: tuple[Note, ...]


@dataclass(eq=False)
class Maps:
    """All maps of a folder."""

    folder: Path
    files: list[File] = field(default_factory=list)

    def __post_init__(self) -> None:
        for path in sorted(self.folder.glob("*/*.fml")):
            text = path.read_text(encoding="utf-8")
            name = path.relative_to(self.folder).as_posix()
            content = parse(text, name)
            self.files.append(File(name, content, frozenset(_served(path.stem, content)), tuple(notes(text, name))))

    @cached_property
    def groups(self) -> dict[str, list[Seen]]:
        """Rules by the name of their group, nested ones with all that is done inside them."""
        return {
            group.name: [seen for rule in group.rules for seen in _look(rule, group.name, frozenset())]
            for file in self.files
            for group in file.content.groups
        }

    @cached_property
    def file_of(self) -> dict[str, File]:
        """The file of each group."""
        return {group.name: file for file in self.files for group in file.content.groups}

    @cached_property
    def _writes(self) -> dict[str, frozenset[str]]:
        return {name: frozenset().union(*(one.writes for one in seen)) for name, seen in self.groups.items()}

    @cached_property
    def _callers(self) -> dict[str, list[tuple[str, Seen]]]:
        found: dict[str, list[tuple[str, Seen]]] = {}
        for name, seen in self.groups.items():
            for one in seen:
                for called in one.calls:
                    found.setdefault(called, []).append((name, one))
        return found

    def writes(self, seen: Seen) -> frozenset[str]:
        """Elements that a rule writes, with those of the groups that it calls."""
        return seen.writes.union(*(self._writes.get(name, frozenset()) for name in seen.calls))

    def around(self, group: str, files: list[File], done: frozenset[str] = frozenset()) -> frozenset[str]:
        """Elements that are open when a group is called from one of these files."""
        found: set[str] = set()
        for caller, seen in self._callers.get(group, []):
            if caller not in done and self.file_of.get(caller) in files:
                found |= seen.writes | seen.around | self.around(caller, files, done | {group})
        return frozenset(found)

    def reached(self, names: frozenset[str]) -> set[str]:
        """Groups that are called from these, and from those, and so on."""
        todo, found = list(names), set()
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += [called for seen in self.groups.get(name, []) for called in seen.calls]
        return found

    def message(self, name: str) -> File | None:
        """The map of a message type."""
        for file in self.files:
            if file.name.startswith("messages/") and name in file.content.meta("types").replace(",", " ").split():
                return file
        return next((file for file in self.files if file.name == f"messages/{name}.fml"), None)


def _served(stem: str, content: StructureMap) -> Iterator[str]:
    """`PID_Patient` is about `PID[Patient]` unless the header names tables."""
    named = re.findall(r"[^\s\[]+(?:\[[^\]]+\])?", content.meta("tables"))
    if named:
        yield from named
    else:
        segment, _, resource = stem.partition("_")
        yield f"{segment}[{resource}]"


def _look(rule: Rule, path: str, around: frozenset[str]) -> Iterator[Seen]:
    here = f"{path}.{rule.name}"
    own = frozenset(target.element for target in rule.targets if target.element)
    inner = [seen for one in rule.rules for seen in _look(one, here, around | own)]
    calls = frozenset(one.name for one in rule.dependents)
    yield Seen(
        here,
        frozenset(_reads(rule)),
        own.union(*(one.writes for one in inner)),
        around,
        calls.union(*(one.calls for one in inner)),
        rule.sources[0].element if rule.sources else "",
    )
    yield from inner


def _reads(rule: Rule) -> Iterator[tuple[str, str]]:
    """Fields that a rule takes from; that one is absent is not taking from it."""
    for source in rule.sources:
        for text in (source.element, _ABSENT.sub("", source.condition)):
            yield from _FIELD.findall(text)
    for target in rule.targets:
        for one in target.parameters:
            if one.kind == "string" and target.transform == "evaluate":
                yield from _FIELD.findall(str(one.value))
