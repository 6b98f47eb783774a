"""The maps of an installation: read and compiled at start, chosen by message type or by canonical.

What arrives: a folder (`messages/*.fml`, `segments/*.fml`, `datatypes/*.fml`, `codesystems/*.json`), FHIR packages,
resources installed over HTTP, and messages.  What leaves: transaction Bundles.  A mistake in a map makes `Library.load`
fail with file, line and column; in one that was installed over HTTP, the use of this map (`installed_maps`).  A library
is immutable; a reload makes a new one.

The map of a message type is `messages/<type>.fml`, or one with `/// types = "ADT_A01 ADT_A04"`.  The generic map
(`/// types = "*"`) takes events that have no map, when the installation says so.  A map replaces another with the same
canonical: the folder replaces packages, and resources installed over HTTP replace both.  Maps without a message type,
and those of packages, are compiled on demand.  In a process without the check (`ipf.app.maps.check` ran elsewhere) all
maps are parsed and compiled on demand, to save memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from time import perf_counter
from typing import Any, Protocol

from ipf.errors import Category, Problem
from ipf.fhir.model.packages import Packages
from ipf.hl7.checks import check_message
from ipf.hl7.message import Message
from ipf.hl7.queries import is_event
from ipf.mapping.bundle.substance import check_substance
from ipf.mapping.bundle.transaction import Transaction, finished
from ipf.mapping.compiler.compile import Compiler, Program
from ipf.mapping.compiler.conversions import message_zone
from ipf.mapping.compiler.groups import Environment
from ipf.mapping.compiler.models import Models
from ipf.mapping.language.concepts import Overrides
from ipf.mapping.language.hl7_tables import translation_of
from ipf.mapping.language.identity_table import IdentityTable
from ipf.mapping.language.model import StructureMap
from ipf.mapping.library.definitions import installed_definitions, packaged_definitions
from ipf.mapping.library.installed_maps import add_installed, check_folder, check_installed
from ipf.mapping.library.map_files import Maps, read_folder, types_of
from ipf.mapping.library.message_rules import message_rules
from ipf.mapping.library.packaged import of_packages, tables_of
from ipf.mapping.library.terminology import local_host
from ipf.mapping.runtime.run import Unmapped
from ipf.mapping.runtime.trace import Step
from ipf.mapping.runtime.unread import Findings
from ipf.mapping.runtime.zone import Offset
from ipf.ports import Claimed, InstalledMap, Json, Mapped, UnmappedCode, UnreadField
from ipf.ports.messages.mapping import Origin
from ipf.ports.messages.sources import PolledSource

ANY_TYPE = "*"
"""In the header of a map, for types: every event that has no map of its own."""
GENERIC_STRUCTURE = "GENERIC"
"""The structure in which the generic map reads a message: a group PATIENT for each PID."""
PACKAGE_TYPES = ("StructureMap", "ConceptMap", "StructureDefinition", "ValueSet", "CodeSystem")


@dataclass(frozen=True, slots=True)
class MappingResult:
    """The result for one message: the transaction, and details for operators.

    `unmapped`: codes without a row in their table.  `steps`: the executed rules; None without a trace.  `findings`:
    the fields of the message that are not in the result; None without a message.
    """

    made: Transaction
    map_url: str
    unmapped: tuple[Unmapped, ...]
    warnings: tuple[str, ...]
    logs: tuple[str, ...]
    steps: tuple[Step, ...] | None
    milliseconds: float
    findings: Findings | None = None
    map_version: str = ""

    def unread(self) -> tuple[UnreadField, ...]:
        """The fields of the message that are not in the result, each path once."""
        return () if self.findings is None else self.findings.paths()

    @property
    def bundle(self) -> Json:
        """The transaction Bundle."""
        return self.made.bundle()


class Library:
    """Compiled maps by message type, and by canonical url.

    `types`: canonicals by message type.  `compiled` False: the maps are checked already; parse and compile them on
    demand.  `generic`: the canonical of the map for events without a map; None = they have none.
    """

    def __init__(
        self,
        maps: Maps,
        types: Mapping[str, str],
        environment: Environment,
        *,
        compiled: bool = True,
        generic: str | None = None,
    ) -> None:
        self._compiler = Compiler(maps, environment)
        self._compiling = RLock()  # a thread compiles for a message, another for a trace
        self._types = dict(types)
        self._generic = generic
        self._programs: dict[str, Program] = {}
        self._by_type: dict[str, Program] = {}
        self.maps = maps
        self.tables = environment.tables
        self.environment = environment
        self.packages = Packages()
        self.definitions: Mapping[str, Json] = {}
        self.vendor_profiles: VendorProfiles | None = None
        self.broken: dict[str, Problem] = {}
        """Maps with a mistake that were installed over HTTP, and maps that they break; see `find_broken`."""
        self._unchecked: Sequence[InstalledMap] = ()
        self._installed: frozenset[str] = frozenset()
        if compiled:
            for message_type in types:
                self.program_for(message_type)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        offset: Offset = "Z",
        packages: Packages | None = None,
        installed: Sequence[InstalledMap] = (),
        compiled: bool = True,
        generic: bool = False,
        identity: IdentityTable | None = None,
        without_patient: Iterable[str] = (),
    ) -> Library:
        """Read and compile all maps.  Problem MAPPING names file, line and column of the first mistake.

        `offset`: the zone of times in messages without an offset.  `compiled` False: see the class.  `generic`: the map
        of any type (IPF_GENERIC_MAP) is in use.  `identity`: which numbers of a Patient identify; None = the built-in
        table.  `without_patient`: types whose messages are converted without a PID (IPF_WITHOUT_PATIENT_TYPES).
        """
        packages = packages or Packages()
        maps = Maps(of_packages(packages))
        packaged = frozenset(maps)
        types = read_folder(folder, maps, parsed=compiled)
        own = [url for url in maps if url not in packaged]
        unreadable = add_installed(installed, maps, types)
        definitions = installed_definitions(installed)
        models = Models([*definitions.values(), *packaged_definitions(maps, packages, definitions)])
        tables = tables_of(folder, packages, installed)
        environment = Environment(
            models, tables, offset, local_host(packages), identity or IdentityTable(), frozenset(without_patient)
        )
        of_any = types.pop(ANY_TYPE, None)
        for name in [name for name, url in types.items() if url == of_any]:
            del types[name]  # its file is named after no message type
        library = cls(maps, types, environment, compiled=False, generic=of_any if generic else None)
        library.packages, library.definitions, library.broken = packages, definitions, unreadable
        library._unchecked, library._installed = installed, frozenset(one.url for one in installed)
        if compiled:
            library.find_broken()
            check_folder(library, own, installed, lambda: cls.load(
                folder, offset=offset, packages=packages, compiled=False, generic=generic, identity=identity
            ))  # fmt: skip
            library._compile_types()
        return library

    def _compile_types(self) -> None:
        for message_type, url in self._types.items():
            if url not in self.broken:
                self.program_for(message_type)

    @property
    def message_types(self) -> tuple[str, ...]:
        """Types with a map, sorted."""
        return tuple(sorted(self._types))

    def types_of(self, url: str) -> tuple[str, ...]:
        """The message types of a map."""
        return tuple(name for name in self.message_types if self._types[name] == url)

    def has_map(self, message_type: str) -> bool:
        """Whether there is a map for messages of this type (`ADT_A01`)."""
        return message_type in self._types or self._is_generic(message_type)

    def _is_generic(self, message_type: str) -> bool:
        """Whether messages of this type are read by the generic map."""
        return self._generic is not None and message_type not in self._types and is_event(message_type)

    def map_url(self, message_type: str) -> str:
        """Canonical of the map for this type.  Problem UNMAPPED when there is none."""
        url = self._generic if self._is_generic(message_type) else self._types.get(message_type)
        if url is None:
            raise Problem(Category.UNMAPPED, f"no StructureMap is installed for {message_type}")
        return url

    def transform(self, claimed: Claimed, overrides: Overrides | None = None) -> Mapped:
        """A stored message to its transaction Bundle: the same message gives the same Bundle.

        Problem UNMAPPED (no map for its type), MAPPING (names map, group and rule), REQUIRED (nothing of what it is
        about would be stored), and those of `check_message`.
        """
        result = self.explain(claimed, overrides)
        made, unmapped = result.made, self.unmapped_codes(result.unmapped)
        is_snapshot = self.environment.identity.sends_snapshots(claimed.source_system, claimed.message_type)
        return Mapped(
            made.bundle, result.map_url, unmapped, made.references, None, made.entries, result.unread,
            result.map_version, not is_snapshot,
        )  # fmt: skip

    def explain(self, claimed: Claimed, overrides: Overrides | None = None, *, trace: bool = False) -> MappingResult:
        """The same with warnings, logs and, on request, a trace."""
        program = self.program_for(claimed.message_type)
        message = Message.parse(claimed.raw, claimed.charset or None)
        key = message_key(claimed.tenant, claimed.source_system, claimed.source_id)
        return self._run(program, self._arranged(message, claimed.message_type), key, overrides, trace=trace)

    def transform_message(self, message: Message, *, checked: bool = True) -> Json:
        """The Bundle of a message that is not stored; uuids are derived from its sender and control id.

        `checked` False: also of a part of a message.
        """
        return self.run(message, checked=checked).bundle

    def run(
        self, message: Message, *, trace: bool = False, overrides: Overrides | None = None, checked: bool = True
    ) -> MappingResult:
        """The same with warnings, logs and, on request, a trace."""
        header = message.header
        key = message_key("", header.source_system, header.source_id)
        program = self.program_for(message.message_type)
        arranged = self._arranged(message, message.message_type, checked=checked)
        return self._run(program, arranged, key, overrides, trace=trace, checked=checked)

    def _arranged(self, message: Message, message_type: str, *, checked: bool = True) -> Message:
        """The message as its map reads it.

        Problem MALFORMED, REQUIRED, VALUE: see `check_message`; UNMAPPED: the generic map finds no patient in it.
        """
        if not self._is_generic(message_type):
            if checked:
                check_message(message, self.environment.without_patient)
            return message
        if not message.segments("PID"):
            reason = "and without a PID the generic map cannot read it"
            raise Problem(Category.UNMAPPED, f"no StructureMap is installed for {message_type}, {reason}")
        arranged = message.arranged_as(GENERIC_STRUCTURE, f"no map for {message_type}: the generic map was used")
        check_message(arranged)
        return arranged

    def _run(
        self,
        program: Program,
        message: Message,
        key: bytes,
        overrides: Overrides | None,
        *,
        trace: bool,
        checked: bool = True,
    ) -> MappingResult:
        started = perf_counter()
        with message_zone(message.header.field(7), self.environment.offset):
            if trace:
                program.run(message, key, overrides=overrides)  # a traced program marks no fields
            bundle, run = program.run(message, key, trace=trace, overrides=overrides)
        made = finished(bundle, run, message_rules(program, message, self.environment.identity))
        if checked:
            check_substance(made, message.header.message_code, program.content)
        if run.trace is not None:
            run.trace.finish(made.bundle(), made.merged)
        return MappingResult(
            made,
            program.content.url,
            tuple(run.unmapped),
            (*message.warnings, *run.warnings),
            tuple(run.logs),
            None if run.steps is None else tuple(run.steps),
            (perf_counter() - started) * 1000,
            Findings(message, program.unread, run.dropped),
            program.version,
        )

    def with_more(self, maps: Iterable[StructureMap]) -> Library:
        """A library of these and other maps, which take precedence; compiled on demand, without message types."""
        return Library(self.maps.with_more(maps), {}, self.environment)

    def with_candidate(self, content: StructureMap) -> Library:
        """A library in which this map replaces the one with its canonical, and takes its message types."""
        types = self._types | dict.fromkeys(types_of(content), content.url)
        made = Library(self.maps.with_more([content]), types, self.environment, compiled=False, generic=self._generic)
        made.packages, made.definitions = self.packages, self.definitions
        made.broken = {url: one for url, one in self.broken.items() if url != content.url}
        return made

    def with_profile(
        self, maps: Iterable[StructureMap], types: Mapping[str, str], concept_maps: Iterable[Mapping[str, Any]]
    ) -> Library:
        """A library with the maps and tables of a profile, which take precedence.

        `types`: canonicals by message type; these are compiled.  Problem MAPPING names file, line and column.
        """
        environment = replace(self.environment, tables=self.environment.tables.with_more(concept_maps))
        made = Library(self.maps.with_more(maps), types, environment)
        made.packages = self.packages
        return made

    def program_for(self, message_type: str) -> Program:
        """The map of a message type, compiled on demand.  Problem UNMAPPED."""
        program = self._by_type.get(message_type)
        if program is None:
            program = self._by_type[message_type] = self.program(self.map_url(message_type))
        return program

    def program(self, canonical: str) -> Program:
        """The map of a canonical (`|version` is ignored), compiled on demand.  Problem UNMAPPED, MAPPING."""
        url = canonical.partition("|")[0]
        if url in self.broken:
            raise self.broken[url].with_traceback(None)
        with self._compiling:
            found = self._programs.get(url)
            if found is None:
                content = self.maps.get(url)
                if content is None:
                    raise Problem(Category.UNMAPPED, f"no StructureMap {url[:200]} is installed")
                program = Program(self._compiler, content)
                if url in self._installed:  # the same mistakes are found, whichever process compiles it
                    self._compiler.check_groups(content)
                found = self._programs[url] = program
        return found

    def check(self, canonical: str) -> None:
        """Compile a map if it can run by itself, and those of its groups that nothing has called.

        Problem UNMAPPED: there is no such map; MAPPING: a mistake in it.
        """
        content = self.maps.get(canonical.partition("|")[0])
        if content is None:
            raise Problem(Category.UNMAPPED, f"no StructureMap {canonical[:200]} is installed")
        if content.groups and [one.mode for one in content.groups[0].inputs] == ["source", "target"]:
            self.program(content.url)
        with self._compiling:
            self._compiler.check_groups(content)

    def find_broken(self) -> Mapping[str, Problem]:
        """`broken`, after the installed maps were compiled; a library that compiles on demand does it at this call."""
        with self._compiling:
            installed, self._unchecked = self._unchecked, ()
            check_installed(self, installed)
        return self.broken

    def is_compiled(self, canonical: str) -> bool:
        """Whether `program` returns without compiling."""
        return canonical.partition("|")[0] in self._programs

    def is_ready(self, message_type: str) -> bool:
        """Whether a message of this type needs no compilation: its map is compiled, or there is none."""
        return message_type in self._by_type or not self.has_map(message_type)

    def compile_as(self, other: Library) -> None:
        """Compile the maps that `other` has compiled, before this library replaces it."""
        for message_type in tuple(other._by_type):
            if self.has_map(message_type) and self.map_url(message_type) not in self.broken:
                self.program_for(message_type)

    def unmapped_codes(self, found: Iterable[Unmapped]) -> tuple[UnmappedCode, ...]:
        """Unmapped codes for operators: ConceptMaps by canonical, each code once.

        A code that neither a table of HL7 has nor the ConceptMap that translates this table is one question.
        """
        if not found:
            return ()
        every = dict.fromkeys(UnmappedCode(self._canonical(one.table), one.code) for one in found)
        return tuple([one for one in every if replace(one, concept_map=translation_of(one.concept_map)) not in every])

    def _canonical(self, name: str) -> str:
        table = self.tables.find(name)
        return table.url if table is not None and table.url else name


@dataclass(frozen=True, slots=True)
class ProfiledMessage:
    """A message after the quirks of its profile.

    `library`: the maps of the profile; None = the profile has no map for the message type.  `origin`: for the audit.
    `source`: of a row that was fetched.  `zone`: of the sender's times without an offset; None: not configured.
    """

    message: Claimed
    library: Library | None = None
    origin: Origin | None = None
    source: PolledSource | None = None
    zone: Offset | None = None


class VendorProfiles(Protocol):
    """The vendor profiles in use."""

    def apply(self, message: Claimed) -> ProfiledMessage | None:
        """Apply the profile of a message; None = it has no profile.  Problem MALFORMED when it cannot be parsed."""

    def has_map(self, message: Claimed) -> bool:
        """Whether the profile of this message has a map for its type."""


def message_key(tenant: str, source_system: str, source_id: str) -> bytes:
    """32 bytes that identify a message: tenant, sender and control id."""
    return blake2b("\0".join((tenant, source_system, source_id)).encode(), digest_size=32).digest()


__all__ = [
    "PACKAGE_TYPES",
    "Library",
    "MappingResult",
    "ProfiledMessage",
    "VendorProfiles",
    "message_key",
]
