"""The start-up sequence of the service.  Each step builds one part from the parts that are already there.

| part | module | holds |
|---|---|---|
| the process | `roles/process.py` | listeners, log output, systemd, health: once in a process |
| the databases | `roles/pair.py` | stores, maps, vendor profiles, the receive stage |
| roles | `roles/receive.py`, `convert.py`, `fhir.py`, `deliver.py`, `admin.py` | what each starts |

Every part that has to be stopped registers itself with the stack, which stops them in reverse order.  A step that fails
ends the start: a bad setting, map or migration is reported before the first message is accepted.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ipf.app.listeners.access import AUTH_SANDBOX
from ipf.app.listeners.endpoints import is_protected
from ipf.app.listeners.places import places
from ipf.app.listeners.reach import reach
from ipf.app.roles.api import mounts_of, open_api, open_process_access, serve_api
from ipf.app.roles.background import start_background
from ipf.app.roles.pair import open_pair
from ipf.app.roles.process import Process, open_process
from ipf.app.roles.receive import start_receiving
from ipf.app.runtime.free_memory import start_returning_memory
from ipf.app.runtime.garbage import collect_in_small_steps
from ipf.app.runtime.log_output import LogOutput
from ipf.app.runtime.stalls import start_watching_stalls
from ipf.app.runtime.watchdog import Watchdog
from ipf.app.stages.monitoring import start_measuring_process
from ipf.config.brokers import missing_library
from ipf.config.console import ConsoleSettings
from ipf.config.roles import ADMIN, ALL, FHIR, MAPPING, RECEIVE
from ipf.config.settings import Settings
from ipf.errors import Problem
from ipf.mapping.library.installation import MAPPING_CHANNEL
from ipf.wire.tls import reload_all

log = Logger(namespace="ipf.app.service")


async def start(
    settings: Settings, console: ConsoleSettings | None, output: LogOutput, reactor: Any, stack: AsyncExitStack
) -> None:
    """Start the service; when this returns, it does what its roles ask for.  docs/reference/operations.md lists these
    steps.

    `console`: the settings of the role `console`.  Problem names the setting, map or database that keeps it from
    starting.
    """
    warn_about_security(settings)
    process = await open_process(settings, output, reactor, stack)
    start_measuring_process("main", reactor, stack)
    profiles = await _start_roles(process)
    if console is not None:
        from ipf.app.console import start as start_console  # here: few processes have it

        await start_console(console, reactor, stack)
    _ready(process, profiles)


async def _start_roles(process: Process) -> Mapping[int, str]:
    """Open the databases and start the roles: first what works in the background, then the listeners.

    Returns the vendor profiles by the ports that they name.
    """
    pair = await open_pair(process)
    converters = await start_background(process, pair)
    access = open_process_access(process)
    api = open_api(process, pair, access)  # the roles fhir, mapping and admin
    if converters is not None and not pair.maps.were_known:
        await converters.started()  # they compile the maps: nothing is accepted before
    if process.settings.runs(RECEIVE):
        await start_receiving(process, pair)
    await serve_api(process, mounts_of(process.settings, api, access, process.reactor))
    if converters is not None:
        await converters.started()

    async def reload() -> None:
        await pair.mapping.reload()
        pair.stores.notifier.notify(MAPPING_CHANNEL)

    _on_sighup(reload, process)
    collect_in_small_steps(process.reactor, process.stack)
    return pair.profiles.by_port()


def _ready(process: Process, profiles: Mapping[int, str]) -> None:
    """Tell systemd and the log that everything that was started works.  `profiles`: by the ports that they name."""
    systemd, listeners = process.systemd, process.listeners
    start_returning_memory(process.reactor, process.stack)
    start_watching_stalls("main", process.reactor, process.stack)
    systemd.ready()
    Watchdog(systemd.watchdog_seconds, listeners.unanswered, systemd.notify, process.reactor).start()
    process.stack.callback(systemd.stopping)
    found, roles = places(listeners.open_now, profiles), process.settings.running
    shown = ", ".join(found.values()) if roles == ALL else f"roles {' '.join(roles)}: {', '.join(found.values())}"
    shown = "; ".join(filter(None, (shown, reach(process.settings))))
    log.info("event=started {places}", event="started", places=shown, roles=" ".join(roles), **found)


def warn_about_security(settings: Settings) -> None:
    """Log the settings that leave something unprotected."""
    if settings.admin_token is None and settings.runs(ADMIN):
        log.warn("IPF_ADMIN_AUTH_TOKEN is not set: the admin API requires no token")
    if settings.is_auth_sandbox:
        log.warn(AUTH_SANDBOX)
    elif not settings.auth_enabled and settings.runs(FHIR, MAPPING):
        log.warn("SUBSCRIPTION_SERVICE_AUTH_ISSUER is not set: requests to /fhir are not authenticated")
    if not is_protected(settings):
        log.warn("without both tokens HTTP listeners bind loopback, unless an endpoint names an interface")
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


def _on_sighup(reload: Callable[[], Awaitable[None]], process: Process) -> None:
    """SIGHUP reloads the files of the TLS listeners, and what `reload` loads: the maps."""

    async def reload_everything() -> None:
        reload_all()
        try:
            await reload()
        except Problem as problem:
            log.error("event=mapping_not_loaded {reason}", reason=str(problem))

    def hung_up(number: int, frame: object) -> None:
        process.reactor.callFromThread(lambda: Deferred.fromCoroutine(reload_everything()))

    process.stack.callback(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, hung_up))
