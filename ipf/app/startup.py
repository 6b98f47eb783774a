"""The start-up sequence of the service.  Each step builds one part from the parts that are already there.

| part | module | holds |
|---|---|---|
| the process | `roles/process.py` | listeners, log output, systemd, health: once in a process |
| a pair of databases | `roles/pair.py` | stores, maps, vendor profiles, the receive stage |
| roles | `roles/receive.py`, `convert.py`, `fhir.py`, `deliver.py`, `admin.py` | what each starts on both |

Every part that has to be stopped registers itself with the stack, which stops them in reverse order.  A step that fails
ends the start: a bad setting, map or migration is reported before the first message is accepted.
"""

from __future__ import annotations

import signal
from contextlib import AsyncExitStack
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ipf.app.listeners.endpoints import is_protected
from ipf.app.listeners.places import places
from ipf.app.roles.api import open_api
from ipf.app.roles.convert import start_converting
from ipf.app.roles.deliver import start_delivering
from ipf.app.roles.pair import Pair, open_pair
from ipf.app.roles.process import Process, open_process
from ipf.app.roles.receive import start_receiving
from ipf.app.roles.upkeep import start_upkeep
from ipf.app.runtime.free_memory import start_returning_memory
from ipf.app.runtime.log_output import LogOutput
from ipf.app.runtime.process import freeze_startup_objects
from ipf.app.runtime.watchdog import Watchdog
from ipf.app.stages.processes import ConverterProcesses
from ipf.config.brokers import missing_library
from ipf.config.console import ConsoleSettings
from ipf.config.roles import ADMIN, ALL, CONVERT, DELIVER, FHIR, MAPPING, POLL, RECEIVE
from ipf.config.settings import Settings
from ipf.errors import Problem
from ipf.mapping.library.installation import MAPPING_CHANNEL
from ipf.wire.tls import reload_all

log = Logger(namespace="ipf.app.service")


async def start(
    settings: Settings, console: ConsoleSettings | None, output: LogOutput, reactor: Any, stack: AsyncExitStack
) -> None:
    """Start the service; when this returns, it does what its roles ask for.  docs/operations.md lists these steps.

    `console`: the settings of the role `console`.  Problem names the setting, map or database that keeps it from
    starting.
    """
    warn_about_security(settings)
    process = await open_process(settings, output, reactor, stack)
    pair = await open_pair(process, settings)
    converters = await start_roles(process, pair)
    if console is not None:
        from ipf.app.console import start as start_console  # here: few processes have it

        await start_console(console, reactor, stack)
    _reload_on_sighup(pair, reactor, stack)
    await _ready(process, pair, converters)


async def start_roles(process: Process, pair: Pair) -> ConverterProcesses | None:
    """Start the roles of `IPF_ROLES`: first what works in the background, then the listeners."""
    runs, converters = process.settings.runs, None
    await start_upkeep(process, pair)
    if runs(DELIVER):
        start_delivering(process, pair)
    if runs(CONVERT):
        converters = start_converting(process, pair)
    if runs(POLL):
        pair.polling.start(process.reactor, process.stack)
    await open_api(process, pair)  # the roles fhir, mapping and admin; health of every role
    if runs(RECEIVE):
        await start_receiving(process, pair)
    return converters


async def _ready(process: Process, pair: Pair, converters: ConverterProcesses | None) -> None:
    """Tell systemd and the log when everything that was started works."""
    systemd, listeners = process.systemd, process.listeners
    freeze_startup_objects()
    start_returning_memory(process.reactor, process.stack)
    if converters is not None:
        await converters.started()
    systemd.ready()
    Watchdog(systemd.watchdog_seconds, listeners.unanswered, systemd.notify, process.reactor).start()
    process.stack.callback(systemd.stopping)
    found, roles = places(listeners.open_now, pair.profiles.by_port()), process.settings.running
    shown = ", ".join(found.values()) if roles == ALL else f"roles {' '.join(roles)}: {', '.join(found.values())}"
    log.info("event=started {places}", event="started", places=shown, roles=" ".join(roles), **found)


def warn_about_security(settings: Settings) -> None:
    """Log the settings that leave something unprotected."""
    if settings.admin_token is None and settings.runs(ADMIN):
        log.warn("IPF_ADMIN_AUTH_TOKEN is not set: the admin API requires no token")
    if not settings.auth_enabled and settings.runs(FHIR, MAPPING):
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


def _reload_on_sighup(pair: Pair, reactor: Any, stack: AsyncExitStack) -> None:
    """SIGHUP reloads the maps, as `POST /admin/mapping/reload` does, and the files of the TLS listeners."""

    async def reload() -> None:
        reload_all()
        try:
            await pair.mapping.reload()
            pair.stores.notifier.notify(MAPPING_CHANNEL)
        except Problem as problem:
            log.error("event=mapping_not_loaded {reason}", reason=str(problem))

    def hung_up(number: int, frame: object) -> None:
        reactor.callFromThread(lambda: Deferred.fromCoroutine(reload()))

    stack.callback(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, hung_up))
