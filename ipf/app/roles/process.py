"""What a process has once, whatever pairs of databases it serves: log output, systemd, listeners, health."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from ipf.app.listeners.check import check_endpoints, check_folders
from ipf.app.listeners.endpoints import ConnectionLimits, Listeners, connection_limits
from ipf.app.runtime.log_output import LogOutput
from ipf.app.runtime.systemd import Systemd
from ipf.config.settings import Settings
from ipf.wire.admin.actuator import Component, Health
from ipf.wire.tls import unusable


@dataclass(frozen=True, slots=True)
class Process:
    """One process.  `stack` closes what is opened, in reverse order; `uptime`: seconds since the start."""

    settings: Settings
    reactor: Any
    stack: AsyncExitStack
    output: LogOutput
    systemd: Systemd
    limits: ConnectionLimits
    listeners: Listeners
    health: Health
    uptime: Callable[[], float]


async def open_process(settings: Settings, output: LogOutput, reactor: Any, stack: AsyncExitStack) -> Process:
    """Check the folders and listeners of the settings, and raise the limit of open files; nothing is opened yet.

    Problem names the setting that keeps the service from starting.
    """
    systemd, began = Systemd(os.environ), reactor.seconds()
    check_folders(settings)
    await check_endpoints(settings, reactor)
    health = Health({"tls_files": Component(_tls_files, required=False)}, reactor, roles=settings.running)
    return Process(
        settings, reactor, stack, output, systemd, connection_limits(settings), Listeners(reactor), health,
        lambda: reactor.seconds() - began,
    )  # fmt: skip


async def _tls_files() -> None:
    if reasons := unusable():
        raise RuntimeError("; ".join(reasons))
