"""Records of refused senders."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from ipf.ports.audit.records import ADMIN, Audit
from ipf.security.audit.rules import id_suffixes
from ipf.security.audit.senders import sender_audit
from ipf.wire.mllp.access import RestrictedMllpFactory, SenderAccess
from ipf.wire.mllp.limits import Limits


class SenderAuditTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.now = datetime(2026, 1, 2, tzinfo=UTC)
        self.noted: list[Audit] = []

    def test_who_was_refused_where_and_why(self) -> None:
        """Each once in ten seconds, however often it tries."""
        receiver: Any = None
        access = SenderAccess((ip_network("10.1.0.0/16"),))
        factory = RestrictedMllpFactory("lab", receiver, Clock(), Limits(), access, lambda tenant: receiver)
        factory.refused = sender_audit(self.noted.append, lambda: self.now, id_suffixes())
        for seconds, host in ((0, "192.0.2.1"), (1, "192.0.2.1"), (1, "192.0.2.2"), (9, "192.0.2.1")):
            self.now += timedelta(seconds=seconds)
            self.assertIsNone(factory.buildProtocol(IPv4Address("TCP", host, 4711)))
        self.assertEqual(
            [(one.context.address, one.request_target) for one in self.noted],
            [(host, "MLLP lab: its network is not on the list") for host in ("192.0.2.1", "192.0.2.2", "192.0.2.1")],
        )
        context = self.noted[0].context
        self.assertEqual((context.surface, context.outcome, context.agent), (ADMIN, 8, "anonymous"))
        self.assertEqual(context.interaction, "mllp-connect")

    def test_a_broken_trail_refuses_all_the_same(self) -> None:
        def broken(audit: Audit) -> None:
            raise RuntimeError("no trail")

        sender_audit(broken, lambda: self.now, id_suffixes())("lab", "192.0.2.1", "x")
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
