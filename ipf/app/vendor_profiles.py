"""Vendor profiles of a running service: what is in use, its listeners, and reading the folder again.

Part of the composition root.  A reload checks every archive aside, then swaps maps and rules whole, in this process
first; converter processes and replicas are rung for.  Meanwhile messages are taken and converted as before.  A port
that a profile names and no listener of the settings has is opened when the profile is loaded, and closed when none
names it any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger
from twisted.python.failure import Failure

from ipf.app.maps import run_in_thread, site_of
from ipf.config.parsers import Listener
from ipf.config.settings import Settings
from ipf.errors import Problem
from ipf.hl7.header import Header
from ipf.mapping.library.installation import Installation, RunInThread
from ipf.pipeline.receive.receive import ApplyProfile, MllpListener, Receiver
from ipf.ports import DEFAULT_TENANT, Json
from ipf.ports.profiles import ProfileAdmin
from ipf.telemetry.logs import event_line
from ipf.vendor_profiles.findings import WARNING, Finding, Findings
from ipf.vendor_profiles.folder import ProfileFolder, swept
from ipf.vendor_profiles.profile import Profile, about, check_profile, mappings
from ipf.vendor_profiles.quirks import control_id, fallback_charset
from ipf.vendor_profiles.registry import Shelf, listener_name

log = Logger(namespace="ipf.app.vendor_profiles")

Close = Callable[[], Awaitable[object]]
Open = Callable[[Listener], Awaitable[Close]]
"""Opens a listener; what closes it.  Problem UNAVAILABLE when that cannot be."""


class Vendors:
    """`ports.ProfileAdmin`.  `folder`: for `open_installation`; then `use` what it gives, and `attach` the doors."""

    def __init__(self, settings: Settings, pid: int, run_in_thread: RunInThread = run_in_thread) -> None:
        root = swept(Path(settings.data_dir, f"profiles-{pid}"))
        self.site = site_of(settings)
        self.folder = ProfileFolder(Path(settings.profile_dir), self.site, root)
        self._installation: Installation | None = None
        self._receiver: Receiver | None = None
        self._open: Open | None = None
        self._closers: dict[int, Close] = {}
        self._unopened: dict[int, str] = {}
        self._lock = DeferredLock()
        self._port_lock = DeferredLock()
        self._told: object = None
        self._run_in_thread = run_in_thread

    @property
    def shelf(self) -> Shelf | None:
        """The profiles in use."""
        vendors = None if self._installation is None else self._installation.library.vendors
        return vendors if isinstance(vendors, Shelf) else None

    def use(self, installation: Installation) -> None:
        """The maps and profiles of this process."""
        self._installation = installation
        self._tell(self.shelf)

    async def attach(self, receiver: Receiver, open_listener: Open) -> None:
        """Let the receiver know the profiles, and open their listeners."""
        self._receiver, self._open = receiver, open_listener
        self.swapped()
        await self._ports()

    def swapped(self) -> None:
        """Other maps or profiles are in use."""
        shelf = self.shelf
        self._tell(shelf)
        if self._receiver is not None:
            self._receiver.apply_profile = placing(shelf) if shelf is not None else None
            Deferred.fromCoroutine(self._ports()).addErrback(_not_expected)

    async def close(self) -> None:
        """Close the listeners of profiles."""
        self._open = None
        closers, self._closers = self._closers, {}
        for close in closers.values():
            await close()

    # -- the desk

    def describe(self) -> Json:
        """See `ProfileAdmin.describe`."""
        profiles = self.shelf.profiles if self.shelf is not None else ()
        return {
            "loaded": [self._shown(profile) for profile in sorted(profiles, key=lambda one: one.file)],
            "skipped": [one.as_json() for one in self.folder.skipped],
        }

    async def validate(self, archive: bytes) -> Json:
        """See `ProfileAdmin.validate`."""
        installation = self._installation
        assert installation is not None, "use() comes first"

        def check() -> Json:
            checked = check_profile(archive, "archive", installation.library)
            findings = Findings()
            if checked.manifest is not None:
                self.site.check(checked.manifest, findings)
            profile = None if findings.errors else checked.profile
            found = (*checked.findings, *findings.items)
            return replace(checked, findings=found, profile=profile).as_json()

        await self._lock.acquire()
        try:
            answer: Json = await self._run_in_thread(check)
            return answer
        finally:
            self._lock.release()

    async def reload(self) -> Json:
        """See `ProfileAdmin.reload`."""
        installation = self._installation
        assert installation is not None, "use() comes first"
        await self._lock.acquire()
        try:
            await self._run_in_thread(lambda: self.folder.look(installation.library))
            await installation.reload(fresh=False)
            self.swapped()
            await self._ports()
        finally:
            self._lock.release()
        return self.describe()

    async def health(self) -> Json:
        """Details for the health of the service; RuntimeError when something of the folder is not in use."""
        wrong = [*map(str, self.folder.skipped), *self._unopened.values()]
        if wrong:
            raise RuntimeError("; ".join(wrong))
        profiles = self.shelf.profiles if self.shelf is not None else ()
        return {"loaded": [f"{one.manifest.id} {one.manifest.version}" for one in profiles]}

    def _shown(self, profile: Profile) -> Json:
        problems = list(self.folder.warnings.get(profile.file, ()))
        for item in profile.manifest.ingest:
            if item.port in self._unopened:
                text = self._unopened[item.port]
                problems.append(Finding("manifest.yaml", f"{item.pointer}/port", text, WARNING, item.line))
        return {
            "file": profile.file,
            "profile": about(profile.manifest),
            "mappings": mappings(profile.manifest, profile),
            "ingest": [
                {
                    "id": item.id,
                    "port": item.port,
                    "facilityResolver": item.resolver,
                    "facilities": list(item.facilities),
                    "tenant": item.tenant or DEFAULT_TENANT,
                }
                for item in profile.manifest.ingest
            ],
            "quirks": profile.manifest.quirks,
            "problems": [one.as_json() for one in problems],
        }

    def _tell(self, shelf: Shelf | None) -> None:
        """A line for each profile when others are in use, and one for each that is not."""
        now = (tuple(one.digest for one in shelf.profiles) if shelf is not None else (), self.folder.skipped)
        if now == self._told or (self._told is None and now == ((), ())):
            return
        self._told = now
        for profile in shelf.profiles if shelf is not None else ():
            manifest = profile.manifest
            log.info(event_line("profile_loaded", file=profile.file, id=manifest.id, version=manifest.version))
        for skipped in self.folder.skipped:
            log.error(event_line("profile_skipped", reason=str(skipped), kept=skipped.kept))

    # -- listeners

    async def _ports(self) -> None:
        """Open what profiles name and nobody listens on; close what no profile names any more."""
        if self._open is None:
            return
        await self._port_lock.acquire()
        try:
            await self._listen(self._open)
        finally:
            self._port_lock.release()

    async def _listen(self, open_listener: Open) -> None:
        taken = set(self.site.ports.values())
        profiles = self.shelf.profiles if self.shelf is not None else ()
        wanted = {item.port for one in profiles for item in one.manifest.ingest if item.port is not None} - taken
        for port in set(self._closers) - wanted:
            await self._closers.pop(port)()
        self._unopened = {}
        for port in sorted(wanted - set(self._closers)):
            name = listener_name(port)
            try:
                self._closers[port] = await open_listener(Listener(name, name))
            except Problem as problem:
                self._unopened[port] = str(problem)
                log.error(event_line("profile_port_closed", port=port, reason=str(problem)))


def _not_expected(failure: Failure) -> None:
    log.failure("listeners of profiles could not be changed", failure)


def placing(shelf: Shelf) -> ApplyProfile:
    """What the receiver asks for each message while there are profiles."""
    made: dict[tuple[MllpListener, int], MllpListener] = {}

    def place(frame: bytes, header: Header, listener: MllpListener) -> MllpListener:
        rule = shelf.rule_for(listener.name, header)
        if rule is None:
            return listener
        manifest = rule.profile.manifest
        if not header.source_id:
            header.source_id = control_id(manifest.quirks, frame)
        key = (listener, id(rule))
        if key not in made:
            stated = listener.tenant != DEFAULT_TENANT  # by the settings or a certificate: that counts
            made[key] = replace(
                listener,
                fallback_charset=fallback_charset(manifest.quirks) or listener.fallback_charset,
                tenant=listener.tenant if stated else rule.tenant or DEFAULT_TENANT,
                mapped_types=frozenset(item.message_type for item in manifest.mappings),
            )
        return made[key]

    return place


_: type[ProfileAdmin] = Vendors
