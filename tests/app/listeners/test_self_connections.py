"""Listeners of each kind answer connections from inside, which none of their protocols, limits or lists see."""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Protocol
from twisted.trial.unittest import TestCase

from ipf.app.listeners.endpoints import Listeners, OpenListener
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.pipeline.receive.receive import MllpListener, Receiver
from ipf.wire.mllp.access import RestrictedMllpFactory, SenderAccess, networks_of
from ipf.wire.mllp.limits import Limits
from ipf.wire.mllp.protocol import MllpFactory
from tests.fakes.inbox import MemoryInbox
from tests.waiting import PATIENCE
from tests.wire.certificates import Authority

_reactor: Any = reactor
SOON = 0.2  # seconds of a check that must fail


class Refusing:
    """A factory that refuses every connection, as at the limit of connections."""

    noisy = False

    def __init__(self) -> None:
        self.asked = 0

    def doStart(self) -> None:
        """Twisted: the port opens."""

    def doStop(self) -> None:
        """Twisted: the port closes."""

    def buildProtocol(self, addr: IAddress) -> Protocol | None:
        """Twisted: a connection."""
        self.asked += 1
        return None


class SelfConnectionTests(TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ipf-"))
        self.addCleanup(shutil.rmtree, self.folder)
        authority = Authority(self.folder)
        key, certificate = authority.sign("localhost")
        tls = f"privateKey={key}:certKey={certificate}:interface=127.0.0.1"
        self.endpoints = [
            "tcp:0:interface=127.0.0.1",
            "tcp:0",
            "tcp:0:interface=127.0.0.2",
            f"ssl:0:{tls}",
            f"mtls:0:{tls}:clientCa={authority.path}",
        ]
        self.listeners = Listeners(reactor)
        self.addCleanup(self.close_all)

    async def close_all(self) -> None:
        for one in list(self.listeners.open_now):
            await self.listeners.close(one)

    async def test_every_kind_answers_and_no_factory_is_asked(self) -> None:
        factory = Refusing()
        for number, endpoint in enumerate(self.endpoints):
            await self.listeners.open(endpoint, factory, f"L{number}")
        self.assertEqual(await self.listeners.unanswered(PATIENCE), {})
        self.assertEqual(await self.listeners.unanswered(PATIENCE), {})
        self.assertEqual(factory.asked, 0)

    async def test_ipv6(self) -> None:
        try:
            await self.listeners.open("tcp6:0", Refusing(), "L")
        except Exception as error:
            self.skipTest(f"no IPv6 here: {error}")
        self.assertEqual(await self.listeners.unanswered(PATIENCE), {})

    async def test_access_lists_limits_and_counts_of_mllp_do_not_see_them(self) -> None:
        inbox = MemoryInbox()
        receiver = Receiver(inbox, GroupCommit(inbox, _reactor), _reactor, now=lambda: None, new_correlation_id=str)  # type: ignore[arg-type, return-value]
        counts: list[int] = []
        full, access = Limits(connections=0), SenderAccess(networks_of("lab", (("", "192.0.2.0/24"),)), (), 1, 1.0)

        def lab(_: str = "") -> Any:
            return receiver.for_listener(MllpListener("lab", "ascii", "default"))

        factories = [
            MllpFactory("lab", lab(), _reactor, full, counts.append),
            RestrictedMllpFactory("lab", lab(), _reactor, Limits(), access, lab),
        ]
        for number, endpoint in enumerate(self.endpoints):
            await self.listeners.open(endpoint, factories[number % 2], f"L{number}")
        self.assertEqual(await self.listeners.unanswered(PATIENCE), {})
        self.assertEqual(counts, [])

    async def test_a_unix_socket_closes_a_connection_without_a_byte(self) -> None:
        counts: list[int] = []
        nobody: Any = None
        factory = MllpFactory("lab", nobody, _reactor, connections_changed=counts.append)
        await self.listeners.open(f"unix:{self.folder}/s", factory, "lab")
        self.assertEqual(await self.listeners.unanswered(PATIENCE), {})
        self.assertEqual(counts, [1, 0])

    async def test_what_does_not_answer_is_named(self) -> None:
        """A port that was closed by itself, and one whose connections nobody accepts."""
        await self.listeners.open("tcp:0:interface=127.0.0.1", Refusing(), "good")
        gone = await self.listeners.open("tcp:0:interface=127.0.0.1", Refusing(), "gone")
        await gone.port.stopListening()
        hung = socket.socket()
        self.addCleanup(hung.close)
        hung.bind(("127.0.0.1", 0))
        hung.listen()

        address = IPv4Address("TCP", *hung.getsockname())
        self.listeners.open_now.append(OpenListener("hung", "", gone.port, address))
        found = await self.listeners.unanswered(SOON)
        self.assertEqual(set(found), {"hung", "gone"})
        self.assertIn("refused", found["gone"])
        self.assertEqual(found["hung"], f"no answer within {SOON:g} s")
        del self.listeners.open_now[1:]
        self.assertEqual(await self.listeners.unanswered(PATIENCE), {})
