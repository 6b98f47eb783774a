"""The maps and code mappings of a process, replaced as a whole while it runs.

What arrives: `build`, which reads and compiles all maps in a thread; the store, with the maps and code mappings that
operators installed, and the epoch of their last change.  What leaves: mapped messages.  A failed reload keeps the maps
in use and reports file, line and column.  A message that is being mapped keeps the maps with which it began.

Every process has one installation.  A change in one process is a new epoch in the store, and a notification makes the
others load it; after a lost notification they find it with the next poll.  A message that is converted again carries
the epoch that it needs, and waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.mapping.language.concepts import Overrides
from ipf.mapping.library import profiled
from ipf.mapping.library.installed_maps import newly_broken
from ipf.mapping.library.maps import Library, MappingResult
from ipf.ports import ALL_SENDERS, Claimed, InstalledMap, Json, Mapped, Mapper, MappingStore, Override
from ipf.ports.threads import without_full_collections

log = Logger()

MAPPING_CHANNEL = "mapping"

Build = Callable[[Sequence[InstalledMap], bool], Library]
"""Compiles all maps, with those installed over HTTP.  True: from the current files; False: from the accepted copy."""

RunInThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function in a thread."""

_Rows = list[tuple[str, str, Json | None]]
_NEVER = datetime.min.replace(tzinfo=UTC)


class OverrideIndex:
    """Code mappings of operators by tenant and sender; those for all senders apply where the sender has none."""

    def __init__(self, rows: Iterable[Override]) -> None:
        self._rows: dict[tuple[str, str], _Rows] = {}
        for one in rows:
            self._rows.setdefault((one.tenant, one.source_system), []).append((one.concept_map, one.code, _coding(one)))
        self._made: dict[tuple[str, str], Overrides | None] = {}

    def of(self, tenant: str, source_system: str) -> Overrides | None:
        """The code mappings of one sender; None when there are none."""
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
    """The maps and code mappings in use.  Call `start` before use."""

    def __init__(self, build: Build, store: MappingStore, run_in_thread: RunInThread) -> None:
        self._build = build
        self._store = store
        self._run_in_thread = run_in_thread
        self._subscribers: list[Callable[[], object]] = []
        self._lock = DeferredLock()
        self._library: Library | None = None
        self._installed: list[InstalledMap] = []
        self._overrides = OverrideIndex(())
        self._epochs = (0, 0)

    def subscribe(self, replaced: Callable[[], object]) -> None:
        """Call `replaced` whenever other maps have come into use."""
        self._subscribers.append(replaced)

    @property
    def library(self) -> Library:
        """The maps in use."""
        assert self._library is not None, "call start() first"
        return self._library

    @property
    def installed(self) -> Sequence[InstalledMap]:
        """The resources installed over HTTP that are in use."""
        return self._installed

    @property
    def epoch(self) -> int:
        """The epoch of the loaded maps and code mappings."""
        return self._epochs[0]

    def has_map(self, message_type: str) -> bool:
        """Whether a map for this type is installed."""
        return self.library.has_map(message_type)

    def overrides_for(self, tenant: str, source_system: str) -> Overrides | None:
        """The loaded code mappings of this sender."""
        return self._overrides.of(tenant, source_system)

    async def start(self) -> None:
        """Load everything.  Problem MAPPING or MALFORMED: a map or table is broken."""
        epochs = await self._store.epochs()
        await self._load_maps(fresh=True)
        await self._load_overrides()
        self._epochs = epochs

    async def refresh(self, at_least: int | None = None, *, fresh: bool = True) -> None:
        """Load changes; no query when the epoch `at_least` is loaded already.

        Problem: the new maps are broken.  The maps in use stay, and the next attempt follows the next change.  `fresh`:
        read the files again when maps changed, and fall back to the accepted copy when they are broken.
        """
        if at_least is not None and self._epochs[0] >= at_least:
            return
        await self._lock.acquire()
        try:
            known, epochs = self._epochs, await self._store.epochs()
            if epochs[0] == known[0]:
                return
            await self._load_overrides()
            self._epochs = epochs
            if epochs[1] != known[1]:
                await self._load_changed(fresh)
        finally:
            self._lock.release()

    async def reload(self, *, fresh: bool = True) -> None:
        """Read all files again, in every process.  Problem: a file is broken, and nothing has changed.

        `fresh` False: read the accepted copy.
        """
        await self._locked(lambda: self._load_maps(fresh=fresh))
        await self._store.maps_changed()
        self._epochs = await self._store.epochs()
        log.info("event=mapping_reloaded message_types={count}", count=len(self.library.message_types))

    async def install(self, resource_type: str, url: str, resource_id: str, resource: Json) -> InstalledMap:
        """Install a StructureMap, ConceptMap or StructureDefinition.

        Problem: it is no model that maps can use, or the maps do not compile with it, and nothing has changed.
        """
        now = await self._store.installed()
        known = next((one for one in now if (one.resource_type, one.url) == (resource_type, url)), None)
        made = InstalledMap(resource_type, known.id if known else resource_id, url, 0, _NEVER, resource)
        await self._try_build([one for one in now if one is not known] + [made], now, url)
        kept = await self._store.install(resource_type, url, resource_id, resource)
        await self.refresh(fresh=False)
        return kept

    async def remove(self, resource_type: str, resource_id: str) -> None:
        """Remove it.  Problem NOT_FOUND, or the maps do not compile without it, and nothing has changed."""
        now = await self._store.installed()
        await self._try_build([one for one in now if (one.resource_type, one.id) != (resource_type, resource_id)], now)
        await self._store.remove(resource_type, resource_id)
        await self.refresh(fresh=False)

    async def _try_build(
        self, installed: Sequence[InstalledMap], now: Sequence[InstalledMap], candidate: str = ""
    ) -> None:
        """Compile all maps, also those without a message type, and discard the result.

        Problem: the candidate is broken, or a map that is not broken `now`.
        """

        def build() -> None:
            with without_full_collections():
                broken = self._build(installed, False).find_broken()
                problem = broken.get(candidate) or newly_broken(self.library.broken, broken)
                if problem is not None and candidate not in broken:  # other processes may have found more
                    problem = newly_broken(self._build(now, False).find_broken(), broken)
                if problem is not None:
                    raise problem.with_traceback(None)

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
        for url, problem in self._library.broken.items():
            if before is None or str(before.broken.get(url)) != str(problem):
                log.error("event=mapping_broken map={url} cannot be used: {reason}", url=url, reason=str(problem))
        self._installed = installed
        if before is not None:
            for replaced in self._subscribers:
                replaced()

    async def _load_overrides(self) -> None:
        self._overrides = OverrideIndex(await self._store.all_overrides())

    async def map(self, message: Claimed) -> Mapped:
        """Message bytes to transaction Bundle."""
        overrides = await self.overrides_of(message)
        library = self.library
        profiles = library.vendor_profiles
        if (
            not message.is_json
            and not library.is_ready(message.message_type)
            and not (profiles and profiles.has_map(message))
        ):
            await self._run_in_thread(lambda: self._compile(library, message.message_type))
        return profiled.transform(library, message, overrides)

    def _compile(self, library: Library, message_type: str) -> None:
        if not library.is_ready(message_type):  # other messages of the batch may have waited for the same map
            library.program_for(message_type)

    async def overrides_of(self, message: Claimed) -> Overrides | None:
        """The code mappings of its sender; loads changes first when the message needs a later epoch."""
        if message.mapping_epoch is not None and message.mapping_epoch > self._epochs[0]:
            await self.refresh(message.mapping_epoch)
        return self._overrides.of(message.tenant, message.source_system)

    def explain(self, message: Claimed) -> MappingResult:
        """The same with a trace."""
        return profiled.explain(self.library, message, self.overrides_for(message.tenant, message.source_system))


class InstalledMapper:
    """`ports.Mapper` on an Installation: the mapping service in this process."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation

    def has_map(self, message_type: str) -> bool:
        """Whether a map for this type is installed."""
        return self._installation.has_map(message_type)

    async def transform(self, message: Claimed) -> Mapped:
        """Message bytes to transaction Bundle; waits only for the epoch that the message needs."""
        return await self._installation.map(message)


async def refresh_safely(installation: Installation) -> None:
    """Load changes after a notification or a poll; a broken map is logged, and the maps in use stay."""
    try:
        await installation.refresh()
    except StoreUnreachable:
        pass  # the store logs it; the next poll finds the change
    except Problem as problem:
        log.error("event=mapping_not_loaded the maps in use are kept: {reason}", reason=str(problem))


_: type[Mapper] = InstalledMapper
