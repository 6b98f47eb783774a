"""The start-up sequence of the service.  Each step builds one part from the parts that are already there.

Every part that has to be stopped registers itself with the stack, which stops them in reverse order.  A step that fails
ends the start: a bad setting, map or migration is reported before the first message is accepted.
"""

from __future__ import annotations

import os
import signal
from contextlib import AsyncExitStack
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ipf.app.listeners.audit import open_sender_audit
from ipf.app.listeners.check import check_endpoints, check_folders
from ipf.app.listeners.endpoints import Listeners, connection_limits, is_protected
from ipf.app.listeners.hl7_http import open_hl7_http
from ipf.app.listeners.http import HttpParts, open_http
from ipf.app.listeners.mllp import MllpListeners, build_receiver
from ipf.app.listeners.places import places
from ipf.app.maps.installation import open_maps
from ipf.app.maps.profiles import VendorProfiles
from ipf.app.runtime.databases import open_databases
from ipf.app.runtime.free_memory import start_returning_memory
from ipf.app.runtime.log_output import LogOutput
from ipf.app.runtime.process import freeze_startup_objects, run_in_thread
from ipf.app.runtime.stores import OpenedStores, open_stores
from ipf.app.runtime.systemd import Systemd
from ipf.app.runtime.watchdog import Watchdog
from ipf.app.stages.audit_chain import start_audit_chain
from ipf.app.stages.audit_feed import start_audit_feed
from ipf.app.stages.converters import start_conversion
from ipf.app.stages.files import WatchedFolders
from ipf.app.stages.forwarding import start_forwarding
from ipf.app.stages.maintenance import start_maintenance
from ipf.app.stages.monitoring import start_monitoring
from ipf.app.stages.notifications import start_notifications
from ipf.app.stages.polling import start_polling
from ipf.app.stages.recovery import start_recovery
from ipf.app.stages.topic_failures import start_topic_failures
from ipf.app.stages.validation import resource_checks
from ipf.config.brokers import missing_library
from ipf.config.settings import Settings
from ipf.errors import Problem
from ipf.mapping.library.installation import MAPPING_CHANNEL
from ipf.mapping.library.service import MappingAdminService
from ipf.wire.tls import reload_all

log = Logger(namespace="ipf.app.service")

_CONNECTIONS = 8  # to each database


async def start(settings: Settings, output: LogOutput, reactor: Any, stack: AsyncExitStack) -> None:
    """Start the service; when this returns, it accepts messages.  docs/operations.md lists these steps.

    Problem names the setting, map or database that keeps it from starting.
    """
    systemd = Systemd(os.environ)
    warn_about_security(settings)
    check_folders(settings)
    await check_endpoints(settings, reactor)
    limits = connection_limits(settings)

    urls = await open_databases(settings, reactor, stack)
    stores = await open_stores(settings, urls, "main", _CONNECTIONS, reactor, stack)
    maps = await open_maps(settings, stores, reactor, stack)

    await start_recovery(settings, stores, reactor, stack)
    chain = await start_audit_chain(settings, stores, reactor, stack)
    monitoring = start_monitoring(settings, stores, systemd, reactor, stack)
    notify = start_notifications(settings, stores, reactor, stack)
    start_topic_failures(settings, stores, reactor, stack, withdraws=True)
    start_maintenance(settings, stores, chain, reactor, stack)
    feed = start_audit_feed(settings, stores, reactor, stack)
    converters = start_conversion(settings, urls, stores, maps, output, reactor, stack)

    receiver = build_receiver(settings, stores, maps.installation, reactor)
    listeners = Listeners(reactor)
    refused = open_sender_audit(settings, stores, reactor, stack)
    mllp = MllpListeners(settings, receiver, limits.mllp, listeners, reactor, refused)
    profiles = VendorProfiles(maps.profiles, maps.installation, receiver, mllp.open, run_in_thread)
    mapping = MappingAdminService(maps.installation, stores.inbox, run_in_thread, resource_checks(settings, stores))
    forwarding = start_forwarding(settings, stores, reactor, stack)
    polling = start_polling(settings, stores, profiles, reactor, stack)
    files = WatchedFolders(settings, receiver)
    parts = HttpParts(
        stores, maps.installation, maps.folder, mapping, profiles, monitoring, notify, converters, receiver, listeners,
        feed, polling, files, forwarding,
    )  # fmt: skip
    await open_http(settings, parts, limits.http, reactor, stack)
    await mllp.open_all(stack)
    files.start(reactor, stack)
    await open_hl7_http(settings, receiver, limits.http, listeners, stack)
    stack.push_async_callback(profiles.stop)
    await profiles.start()
    _reload_on_sighup(mapping, stores, reactor, stack)

    freeze_startup_objects()
    start_returning_memory(reactor, stack)
    if converters is not None:
        await converters.started()
    systemd.ready()
    Watchdog(systemd.watchdog_seconds, listeners.unanswered, systemd.notify, reactor).start()
    stack.callback(systemd.stopping)
    found = places(listeners.open_now, profiles.by_port())
    log.info("event=started {places}", event="started", places=", ".join(found.values()), **found)


def warn_about_security(settings: Settings) -> None:
    """Log the settings that leave something unprotected."""
    if settings.admin_token is None:
        log.warn("IPF_ADMIN_AUTH_TOKEN is not set: the admin API requires no token")
    if not settings.auth_enabled:
        log.warn("SUBSCRIPTION_SERVICE_AUTH_ENABLED is false: requests to /fhir are not authenticated")
    if not is_protected(settings):
        log.warn("without both tokens listeners bind loopback, unless an endpoint names an interface")
    elif str(settings.auth_issuer).startswith("http://"):
        log.warn("SUBSCRIPTION_SERVICE_AUTH_ISSUER is not https: its keys can be forged in transit")
    if settings.channel_security == "permissive":
        log.warn("SUBSCRIPTION_SERVICE_CHANNEL_SECURITY is permissive: notifications may be sent without TLS")
    if settings.multitenancy == "enabled" and not settings.row_security:
        log.warn("SUBSCRIPTION_SERVICE_MULTITENANCY_ROW_SECURITY is false: only queries separate tenants")
    for reason in filter(None, map(missing_library, sorted({one.kind for one in settings.brokers}))):
        log.warn("IPF_BROKERS: {reason}", reason=reason)
    if settings.secret_key is None:
        log.warn("IPF_SECRET_KEY is not set: secrets in channel.header are stored without encryption")


def _reload_on_sighup(mapping: MappingAdminService, stores: OpenedStores, reactor: Any, stack: AsyncExitStack) -> None:
    """SIGHUP reloads the maps, as `POST /admin/mapping/reload` does, and the files of the TLS listeners."""

    async def reload() -> None:
        reload_all()
        try:
            await mapping.reload()
            stores.notifier.notify(MAPPING_CHANNEL)
        except Problem as problem:
            log.error("event=mapping_not_loaded {reason}", reason=str(problem))

    def hung_up(number: int, frame: object) -> None:
        reactor.callFromThread(lambda: Deferred.fromCoroutine(reload()))

    stack.callback(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, hung_up))
