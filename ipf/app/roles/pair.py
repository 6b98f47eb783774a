"""The pair of databases: its stores, its maps, and what the roles share that read and write through them."""

from __future__ import annotations

from dataclasses import dataclass

from ipf.app.listeners.endpoint_rules import endpoint_rules
from ipf.app.listeners.mllp import build_receiver
from ipf.app.maps.installation import Maps, open_maps
from ipf.app.maps.profiles import VendorProfiles
from ipf.app.roles.process import Process
from ipf.app.runtime.databases import DatabaseUrls, open_databases
from ipf.app.runtime.process import run_in_thread
from ipf.app.runtime.stores import OpenedStores, open_stores
from ipf.app.stages.forwarding import Forwarding, open_forwarding
from ipf.app.stages.monitoring import Monitoring, open_monitoring, start_measuring_connections
from ipf.app.stages.notifications import NotificationParts, open_notification_parts
from ipf.app.stages.polling import Polling, open_polling
from ipf.app.stages.validation import resource_checks
from ipf.config.settings import Settings
from ipf.mapping.library.service import MappingAdminService
from ipf.pipeline.receive.receive import Receiver
from ipf.security.access import installed
from ipf.wire.admin.actuator import Component

_CONNECTIONS = 8  # to each database


@dataclass(frozen=True, slots=True)
class Pair:
    """The pair of databases.

    `polling`, `forwarding`, `notifications`: not started; a role does that.
    """

    settings: Settings
    urls: DatabaseUrls
    stores: OpenedStores
    maps: Maps
    receiver: Receiver
    profiles: VendorProfiles
    mapping: MappingAdminService
    monitoring: Monitoring
    notifications: NotificationParts
    polling: Polling
    forwarding: Forwarding


async def open_pair(process: Process) -> Pair:
    """Migrate and connect to both databases, and load the maps.

    Problem names the setting, map or database that keeps it from starting.
    """
    settings, reactor, stack = process.settings, process.reactor, process.stack
    urls = await open_databases(settings, reactor, stack)
    stores = await open_stores(settings, urls, "main", _CONNECTIONS, reactor, stack)
    maps = await open_maps(settings, stores, reactor, stack)
    receiver = build_receiver(settings, stores, maps.installation, reactor)
    profiles = VendorProfiles(maps.profiles, maps.installation, receiver, run_in_thread)
    pair = Pair(
        settings,
        urls,
        stores,
        maps,
        receiver,
        profiles,
        MappingAdminService(maps.installation, stores.inbox, run_in_thread, resource_checks(settings, stores)),
        open_monitoring(stores, process.uptime),
        open_notification_parts(settings, stores, endpoint_rules(settings, process.listeners), reactor, stack),
        open_polling(settings, stores, profiles, reactor, stack),
        open_forwarding(settings, stores, reactor),
    )
    start_measuring_connections(stores, reactor, stack)
    _add_health(process, pair)
    return pair


def _add_health(process: Process, pair: Pair) -> None:
    """The components that every process has."""

    async def fhir() -> None:
        await pair.stores.fhir_database.one("SELECT 1")

    process.health.add("inbox", Component(pair.monitoring.queue))
    process.health.add("fhir", Component(fhir))
    process.health.add("profiles", Component(pair.profiles.health, required=False))
    if pair.stores.replica is not None:
        process.health.add("fhir_replica", Component(pair.stores.replica.check, required=False))
    privacy = installed()
    if privacy is not None:
        process.health.add("consents", Component(privacy.check, required=False))
