"""Any source to any target: the engine for callers with their own maps (`$transform`, tests, tools).

    maps = MapSet([read_map(text), read_map(structure_map_json)], concept_maps=[...], structure_definitions=[...])
    result = maps.transform("http://example.org/StructureMap/a", source, trace=True)

A source is a FHIR resource or an instance of a logical model as JSON (a dict), or an HL7 v2 `Message`.  The first group
of the map declares the target: a resource, an instance of a logical model, a data type.  Maps are compiled on demand.
A set is immutable; `with_more` makes another one.

Every failure is a Problem: MAPPING for a mistake in a map (FmlError: file, line, column) and for a rule that fails on
this source (names map, group and rule, never data); UNMAPPED when the set has no such map.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from time import perf_counter
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.fhirpath import Host
from ipf.fhir.model.json import dumps, loads
from ipf.hl7.message import Message
from ipf.mapping.bundle.transaction import complete
from ipf.mapping.compiler.compile import Compiler, Program
from ipf.mapping.compiler.conversions import message_zone
from ipf.mapping.compiler.groups import Environment
from ipf.mapping.compiler.models import Models
from ipf.mapping.language.concepts import ConceptTables, Overrides
from ipf.mapping.language.grammar import parse
from ipf.mapping.language.identity_table import IdentityTable
from ipf.mapping.language.model import StructureMap
from ipf.mapping.language.structuremap import from_json
from ipf.mapping.library.message_rules import message_rules
from ipf.mapping.library.terminology import local_host
from ipf.mapping.runtime.references import name_entries
from ipf.mapping.runtime.run import Unmapped
from ipf.mapping.runtime.trace import Step
from ipf.mapping.runtime.unread import Findings
from ipf.mapping.runtime.zone import Offset
from ipf.ports import Json
from ipf.ports.queries.entries import Entry

Source = Json | Message


def read_map(content: str | bytes | Mapping[str, Any], file: str = "") -> StructureMap:
    """A map from its text, or from a StructureMap resource (parsed, or as JSON text).

    `file`: for error messages.  Problem MAPPING; for a text FmlError with line, column and the expected token.
    """
    if isinstance(content, Mapping):
        return from_json(content, file)
    if isinstance(content, bytes):
        try:
            content = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Problem(Category.MAPPING, f"is not UTF-8 at byte {error.start}", file or None) from None
    if content.lstrip().startswith("{"):
        try:
            return from_json(loads(content.encode()), file)
        except Problem as problem:
            raise Problem(Category.MAPPING, problem.text, problem.place or file or None) from problem
    return parse(content, file)


@dataclass(frozen=True, slots=True)
class Transformed:
    """The result for one source.  `steps`: None without a trace.  `unmapped`: codes without a row in their table.
    `findings`: the fields of a message that are not in the result; None for another source.  `entries`: of a message,
    unless its map wrote requests.
    """

    target: Json
    map_url: str
    unmapped: tuple[Unmapped, ...]
    warnings: tuple[str, ...]
    logs: tuple[str, ...]
    steps: tuple[Step, ...] | None
    milliseconds: float
    findings: Findings | None = None
    entries: tuple[Entry, ...] | None = None


class MapSet:
    """Maps that may import each other, with their tables and models."""

    def __init__(
        self,
        maps: Iterable[StructureMap],
        *,
        concept_maps: Iterable[Mapping[str, Any]] = (),
        structure_definitions: Iterable[Mapping[str, Any]] = (),
        offset: Offset = "Z",
        host: Host | None = None,
    ) -> None:
        """`host`: value sets, profiles and resources for conditions of the maps; the default has the shipped tables."""
        self._maps = {one.url: one for one in maps}
        self._concept_maps = tuple(concept_maps)
        self._definitions = tuple(structure_definitions)
        self._offset = offset
        tables = ConceptTables(self._concept_maps)
        self._host = host or local_host()
        environment = Environment(Models(self._definitions), tables, offset, self._host)
        self._compiler = Compiler(self._maps.values(), environment)
        self._programs: dict[str, Program] = {}

    @property
    def urls(self) -> tuple[str, ...]:
        """Canonicals of the maps."""
        return tuple(self._maps)

    def with_more(
        self,
        maps: Iterable[StructureMap],
        concept_maps: Iterable[Mapping[str, Any]] = (),
        structure_definitions: Iterable[Mapping[str, Any]] = (),
    ) -> MapSet:
        """This set and more; a map replaces one with the same canonical."""
        return MapSet(
            (self._maps | {one.url: one for one in maps}).values(),
            concept_maps=(*self._concept_maps, *concept_maps),
            structure_definitions=(*self._definitions, *structure_definitions),
            offset=self._offset,
            host=self._host,
        )

    def program(self, url: str) -> Program:
        """The compiled map; `|version` is ignored.  Problem UNMAPPED: no such map; MAPPING: a mistake in it."""
        url = url.partition("|")[0]
        found = self._programs.get(url)
        if found is None:
            content = self._maps.get(url)
            if content is None:
                raise Problem(Category.UNMAPPED, f"no StructureMap {url} is installed")
            found = self._programs[url] = Program(self._compiler, content)
        return found

    def transform(
        self, url: str, source: Source, *, key: bytes = b"", trace: bool = False, overrides: Overrides | None = None
    ) -> Transformed:
        """Map one source.  The source is not changed, and shares nothing with the result.

        `key`: 1 to 64 bytes from which uuids are derived; the default is a hash of the source, so the same source gives
        the same result.  The Bundle of a message becomes a transaction (`identity`).
        """
        return transform(self.program(url), source, key=key, trace=trace, overrides=overrides, offset=self._offset)


def transform(
    program: Program,
    source: Source,
    *,
    key: bytes = b"",
    trace: bool = False,
    overrides: Overrides | None = None,
    table: IdentityTable | None = None,
    offset: Offset = "Z",
) -> Transformed:
    """The same with a compiled map.  `table`: which numbers of a Patient identify; None = the built-in table.

    `offset`: the zone of times without an offset, when MSH-7 has none either.
    """
    started = perf_counter()
    is_message = isinstance(source, Message)
    key = key or source_key(source)
    with message_zone(source.header.field(7) if isinstance(source, Message) else "", offset):
        size = 0 if is_message else len(dumps(source))
        if trace and is_message:
            program.run(source, key, overrides=overrides)  # a traced program marks no fields
        target, run = program.run(source, key, trace=trace, overrides=overrides, characters=size)
    made = None
    if isinstance(source, Message):
        made = complete(target, run, message_rules(program, source, table or IdentityTable()))
    elif run.is_bundle:
        name_entries(target, run.urns, run.references, run.spend)
    if run.trace is not None:
        run.trace.finish(target, made.merged if made is not None else {})
    return Transformed(
        target,
        program.content.url,
        tuple(run.unmapped),
        (*(source.warnings if isinstance(source, Message) else ()), *run.warnings),
        tuple(run.logs),
        None if run.steps is None else tuple(run.steps),
        (perf_counter() - started) * 1000,
        Findings(source, program.unread, run.dropped) if isinstance(source, Message) else None,
        made.entries if made is not None else None,
    )


def source_key(source: Source) -> bytes:
    """32 bytes that identify a source."""
    content = source.raw if isinstance(source, Message) else dumps(source)
    return blake2b(content, digest_size=32).digest()


__all__ = ["MapSet", "Source", "Transformed", "read_map", "source_key", "transform"]
