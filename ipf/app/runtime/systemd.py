"""Notifications to systemd: ready, watchdog, status and stopping.

Messages of the sd_notify protocol are sent to the datagram socket `NOTIFY_SOCKET`; without it nothing is sent.
`watchdog.py` decides when the watchdog is notified.

Source: https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping


class Systemd:
    """The notifications of one service.  Its variables are removed from `environ`: child processes must not notify.

    `watchdog_seconds`: the interval within which the watchdog must be notified; 0: there is none.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        micros, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        is_watched = bool(self._address) and (not pid or pid == str(os.getpid()))
        self.watchdog_seconds = int(micros) / 1_000_000 if is_watched and micros.isdigit() else 0.0

    def ready(self) -> None:
        """The service accepts messages."""
        self.notify("READY=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self.notify(f"STATUS={text}")

    def stopping(self) -> None:
        """The service stops."""
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
