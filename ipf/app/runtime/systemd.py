"""Notifications to systemd: ready, watchdog, status and stopping.

Messages of the sd_notify protocol are sent to the datagram socket `NOTIFY_SOCKET`; without it nothing is sent.  A timer
of the reactor notifies the watchdog, so systemd restarts a service with a blocked reactor.

Source: https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall


class Systemd:
    """The notifications of one service.  Its variables are removed from `environ`: child processes must not notify."""

    def __init__(self, environ: MutableMapping[str, str], clock: IReactorTime) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        micros, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        mine = not pid or pid == str(os.getpid())
        self.watchdog_seconds = int(micros) / 1_000_000 if mine and micros.isdigit() else 0.0
        self._watchdog = LoopingCall(self.notify, "WATCHDOG=1")
        self._watchdog.clock = clock

    def ready(self) -> None:
        """The service accepts messages.  From now on the watchdog is notified at half its interval."""
        self.notify("READY=1")
        if self._address and self.watchdog_seconds and not self._watchdog.running:
            self._watchdog.start(self.watchdog_seconds / 2)

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self.notify(f"STATUS={text}")

    def stopping(self) -> None:
        """The service stops; the watchdog is notified until the process ends."""
        self.notify("STOPPING=1")

    def notify(self, message: str) -> None:
        """Send a message; errors are ignored, since nothing depends on it."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(message.encode(), address)
        except OSError:
            pass
