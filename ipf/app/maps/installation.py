"""Maps, code overrides and vendor profiles of this process, loaded at start and kept current.

The main process reads the folders that operators edit, and copies what it accepts.  Converter processes read these
copies, so every process converts with the same maps, whatever happens to the folders meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from ipf.app.maps.check import check_maps, load_maps
from ipf.app.maps.checked import CheckedMaps, installed_digest
from ipf.app.maps.packages import register_search_parameters
from ipf.app.runtime.periodic import run_periodically
from ipf.app.runtime.process import run_in_thread
from ipf.app.runtime.stores import OpenedStores
from ipf.config.paths import folder
from ipf.config.roles import ADMIN, CONVERT, MAPPING
from ipf.config.settings import Settings
from ipf.mapping.library.installation import MAPPING_CHANNEL, Build, Installation, refresh_safely
from ipf.mapping.library.installed_maps import newly_broken
from ipf.mapping.library.maps import Library
from ipf.mapping.library.snapshot import MapSnapshot
from ipf.ports import InstalledMap
from ipf.vendor_profiles.folder import ProfileFolder, prepare_copies_folder
from ipf.vendor_profiles.registry import Deployment, port_of

_POLL_SECONDS = 5.0  # how late a change is seen when its notification is lost


@dataclass(frozen=True, slots=True)
class Maps:
    """The maps of the main process.

    `folder`: the accepted maps, for converter processes.  `were_known`: those of the start had compiled before.
    """

    installation: Installation
    profiles: ProfileFolder
    folder: Path
    were_known: bool


class LibraryLoader:
    """Loads the maps of a folder, and keeps the last library that it loaded.

    A folder of accepted maps never changes.  When only vendor profiles or the same maps are loaded again, the compiled
    maps stay in use.  `checked`: compile maps in a child process before they are accepted; `first_checked` False:
    except those of the start.  Maps that have compiled before are neither compiled nor checked (`checked.py`).
    """

    def __init__(
        self,
        settings: Settings,
        profiles: ProfileFolder,
        *,
        compiled: bool = False,
        checked: bool = False,
        first_checked: bool = True,
    ) -> None:
        self._settings = settings
        self._profiles = profiles
        self._compiled = compiled
        self._checked = checked
        self._first_checked = first_checked
        self._known = CheckedMaps(settings)
        self._key: tuple[Path, bytes] | None = None
        self._library: Library | None = None
        self._knows_all_broken = False

    @property
    def knows_maps(self) -> bool:
        """Whether the maps that were loaded last had compiled before."""
        return self._known.are_known

    def load(self, installed: Sequence[InstalledMap], maps: Path, fresh: bool) -> Library:
        """The library of a folder and of maps installed over HTTP, with the vendor profiles that fit.

        `fresh`: read the folder of vendor profiles again.  Problem: a changed folder breaks an installed map.
        """
        library = copy(self._load(installed, maps, fresh))
        library.vendor_profiles = self._profiles.build(library, fresh=fresh)
        return library

    def _load(self, installed: Sequence[InstalledMap], maps: Path, fresh: bool) -> Library:
        key, before = (maps, installed_digest(installed)), self._library
        if before is None or self._key != key:
            is_known = self._known.look_up(installed, maps)
            is_checked = self._checked and (self._first_checked or before is not None)
            found = check_maps(installed, maps) if is_checked and not is_known else {}
            library = load_maps(self._settings, installed, maps, compiled=self._compiled and not is_known)
            library.broken = found | library.broken
            if fresh and before is not None:
                self._refuse_newly_broken(before, library, installed)
            self._library, self._key = library, key
            self._knows_all_broken = self._compiled or is_checked or is_known
            if self._compiled and not library.broken:
                self._known.note()
            return library
        return before

    def _refuse_newly_broken(self, before: Library, after: Library, installed: Sequence[InstalledMap]) -> None:
        """Problem: a changed folder breaks a map.  Of a start without a check only installed maps are known."""
        urls = {one.url for one in installed} if not self._knows_all_broken else after.broken.keys()
        known = before.find_broken() if after.broken else {}
        problem = newly_broken(known, {url: one for url, one in after.broken.items() if url in urls})
        if problem is not None:
            raise problem


async def open_maps(settings: Settings, stores: OpenedStores, reactor: Any, stack: AsyncExitStack) -> Maps:
    """Load search parameters, maps and vendor profiles of the main process.

    Problem MAPPING or MALFORMED names the file and the place that is invalid.  Maps that have not compiled before are
    compiled by each converter process as it starts, which reports the Problem (`ConverterProcesses.started`): they are
    not compiled here as well, which took most of the time of a start.
    """
    register_search_parameters(settings)
    snapshot = MapSnapshot(maps_folder(settings), Path(settings.data_dir, f"maps-{os.getpid()}"))
    stack.callback(snapshot.remove)
    copies = prepare_copies_folder(Path(settings.data_dir, f"profiles-{os.getpid()}"))
    profiles = ProfileFolder(Path(settings.profile_dir), site_of(settings), copies)
    stack.callback(profiles.remove)
    converts, has_converters = settings.runs(CONVERT), settings.worker_processes > 0
    is_used = settings.runs(CONVERT, MAPPING, ADMIN)  # other roles only ask which message types have a map
    compiled = converts and not has_converters
    loader = LibraryLoader(
        settings, profiles, compiled=compiled, checked=is_used and not compiled, first_checked=not converts
    )

    def build(installed: Sequence[InstalledMap], fresh: bool) -> Library:
        return snapshot.build(lambda maps: loader.load(installed, maps, fresh), fresh=fresh)

    installation = await _start(build, stores, reactor, stack)
    return Maps(installation, profiles, snapshot.current, loader.knows_maps)


async def open_accepted_maps(
    settings: Settings, stores: OpenedStores, reactor: Any, stack: AsyncExitStack
) -> Installation:
    """Load what the main process accepted, in a converter process.

    All maps are compiled before the process counts as started, unless these have compiled before (`checked.py`): then
    each is compiled when its first message comes.
    """
    register_search_parameters(settings)
    profiles = ProfileFolder(Path(settings.profile_dir), site_of(settings))
    loader = LibraryLoader(settings, profiles, compiled=True)

    def build(installed: Sequence[InstalledMap], fresh: bool) -> Library:
        return loader.load(installed, maps_folder(settings).resolve(), fresh)

    return await _start(build, stores, reactor, stack)


async def _start(build: Build, stores: OpenedStores, reactor: Any, stack: AsyncExitStack) -> Installation:
    """An installation that loads changes at each notification, and every few seconds."""
    installation = Installation(build, stores.codes, run_in_thread)
    await installation.start()

    async def refresh() -> None:
        await refresh_safely(installation)

    stores.notifier.subscribe(MAPPING_CHANNEL, lambda: Deferred.fromCoroutine(refresh()))
    run_periodically(_POLL_SECONDS, refresh, "loading changed maps", reactor, stack, now=False)
    return installation


def maps_folder(settings: Settings) -> Path:
    """The folder of maps of this installation."""
    return Path(settings.maps_dir) if settings.maps_dir else folder("maps")


def site_of(settings: Settings) -> Deployment:
    """Listeners and tenants of this installation, which vendor profiles refer to."""
    ports = {one.name: port_of(one.endpoint) for one in settings.mllp_listen}
    known = {name: port for name, port in ports.items() if port is not None}
    return Deployment(known, dict(settings.mllp_tenants), frozenset(settings.tenants))
