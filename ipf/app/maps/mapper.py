"""The mapper of the convert stage: maps in this process, or the mapping service at `IPF_MAPPING_URL`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from ipf.app.runtime.process import now
from ipf.config.settings import Settings
from ipf.errors import Problem, StoreUnreachable
from ipf.mapping.library.installation import Installation, InstalledMapper
from ipf.mapping.library.profiled import ProfiledMapper
from ipf.ports import Claimed, Clock, Mapped, Mapper

if TYPE_CHECKING:
    from ipf.wire.client.mapper_client import Codings
    from ipf.wire.client.remote_service import Credentials

log = Logger(namespace="ipf.app.maps")


def build_mapper(settings: Settings, installation: Installation, reactor: Any) -> Mapper:
    """The mapper that the settings ask for.  Messages of a vendor profile are always mapped in this process."""
    profiles = ProfileLookup(installation, now)
    listeners = frozenset(one.name for one in settings.mllp_listen)
    if settings.mapping_url is None:
        return ProfileAwareMapper(InstalledMapper(installation), listeners, profiles)
    # imported here: an HTTP client and TLS take 15 MiB
    from ipf.wire.client.mapper_client import RemoteMapper
    from ipf.wire.client.remote_service import RemoteService

    async def codings(message: Claimed) -> Codings | None:
        overrides = await installation.overrides_of(message)
        return None if overrides is None else overrides.by_table

    def canonical(message_type: str) -> str | None:
        if settings.mapping_source is not None:
            return settings.mapping_source.replace("{message_type}", message_type)
        return installation.library.map_url(message_type) if installation.has_map(message_type) else None

    credentials = service_credentials(settings)
    service = RemoteService(reactor, settings.mapping_timeout_ms / 1000, "the mapping service", credentials)
    remote = RemoteMapper(service, settings.mapping_url, canonical, codings, settings.without_patient_types)
    profiled = ProfiledMapper(remote, lambda: installation.library, installation.overrides_of)
    return ProfileAwareMapper(profiled, listeners, profiles)


class ProfileLookup:
    """Looks up whether a vendor profile maps a message.

    Messages of a profile must not be passed through, nor be mapped by the general maps, by a process that has not
    loaded the profile yet.  So this process loads changes first when it last did so before the message arrived.
    """

    def __init__(self, installation: Installation, clock: Clock) -> None:
        self._installation = installation
        self._clock = clock
        self._current_until = datetime.min.replace(tzinfo=UTC)

    async def is_mapped(self, message: Claimed) -> bool:
        """Whether the vendor profile of a message maps it."""
        await self.refresh_for(message)
        vendors = self._installation.library.vendor_profiles
        return vendors is not None and vendors.has_map(message)

    async def refresh_for(self, message: Claimed) -> None:
        """Load every profile that was in use when this message arrived.  One query serves all earlier messages."""
        if message.received_at >= self._current_until:
            began = self._clock()
            try:
                await self._installation.refresh()
                self._current_until = began
            except StoreUnreachable:
                pass  # the store logs it
            except Problem as problem:
                log.error("event=mapping_not_loaded the maps in use stay: {reason}", reason=str(problem))


class ProfileAwareMapper:
    """`ports.Mapper` that loads new vendor profiles before it maps messages of listeners that profiles opened.

    `listeners`: the listeners of the settings.  A message of any other listener arrived on a port that a profile
    names, and this process may not have loaded that profile yet.
    """

    def __init__(self, mapper: Mapper, listeners: frozenset[str], profiles: ProfileLookup) -> None:
        self._mapper = mapper
        self._listeners = listeners
        self._profiles = profiles

    def has_map(self, message_type: str) -> bool:
        """See `Mapper.has_map`."""
        return self._mapper.has_map(message_type)

    async def transform(self, message: Claimed) -> Mapped:
        """See `Mapper.transform`."""
        if message.listener not in self._listeners:
            await self._profiles.refresh_for(message)
        return await self._mapper.transform(message)


def service_credentials(settings: Settings) -> Credentials | None:
    """OAuth client credentials for the remote mapping service and FHIR server; None when they are not set."""
    if not (settings.fhir_token_url and settings.fhir_client_id and settings.fhir_client_secret):
        return None
    from ipf.wire.client.remote_service import Credentials  # see `build_mapper`

    return Credentials(
        settings.fhir_token_url, settings.fhir_client_id, settings.fhir_client_secret, settings.fhir_scope or ""
    )
