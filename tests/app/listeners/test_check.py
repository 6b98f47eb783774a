"""Listeners and folders of the settings are checked before anything is started."""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path
from typing import ClassVar

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.trial.unittest import TestCase

from ipf.app.listeners.check import check_endpoints, check_folders
from ipf.app.listeners.unusable import reason_of
from ipf.config.settings import Listener, Settings
from ipf.errors import Problem
from tests.waiting import free_port
from tests.wire.certificates import Authority

INVALID = [
    ("8090", "8090: not an endpoint such as tcp:2575 or tcp:2575:interface=0.0.0.0 (Unknown endpoint type: '8090')"),
    ("", ": not an endpoint such as tcp:2575"),
    ("tcp:x", "tcp:x: not an endpoint such as tcp:2575"),
    ("tcp:1:nothing=2", "tcp:1:nothing=2: not an endpoint such as tcp:2575"),
    ("tcp:99999", "tcp:99999: a port is a number from 0 to 65535"),
    ("tcp:taken", "tcp:taken: the port is in use"),
    ("tcp:taken:interface=127.0.0.1", "the port is in use"),
    ("tcp:0:interface=192.0.2.7", "tcp:0:interface=192.0.2.7: this host has no such address"),
    ("tcp:0:interface=no-such.invalid", "no-such.invalid is not an address of this host"),
    ("tcp:0:interface=999.1.1.1", "999.1.1.1 is not an address of this host"),
    ("unix:/nowhere/at/all.sock", "unix:/nowhere/at/all.sock: /nowhere/at/all.sock.lock: no such file or folder"),
    ("unix:folder/taken.sock:lockfile=0", "the path is in use"),
    ("unix:folder/" + 200 * "x" + ":lockfile=0", "AF_UNIX path too long"),
    ("systemd:domain=INET:name=lab", "systemd passed no socket named lab"),
    ("systemd:domain=INET:index=7", "systemd passed no socket of this index"),
    ("ssl:0:privateKey=/nowhere.key:certKey=/nowhere.pem", "/nowhere.key: No such file or directory"),
    ("ssl:0:privateKey=folder/a.key:certKey=folder/b.pem", "is not that of the key in"),
    ("ssl:0:privateKey=folder/junk:certKey=folder/a.pem", "the files of the TLS endpoint cannot be used"),
    ("mtls:0:privateKey=folder/a.key:certKey=folder/b.pem:clientCa=folder/ca.pem", "is not that of the key in"),
    ("mtls:0:privateKey=folder/a.key:certKey=folder/a.pem:clientCa=folder/junk", "junk holds no certificate"),
    ("mtls:0:privateKey=folder/a.key", "mtls needs a port, privateKey, certKey and clientCa"),
]


class CheckTests(TestCase):
    files: ClassVar[tuple[str, ...]] = ("a", "b")

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ipf-"))  # short, as the kernel wants the path of a socket
        self.addCleanup(shutil.rmtree, self.folder)
        authority = Authority(self.folder)
        for name in self.files:
            for path, suffix in zip(authority.sign(name), ("key", "pem"), strict=True):
                Path(path).rename(self.folder / f"{name}.{suffix}")
        (self.folder / "junk").write_text("no PEM")
        self.taken = socket.socket()
        self.taken.bind(("127.0.0.1", 0))
        self.taken.listen()
        self.addCleanup(self.taken.close)
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(str(self.folder / "taken.sock"))
        self.addCleanup(unix.close)

    def endpoint(self, text: str) -> str:
        return text.replace("tcp:taken", f"tcp:{self.taken.getsockname()[1]}").replace("folder/", f"{self.folder}/")

    async def refusal(self, settings: Settings) -> str:
        checking = Deferred.fromCoroutine(check_endpoints(settings, reactor))
        return str(await self.assertFailure(checking, Problem))

    async def test_an_unusable_listener_is_named_with_the_reason(self) -> None:
        for text, reason in INVALID:
            endpoint = self.endpoint(text)
            free = (Listener("lab", "tcp:0"),)
            for variable, settings in (
                ("IPF_HTTP_LISTEN", Settings(http_listen=endpoint, mllp_listen=free)),
                ("IPF_MLLP_LISTEN", Settings(http_listen="tcp:0", mllp_listen=(*free, Listener("x", endpoint)))),
            ):
                failed = await self.refusal(settings)
                self.assertTrue(failed.startswith(f"{variable}: {endpoint}"), failed)
                self.assertIn(self.endpoint(reason), failed)
                self.assertNotIn("\n", failed)

    async def test_two_listeners_on_one_address(self) -> None:
        port = free_port()
        for http, mllp in (
            (f"tcp:{port}", f"tcp:{port}:interface=127.0.0.1"),
            (f"tcp:{port}:interface=0.0.0.0", f"tcp:{port}"),
            (f"unix:{self.folder}/s:lockfile=0", f"unix:{self.folder}/s:lockfile=0"),
        ):
            failed = await self.refusal(Settings(http_listen=http, mllp_listen=(Listener("lab", mllp),)))
            what = "path" if http.startswith("unix") else "port"
            expected = f"IPF_MLLP_LISTEN: {mllp}: the {what} is in use by IPF_HTTP_LISTEN ({http})"
            self.assertEqual(failed, expected)

    async def test_the_listener_for_metrics_is_checked_where_it_will_be_bound(self) -> None:
        """Its own token decides, not those of the other listeners: with one it takes the port on all addresses."""
        here, there = (self.taken.getsockname()[1], self.taken_elsewhere())
        for token, port, is_free in (("scrape", there, False), (None, there, True), (None, here, False)):
            for others in ({}, {"auth_switch": True, "admin_token": "admin"}):
                settings = Settings(
                    http_listen="tcp:0", mllp_listen=(), metrics_listen=f"tcp:{port}", metrics_token=token, **others
                )
                if is_free:
                    await check_endpoints(settings, reactor)
                else:
                    expected = f"IPF_METRICS_LISTEN: tcp:{port}: the port is in use"
                    self.assertEqual(await self.refusal(settings), expected, (token, others))

    def taken_elsewhere(self) -> int:
        """A port that is taken on another address than the one of unprotected listeners."""
        other = socket.socket()
        other.bind(("127.0.0.2", 0))
        other.listen()
        self.addCleanup(other.close)
        return int(other.getsockname()[1])

    async def test_what_was_checked_is_free_again(self) -> None:
        """Nothing listens after the check: until the service is ready, senders are refused."""
        port, path = free_port(), self.folder / "free.sock"
        settings = Settings(http_listen=f"tcp:{port}", mllp_listen=(Listener("lab", f"unix:{path}"),))
        for _ in range(2):
            await check_endpoints(settings, reactor)
            with socket.socket() as sender:
                self.assertRaises(ConnectionRefusedError, sender.connect, ("127.0.0.1", port))
            self.assertFalse(path.exists())

    def test_folders(self) -> None:
        for settings, variable in (
            (Settings(maps_dir="/nowhere/at/all"), "IPF_MAPS_DIR"),
            (Settings(package_dir=__file__), "IPF_PACKAGE_DIR"),
        ):
            with self.assertRaisesRegex(Problem, f"^{variable}: .* is not a folder"):
                check_folders(settings)
        check_folders(Settings())

    def test_ports_of_the_system(self) -> None:
        """Root may open them: here is what another user is told."""
        denied = PermissionError(13, "Permission denied")
        self.assertIn("need the capability CAP_NET_BIND_SERVICE", reason_of(CannotListenError("", 80, denied)))
        self.assertEqual(reason_of(CannotListenError(None, b"/x", denied)), "this user may not open the path")  # type: ignore[arg-type]
