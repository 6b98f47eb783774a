"""What systemd is told of this service: that it accepts messages, that it lives, what it is doing, that it stops.

Messages of the sd_notify protocol go to the datagram socket that `NOTIFY_SOCKET` names; without it nothing is sent.
The watchdog is fed by the reactor: a reactor that does not turn is a service that hangs, and systemd restarts it.

Source: https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall


class Systemd:
    """The notifications of one service.  Its variables are taken out of `environ`: no child process speaks for it."""

    def __init__(self, environ: MutableMapping[str, str], clock: IReactorTime) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        micros, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        mine = not pid or pid == str(os.getpid())
        self.watchdog_seconds = int(micros) / 1_000_000 if mine and micros.isdigit() else 0.0
        self._feeding = LoopingCall(self.notify, "WATCHDOG=1")
        self._feeding.clock = clock

    def ready(self) -> None:
        """The service accepts messages; from now on the watchdog is fed, twice in its time."""
        self.notify("READY=1")
        if self._address and self.watchdog_seconds and not self._feeding.running:
            self._feeding.start(self.watchdog_seconds / 2)

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self.notify(f"STATUS={text}")

    def stopping(self) -> None:
        """The service ends; the watchdog is fed until the process is gone."""
        self.notify("STOPPING=1")

    def notify(self, message: str) -> None:
        """Send; what cannot be sent is dropped, since nobody waits for it."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(message.encode(), address)
        except OSError:
            pass
