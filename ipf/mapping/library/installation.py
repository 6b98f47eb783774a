"""What a process maps with, swapped whole while it runs: compiled maps, and operators' answers for codes.

What arrives: `build`, which reads and compiles everything aside; the store, which knows what operators installed and
answered, and when that last changed (epochs).  What leaves: mapped messages.  A reload that fails leaves what is there
in use, and says file, line and column.  A message that is being mapped keeps the maps that it began with.

Every process has one of these.  A change made in one is a new epoch in the store; the others are rung for and load it.
A lost ring costs a poll interval; a message that is converted again says what epoch it must see, and waits for that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.mapping.language.concepts import Overrides
from ipf.mapping.library import profiled as placed
from ipf.mapping.library.maps import Library, Result
from ipf.ports import ALL_SENDERS, Claimed, Installed, Json, Mapped, Mapper, MappingStore, Override

log = Logger()

BELL = "mapping"

Build = Callable[[Sequence[Installed], bool], Library]
"""Compiles everything, with what was installed; True: from the files as they are now, else as they were accepted."""

RunInThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function where it does not hold up the reactor."""

_Rows = list[tuple[str, str, Json | None]]
_NEVER = datetime.min.replace(tzinfo=UTC)


class CodeAnswers:
    """Operators' answers by tenant and sender; those for all senders count where the sender has none of its own."""

    def __init__(self, rows: Iterable[Override]) -> None:
        self._rows: dict[tuple[str, str], _Rows] = {}
        for one in rows:
            self._rows.setdefault((one.tenant, one.source_system), []).append((one.concept_map, one.code, _coding(one)))
        self._made: dict[tuple[str, str], Overrides | None] = {}

    def of(self, tenant: str, source_system: str) -> Overrides | None:
        """What counts for one sender; None when nobody answered anything for it."""
        if not self._rows:
            return None
        key = (tenant, source_system)
        if key not in self._rows:
            key = (tenant, ALL_SENDERS)
        if key not in self._made:
            rows = [*self._rows.get((tenant, ALL_SENDERS), ()), *self._rows.get(key, ())]
            self._made[key] = Overrides(rows) if rows else None
        return self._made[key]


def _coding(one: Override) -> Json | None:
    if one.target_code is None:
        return None
    parts = {"system": one.target_system, "code": one.target_code, "display": one.target_display}
    return {name: value for name, value in parts.items() if value}


class Installation:
    """The maps and answers in use.  `start` before use."""

    def __init__(self, build: Build, store: MappingStore, run_in_thread: RunInThread) -> None:
        self._build = build
        self._store = store
        self._run_in_thread = run_in_thread
        self._subscribers: list[Callable[[], object]] = []
        self._lock = DeferredLock()
        self._library: Library | None = None
        self._installed: list[Installed] = []
        self._answers = CodeAnswers(())
        self._epochs = (0, 0)

    def subscribe(self, replaced: Callable[[], object]) -> None:
        """Call `replaced` whenever other maps have come into use."""
        self._subscribers.append(replaced)

    @property
    def library(self) -> Library:
        """The maps in use."""
        assert self._library is not None, "start() comes first"
        return self._library

    @property
    def installed(self) -> Sequence[Installed]:
        """What was installed over HTTP, as it is in use."""
        return self._installed

    @property
    def epoch(self) -> int:
        """What is loaded."""
        return self._epochs[0]

    def has_map(self, message_type: str) -> bool:
        """Whether a map for this type is installed."""
        return self.library.has_map(message_type)

    def answers_for(self, tenant: str, source_system: str) -> Overrides | None:
        """What operators answered for codes of this sender."""
        return self._answers.of(tenant, source_system)

    async def start(self) -> None:
        """Load everything.  Problem MAPPING or MALFORMED: something of it is broken."""
        epochs = await self._store.epochs()
        await self._load_maps(fresh=True)
        await self._load_answers()
        self._epochs = epochs

    async def refresh(self, at_least: int | None = None, *, fresh: bool = True) -> None:
        """Load what changed since; nothing is asked when `at_least` is loaded already.  Problem: the new maps are
        broken (those in use stay, and are not tried again until something changes).

        `fresh`: files are read again when maps changed; when those are broken, the files as they were accepted.
        """
        if at_least is not None and self._epochs[0] >= at_least:
            return
        await self._lock.acquire()
        try:
            known, epochs = self._epochs, await self._store.epochs()
            if epochs[0] == known[0]:
                return
            await self._load_answers()
            self._epochs = epochs
            if epochs[1] != known[1]:
                await self._load_changed(fresh)
        finally:
            self._lock.release()

    async def reload(self, *, fresh: bool = True) -> None:
        """Read all files again; every process does so.  Problem: something is broken, and nothing has changed.

        `fresh` False: the files as they were accepted last, when something beside them has changed.
        """
        await self._locked(lambda: self._load_maps(fresh=fresh))
        await self._store.maps_changed()
        self._epochs = await self._store.epochs()
        log.info("event=mapping_reloaded message_types={count}", count=len(self.library.message_types))

    async def install(self, resource_type: str, url: str, resource_id: str, resource: Json) -> Installed:
        """Accept a StructureMap or ConceptMap when everything compiles with it.  Problem: it does not."""
        now = await self._store.installed()
        known = next((one for one in now if (one.resource_type, one.url) == (resource_type, url)), None)
        made = Installed(resource_type, known.id if known else resource_id, url, 0, _NEVER, resource)
        await self._try([one for one in now if one is not known] + [made])
        kept = await self._store.install(resource_type, url, resource_id, resource)
        await self.refresh(fresh=False)
        return kept

    async def remove(self, resource_type: str, resource_id: str) -> None:
        """Take it away, when everything compiles without it.  Problem NOT_FOUND, or what breaks."""
        now = await self._store.installed()
        await self._try([one for one in now if (one.resource_type, one.id) != (resource_type, resource_id)])
        await self._store.remove(resource_type, resource_id)
        await self.refresh(fresh=False)

    async def _try(self, installed: Sequence[Installed]) -> None:
        """Compile all, also what no message type names, and forget it."""

        def build() -> None:
            library = self._build(installed, False)
            for one in installed:
                if one.resource_type == "StructureMap":
                    library.check(one.url)

        await self._locked(lambda: self._run_in_thread(build))

    async def _locked(self, work: Callable[[], Awaitable[Any]]) -> None:
        await self._lock.acquire()
        try:
            await work()
        finally:
            self._lock.release()

    async def _load_changed(self, fresh: bool) -> None:
        try:
            await self._load_maps(fresh=fresh)
        except Problem as problem:
            if not fresh:
                raise
            log.error("event=mapping_not_loaded files are broken: {reason}", reason=str(problem))
            await self._load_maps(fresh=False)

    async def _load_maps(self, *, fresh: bool) -> None:
        installed = await self._store.installed()
        before = self._library

        def build() -> Library:
            library = self._build(installed, fresh)
            if before is not None:
                library.compile_as(before)
            return library

        self._library = await self._run_in_thread(build)
        self._installed = installed
        if before is not None:
            for replaced in self._subscribers:
                replaced()

    async def _load_answers(self) -> None:
        self._answers = CodeAnswers(await self._store.all_overrides())

    # -- the engine's side

    async def map(self, message: Claimed) -> Mapped:
        """Message bytes to transaction Bundle."""
        overrides = await self.answers_of(message)
        library = self.library
        if not library.is_ready(message.message_type) and not (library.vendors and library.vendors.maps(message)):
            await self._run_in_thread(lambda: self._compile(library, message.message_type))
        return placed.transform(library, message, overrides)

    def _compile(self, library: Library, message_type: str) -> None:
        if not library.is_ready(message_type):  # of a batch of its first messages each asks for it
            library.program_for(message_type)

    async def answers_of(self, message: Claimed) -> Overrides | None:
        """What operators answered for codes of its sender, loaded first as far as the message must see it."""
        if message.mapping_epoch is not None and message.mapping_epoch > self._epochs[0]:
            await self.refresh(message.mapping_epoch)
        return self._answers.of(message.tenant, message.source_system)

    def explain(self, message: Claimed) -> Result:
        """The same with a trace."""
        return placed.explain(self.library, message, self.answers_for(message.tenant, message.source_system))


class InstalledMapper:
    """`ports.Mapper` on an Installation: the mapping service in this process."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation

    def has_map(self, message_type: str) -> bool:
        """Whether a map for this type is installed."""
        return self._installation.has_map(message_type)

    async def transform(self, message: Claimed) -> Mapped:
        """Message bytes to transaction Bundle; waits only for answers that the message must see."""
        return await self._installation.map(message)


async def keep_fresh(installation: Installation) -> None:
    """One look for changes, as a notifier or a timer asks for it; what is broken is said and the old stays in use."""
    try:
        await installation.refresh()
    except StoreUnreachable:
        pass  # the store says so itself; the next look finds what changed
    except Problem as problem:
        log.error("event=mapping_not_loaded the maps in use stay: {reason}", reason=str(problem))


_: type[Mapper] = InstalledMapper
