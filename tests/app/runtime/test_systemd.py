"""Notifications to systemd over a datagram socket."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile

from twisted.trial.unittest import TestCase

from ipf.app.runtime.systemd import Systemd


class SystemdTests(TestCase):
    def setUp(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.setblocking(False)

    def received(self) -> list[str]:
        found = []
        while True:
            try:
                found.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return found

    def test_notifications_of_a_service(self) -> None:
        folder = tempfile.mkdtemp(prefix="ipf-")  # short, as the kernel wants the name of a socket
        self.addCleanup(shutil.rmtree, folder)
        path = f"{folder}/notify"
        self.socket.bind(path)
        environ = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "20000000", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
        systemd = Systemd(environ)
        self.assertEqual((environ, systemd.watchdog_seconds), ({"HOME": "/"}, 20.0))
        self.assertEqual(self.received(), [])
        systemd.ready()
        systemd.status("7 messages in the queue")
        systemd.stopping()
        self.assertEqual(self.received(), ["READY=1", "STATUS=7 messages in the queue", "STOPPING=1"])

    def test_an_abstract_socket(self) -> None:
        name = f"ipf-{os.getpid()}"
        self.socket.bind("\0" + name)
        Systemd({"NOTIFY_SOCKET": "@" + name}).ready()
        self.assertEqual(self.received(), ["READY=1"])

    def test_without_systemd(self) -> None:
        """Nothing is sent without a socket; a missing socket, or the watchdog of another process, is ignored."""
        unwatched = Systemd({"WATCHDOG_USEC": "5"})
        unwatched.ready()
        gone = Systemd({"NOTIFY_SOCKET": "/nonexistent/notify", "WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"})
        gone.ready()
        self.assertEqual((unwatched.watchdog_seconds, gone.watchdog_seconds), (0.0, 0.0))
