"""The vendor profiles in use: their listeners, their rules for the receiver, and the admin API for them.

A reload checks every archive in a thread, then replaces maps and rules as a whole, first in this process; converter
processes and replicas are notified.  Messages are received and converted meanwhile.  A port that a profile names and
the settings do not is opened when the profile is loaded, and closed when no profile names it any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger
from twisted.python.failure import Failure

from ipf.config.parsers import Listener
from ipf.errors import Problem
from ipf.hl7.header import Header
from ipf.mapping.library.installation import Installation, RunInThread
from ipf.pipeline.receive.receive import ApplyProfile, MllpListener, Receiver
from ipf.ports import DEFAULT_TENANT, Json
from ipf.ports.messages.profiles import ProfileAdmin
from ipf.ports.messages.sources import PolledSource
from ipf.telemetry.logs import event_line
from ipf.vendor_profiles import installing
from ipf.vendor_profiles.findings import WARNING, Finding, Findings
from ipf.vendor_profiles.folder import ProfileFolder
from ipf.vendor_profiles.profile import Profile, mappings, profile_json, validate_profile
from ipf.vendor_profiles.quirks import control_id, fallback_charset
from ipf.vendor_profiles.registry import ProfileRegistry, listener_name

log = Logger(namespace="ipf.app.vendor_profiles")

Close = Callable[[], Awaitable[object]]
OpenListener = Callable[[Listener], Awaitable[Close]]
"""Opens a listener and returns the function that closes it.  Problem UNAVAILABLE when it cannot be opened."""


class VendorProfiles:
    """`ports.ProfileAdmin`, and the listeners that profiles name between `start` and `stop`."""

    def __init__(
        self,
        folder: ProfileFolder,
        installation: Installation,
        receiver: Receiver,
        run_in_thread: RunInThread,
    ) -> None:
        self._folder = folder
        self._installation = installation
        self._receiver = receiver
        self._open_listener: OpenListener | None = None  # where this process receives
        self._run_in_thread = run_in_thread
        self._closers: dict[int, Close] = {}
        self._unopened: dict[int, str] = {}
        self._reload_lock = DeferredLock()
        self._port_lock = DeferredLock()
        self._logged: object = ((), ())
        installation.subscribe(self._maps_replaced)
        self._apply()

    @property
    def registry(self) -> ProfileRegistry | None:
        """The profiles in use; None when there are none."""
        vendors = self._installation.library.vendor_profiles
        return vendors if isinstance(vendors, ProfileRegistry) else None

    async def start(self, open_listener: OpenListener) -> None:
        """Open the listeners that profiles name, now and after each reload."""
        self._open_listener = open_listener
        await self._update_listeners()

    async def stop(self) -> None:
        """Close the listeners of profiles."""
        self._open_listener = None
        closers, self._closers = self._closers, {}
        for close in closers.values():
            await close()

    def by_port(self) -> dict[int, str]:
        """The profiles that name a port, with their tenants."""
        found: dict[int, list[str]] = {}
        for profile in self._profiles():
            for item in profile.manifest.ingest:
                if item.port is not None:
                    tenant = f" of tenant {item.tenant}" if item.tenant else ""
                    found.setdefault(item.port, []).append(f"profile {profile.manifest.id}{tenant}")
        return {port: ", ".join(names) for port, names in found.items()}

    def polled(self) -> tuple[PolledSource, ...]:
        """The polled sources of the profiles in use."""
        return tuple(source for profile in self._profiles() for source in profile.manifest.polled)

    def describe(self) -> Json:
        """See `ProfileAdmin.describe`."""
        return {
            "loaded": [self._description(profile) for profile in sorted(self._profiles(), key=lambda one: one.file)],
            "skipped": [one.as_json() for one in self._folder.skipped],
        }

    async def validate(self, archive: bytes) -> Json:
        """See `ProfileAdmin.validate`."""

        def check() -> Json:
            checked = validate_profile(archive, "archive", self._installation.library)
            findings = Findings()
            if checked.manifest is not None:
                self._folder.deployment.check(checked.manifest, findings)
            profile = None if findings.errors else checked.profile
            found = (*checked.findings, *findings.items)
            return replace(checked, findings=found, profile=profile).as_json()

        await self._reload_lock.acquire()
        try:
            result: Json = await self._run_in_thread(check)
            return result
        finally:
            self._reload_lock.release()

    async def reload(self) -> Json:
        """See `ProfileAdmin.reload`."""
        await self._reload_lock.acquire()
        try:
            await self._run_in_thread(lambda: self._folder.scan(self._installation.library))
            await self._installation.reload(fresh=False)
            await self._update_listeners()
        finally:
            self._reload_lock.release()
        return self.describe()

    async def install(self, file: str, archive: bytes) -> Json:
        """See `ProfileAdmin.install`."""
        installing.check_name(file)
        checked = await self.validate(archive)
        if not checked["valid"]:
            return checked
        await self._change(lambda folder: installing.put(folder, file, archive))
        found = await self.reload()
        problems = _problems_of(found, file)
        if problems is None:
            return found
        await self._change(lambda folder: installing.take_back(folder, file))
        await self.reload()
        return {**checked, "valid": False, "problems": problems}

    async def roll_back(self, file: str) -> Json:
        """See `ProfileAdmin.roll_back`."""
        await self._change(lambda folder: installing.roll_back(folder, file))
        found = await self.reload()
        problems = _problems_of(found, file)
        if problems is None:
            return found
        await self._change(lambda folder: installing.roll_back(folder, file))
        await self.reload()
        return {"valid": False, "problems": problems}

    async def _change(self, work: Callable[[Path], None]) -> None:
        """Change the folder, not during a reload."""
        await self._reload_lock.acquire()
        try:
            await self._run_in_thread(lambda: work(self._folder.live))
        finally:
            self._reload_lock.release()

    async def health(self) -> Json:
        """Health details.  RuntimeError when an archive of the folder is not in use, or a port is not open."""
        wrong = [*map(str, self._folder.skipped), *self._unopened.values()]
        if wrong:
            raise RuntimeError("; ".join(wrong))
        return {"loaded": [f"{one.manifest.id} {one.manifest.version}" for one in self._profiles()]}

    def _profiles(self) -> tuple[Profile, ...]:
        registry = self.registry
        return () if registry is None else tuple(registry.profiles)

    def _maps_replaced(self) -> None:
        self._apply()
        Deferred.fromCoroutine(self._update_listeners()).addErrback(_log_failure)

    def _apply(self) -> None:
        registry = self.registry
        self._receiver.apply_profile = None if registry is None else profiled_listener(registry)
        self._log_changes()

    def _description(self, profile: Profile) -> Json:
        problems = list(self._folder.warnings.get(profile.file, ()))
        for item in profile.manifest.ingest:
            if item.port in self._unopened:
                text = self._unopened[item.port]
                problems.append(Finding("manifest.yaml", f"{item.pointer}/port", text, WARNING, item.line))
        return {
            "file": profile.file,
            "profile": profile_json(profile.manifest),
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
            "previous": installing.has_previous(self._folder.live, profile.file),
        }

    def _log_changes(self) -> None:
        """Log each profile that is loaded and each that is skipped, when that has changed."""
        profiles = self._profiles()
        current = (tuple(one.digest for one in profiles), self._folder.skipped)
        if current == self._logged:
            return
        self._logged = current
        for profile in profiles:
            manifest = profile.manifest
            log.info(event_line("profile_loaded", file=profile.file, id=manifest.id, version=manifest.version))
        for skipped in self._folder.skipped:
            log.error(event_line("profile_skipped", reason=str(skipped), kept=skipped.kept))

    async def _update_listeners(self) -> None:
        """Open the ports that profiles name and nothing listens on; close those that no profile names any more."""
        await self._port_lock.acquire()
        try:
            if self._open_listener is not None:
                await self._open_and_close(self._open_listener)
        finally:
            self._port_lock.release()

    async def _open_and_close(self, open_listener: OpenListener) -> None:
        configured = set(self._folder.deployment.ports.values())
        named = {item.port for one in self._profiles() for item in one.manifest.ingest if item.port is not None}
        wanted = named - configured
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


def _problems_of(described: Json, file: str) -> list[Json] | None:
    """Why an archive was skipped; None: it is in use."""
    return next((one["problems"] for one in described["skipped"] if one["file"] == file), None)


def _log_failure(failure: Failure) -> None:
    log.failure("the listeners of vendor profiles could not be updated", failure)


def profiled_listener(registry: ProfileRegistry) -> ApplyProfile:
    """A function that gives the receiver the listener as the vendor profile of a message defines it."""
    made: dict[tuple[MllpListener, int], MllpListener] = {}

    def apply(frame: bytes, header: Header, listener: MllpListener) -> MllpListener:
        rule = registry.rule_for(listener.name, header)
        if rule is None:
            return listener
        manifest = rule.profile.manifest
        if not header.source_id:
            header.source_id = control_id(manifest.quirks, frame)
        key = (listener, id(rule))
        if key not in made:
            has_tenant = listener.tenant != DEFAULT_TENANT  # of the settings or a certificate, which take precedence
            made[key] = replace(
                listener,
                fallback_charset=fallback_charset(manifest.quirks) or listener.fallback_charset,
                tenant=listener.tenant if has_tenant else rule.tenant or DEFAULT_TENANT,
                mapped_types=frozenset(item.message_type for item in manifest.mappings),
            )
        return made[key]

    return apply


_: type[ProfileAdmin] = VendorProfiles
