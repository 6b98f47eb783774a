"""The maps of an installation: read and compiled at start, chosen by message type.

What arrives: a folder (`messages/*.fml`, `segments/*.fml`, `datatypes/*.fml`, `codesystems/*.json`) and then messages.
What leaves: transaction Bundles.  A map with a mistake stops `Library.load` with file, line and column, so it stops the
start and not a message.  A library never changes; a reload makes a new one.

The map of a message type is `messages/<type>.fml`, or one that names the type in `/// types = "ADT_A01 ADT_A04"`.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from time import perf_counter

from ipf.errors import Category, Problem
from ipf.hl7.message import Message
from ipf.mapping.compile import Compiler, Environment, Program
from ipf.mapping.concepts import ConceptTables, load_tables
from ipf.mapping.conversions import Offset
from ipf.mapping.grammar import parse
from ipf.mapping.identity import complete
from ipf.mapping.kinds import Models
from ipf.mapping.model import StructureMap
from ipf.mapping.run import Unmapped
from ipf.mapping.trace import Step
from ipf.ports import Claimed, Json, Mapped, Mapper

MESSAGES = "messages"
_FOLDERS = ("datatypes", "segments", MESSAGES)


@dataclass(frozen=True, slots=True)
class Result:
    """One message, mapped: the transaction Bundle, and what an operator may want to know about how it came to be.

    `unmapped`: codes that no table had.  `steps`: the rules that ran, only when a trace was asked for.
    """

    bundle: Json
    map_url: str
    unmapped: tuple[Unmapped, ...]
    warnings: tuple[str, ...]
    logs: tuple[str, ...]
    steps: tuple[Step, ...] | None
    milliseconds: float


class Library:
    """Compiled maps by message type, and by canonical url."""

    def __init__(self, maps: list[StructureMap], types: dict[str, StructureMap], environment: Environment) -> None:
        compiler = Compiler(maps, environment)
        entries = {content.url: content for content in types.values()}
        programs = {url: Program(compiler, content) for url, content in entries.items()}
        self._by_type = {message_type: programs[content.url] for message_type, content in types.items()}
        self.maps = {content.url: content for content in maps}
        self.tables = environment.tables

    @classmethod
    def load(cls, folder: Path, *, offset: Offset = "Z") -> Library:
        """Read and compile a folder of maps.  Problem MAPPING names file, line and column of the first mistake.

        `offset`: the zone of times in messages that name none.
        """
        codesystems = folder / "codesystems"
        tables = load_tables(codesystems) if codesystems.is_dir() else ConceptTables()
        maps: list[StructureMap] = []
        types: dict[str, StructureMap] = {}
        for name in _FOLDERS:
            for path in sorted((folder / name).glob("*.fml")):
                content = _read(path, folder, maps)
                maps.append(content)
                if name == MESSAGES:
                    for message_type in (path.stem, *content.meta("types").replace(",", " ").split()):
                        types[message_type] = content
        return cls(maps, types, Environment(Models(), tables, offset))

    @property
    def message_types(self) -> tuple[str, ...]:
        """Types that have a map, in order of their names."""
        return tuple(sorted(self._by_type))

    def has_map(self, message_type: str) -> bool:
        """Whether messages of this type (`ADT_A01`) can be mapped."""
        return message_type in self._by_type

    def map_url(self, message_type: str) -> str:
        """Canonical of the map for this type.  Problem UNMAPPED when there is none."""
        return self._program(message_type).content.url

    def transform(self, claimed: Claimed) -> Mapped:
        """A stored message to its transaction Bundle: the same message gives the same Bundle.

        Problem UNMAPPED (no map for its type), MALFORMED (no message), MAPPING (names map, group and rule).
        """
        program = self._program(claimed.message_type)
        message = Message.parse(claimed.raw, claimed.charset or None)
        key = message_key(claimed.tenant, claimed.source_system, claimed.source_id)
        return Mapped(_run(program, message, key, trace=False).bundle, program.content.url)

    def transform_message(self, message: Message) -> Json:
        """The Bundle of a message that is not stored; uuids are made from its sender and control id."""
        return self.run(message).bundle

    def run(self, message: Message, *, trace: bool = False) -> Result:
        """The same, with everything that was noticed on the way."""
        header = message.header
        key = message_key("", header.source_system, header.source_id)
        return _run(self._program(message.message_type), message, key, trace=trace)

    def _program(self, message_type: str) -> Program:
        program = self._by_type.get(message_type)
        if program is None:
            raise Problem(Category.UNMAPPED, f"no StructureMap is installed for {message_type}")
        return program


def _run(program: Program, message: Message, key: bytes, *, trace: bool) -> Result:
    started = perf_counter()
    bundle, run = program.run(message, key, trace=trace)
    complete(bundle, run)
    if run.trace is not None:
        run.trace.finish(bundle, run.merged)
    return Result(
        bundle,
        program.content.url,
        tuple(run.unmapped),
        (*message.warnings, *run.warnings),
        tuple(run.logs),
        None if run.steps is None else tuple(run.steps),
        (perf_counter() - started) * 1000,
    )


def message_key(tenant: str, source_system: str, source_id: str) -> bytes:
    """32 bytes that identify a message: who sent it, and its control id there."""
    return blake2b("\0".join((tenant, source_system, source_id)).encode(), digest_size=32).digest()


def _read(path: Path, folder: Path, known: list[StructureMap]) -> StructureMap:
    name = path.relative_to(folder).as_posix()
    try:
        content = parse(path.read_text(encoding="utf-8"), name)
    except UnicodeDecodeError as error:
        raise Problem(Category.MAPPING, f"is not UTF-8 at byte {error.start}", name) from None
    twin = next((one for one in known if one.url == content.url), None)
    if twin is not None:
        raise Problem(Category.MAPPING, f"has the url of {twin.file}: {content.url}", name)
    return content


class LocalMapper:
    """The mapping service in this process, as the engine sees it."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def has_map(self, message_type: str) -> bool:
        """Whether a map for this type is installed."""
        return self._library.has_map(message_type)

    async def transform(self, message: Claimed) -> Mapped:
        """Message bytes to transaction Bundle.  Does not wait for anything."""
        return self._library.transform(message)


_: type[Mapper] = LocalMapper

__all__ = ["Library", "LocalMapper", "Result", "message_key"]
