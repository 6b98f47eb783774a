"""The mapping half of the composition root: maps, codes and vendor profiles of this installation, for every process.

The main process reads the folders that people edit and keeps copies of what it accepted; converter processes read
these copies (`converter.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from ipf.app.map_check import check_maps, load_maps
from ipf.config.paths import folder
from ipf.config.settings import Settings
from ipf.errors import Problem, StoreUnreachable
from ipf.fhir.model.json import dumps
from ipf.mapping.library.installation import BELL, Installation, InstalledMapper, keep_fresh
from ipf.mapping.library.maps import Library
from ipf.mapping.library.profiled import ProfiledMapper
from ipf.mapping.library.snapshot import Snapshot
from ipf.ports import Claimed, Clock, Installed, Mapped, Mapper
from ipf.vendor_profiles.folder import ProfileFolder
from ipf.vendor_profiles.registry import Site, port_of

if TYPE_CHECKING:
    from ipf.app.converter import Stores
    from ipf.wire.client.mapper_client import Codings
    from ipf.wire.client.remote_service import Credentials

log = Logger(namespace="ipf.app.maps")

_LOOK_SECONDS = 5.0  # a lost ring costs no more


def maps_folder(settings: Settings) -> Path:
    """The folder of maps of this installation."""
    return Path(settings.maps_dir) if settings.maps_dir else folder("maps")


def site_of(settings: Settings) -> Site:
    """What a vendor profile meets here."""
    ports = {one.name: port_of(one.endpoint) for one in settings.mllp_listen}
    known = {name: port for name, port in ports.items() if port is not None}
    return Site(known, dict(settings.mllp_tenants), frozenset(settings.tenants))


def accepted_profiles(settings: Settings) -> ProfileFolder:
    """The profiles of a converter process: what the main process accepted."""
    return ProfileFolder(Path(settings.profile_dir), site_of(settings))


async def open_installation(
    settings: Settings,
    stores: Stores,
    reactor: Any,
    profiles: ProfileFolder,
    swapped: Callable[[], object],
    compiled: Callable[[], object],
    snapshot: Snapshot | None = None,
) -> Installation:
    """The maps and answers in use, kept fresh from now on: at each ring, and every few seconds.

    `snapshot`: of the process that people ask to read its maps again; a converter process reads the copy of that one,
    and compiles a map when its first message comes.  `swapped`, `compiled`: see `Installation`.  Problem MAPPING or
    MALFORMED: something is broken.
    """

    converts = snapshot is not None and settings.worker_enabled and settings.worker_processes == 0
    kept: tuple[object, Library] | None = None

    def build(installed: Sequence[Installed], fresh: bool) -> Library:
        def load(maps: Path) -> Library:
            nonlocal kept
            key = (maps, _digest(installed))
            if kept is None or kept[0] != key:  # a copy of maps never changes, so what was compiled of it stands
                if snapshot is not None and not converts:
                    check_maps(installed, maps)
                kept = key, load_maps(settings, installed, maps, compiled=converts)
            library = copy(kept[1])
            library.vendors = profiles.build(library, fresh=fresh)
            return library

        if snapshot is None:
            return load(maps_folder(settings).resolve())
        return snapshot.build(load, fresh=fresh)

    installation = Installation(build, stores.codes, run_in_thread, swapped, compiled)
    await installation.start()

    def look() -> None:
        Deferred.fromCoroutine(keep_fresh(installation))

    stores.inbox_notifier.subscribe(BELL, look)
    looking = LoopingCall(look)
    looking.clock = reactor
    looking.start(_LOOK_SECONDS, now=False)
    stores.closers.append(looking.stop)
    return installation


def _digest(installed: Sequence[Installed]) -> bytes:
    """Of what was installed over HTTP."""
    made = blake2b(digest_size=16)
    for one in installed:
        made.update(dumps([one.resource_type, one.id, one.url, one.resource]))
    return made.digest()


async def run_in_thread(work: Callable[[], Any]) -> Any:
    """Run a function in a thread, where it does not hold up the reactor."""
    return await deferToThread(work)


def mapper_of(settings: Settings, installation: Installation, reactor: Any) -> Mapper:
    """The mapping service that the engine uses: the one in this process, or that at `IPF_MAPPING_URL`.

    What a vendor profile maps is mapped in this process either way.
    """
    learn = MappedByVendor(installation, lambda: datetime.now(UTC)).learn
    listeners = frozenset(one.name for one in settings.mllp_listen)
    if settings.mapping_url is None:
        return KnowingMapper(InstalledMapper(installation), listeners, learn)
    # an HTTP client and TLS are 15 MiB: only where something is elsewhere
    from ipf.wire.client.mapper_client import RemoteMapper
    from ipf.wire.client.remote_service import RemoteService

    async def answers(message: Claimed) -> Codings | None:
        overrides = await installation.answers_of(message)
        return None if overrides is None else overrides.by_table

    def canonical(message_type: str) -> str | None:
        if settings.mapping_source is not None:
            return settings.mapping_source.replace("{message_type}", message_type)
        return installation.library.map_url(message_type) if installation.has_map(message_type) else None

    remote = RemoteService(reactor, settings.mapping_timeout_ms / 1000, "the mapping service", credentials_of(settings))
    elsewhere = RemoteMapper(remote, settings.mapping_url, canonical, answers)
    placed = ProfiledMapper(elsewhere, lambda: installation.library, installation.answers_of)
    return KnowingMapper(placed, listeners, learn)


class MappedByVendor:
    """Whether a vendor profile takes a message out of the pass-through branch.

    A message that came after a profile was loaded must never be passed through by a process that has not heard of the
    profile yet: so this process first learns what is in use, when it last did so before the message came.
    """

    def __init__(self, installation: Installation, clock: Clock) -> None:
        self._installation = installation
        self._clock = clock
        self._knows_until = datetime.min.replace(tzinfo=UTC)

    async def __call__(self, message: Claimed) -> bool:
        """Whether its profile maps it."""
        await self.learn(message)
        vendors = self._installation.library.vendors
        return vendors is not None and vendors.maps(message)

    async def learn(self, message: Claimed) -> None:
        """Know all profiles that were loaded when this message came; asks the store once for all that are there."""
        if message.received_at >= self._knows_until:
            moment = self._clock()
            try:
                await self._installation.refresh()
                self._knows_until = moment
            except StoreUnreachable:
                pass  # the store says so itself
            except Problem as problem:
                log.error("event=mapping_not_loaded the maps in use stay: {reason}", reason=str(problem))


class KnowingMapper:
    """`ports.Mapper`: a message of a listener that the settings do not have came in on the port of a profile, which
    may be newer than what this process knows: then it learns of it first."""

    def __init__(self, mapper: Mapper, listeners: frozenset[str], learn: Callable[[Claimed], Awaitable[None]]) -> None:
        self._mapper = mapper
        self._listeners = listeners
        self._learn = learn

    def has_map(self, message_type: str) -> bool:
        """See `Mapper.has_map`."""
        return self._mapper.has_map(message_type)

    async def transform(self, message: Claimed) -> Mapped:
        """See `Mapper.transform`."""
        if message.listener not in self._listeners:
            await self._learn(message)
        return await self._mapper.transform(message)


def credentials_of(settings: Settings) -> Credentials | None:
    """How this process shows who it is to services elsewhere; None: it does not."""
    if not (settings.fhir_token_url and settings.fhir_client_id and settings.fhir_client_secret):
        return None
    from ipf.wire.client.remote_service import Credentials  # see `mapper_of`

    return Credentials(
        settings.fhir_token_url, settings.fhir_client_id, settings.fhir_client_secret, settings.fhir_scope or ""
    )
