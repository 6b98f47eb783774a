"""What the tests of channels to brokers share: a scratch folder, notifications, and asyncio helpers in a thread."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

from twisted.internet import reactor
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from ipf.ports import Event, Notification
from ipf.wire.channels.brokers import BrokerChannel
from tests.faults.scenario import scratch
from tests.waiting import PATIENCE

T = TypeVar("T")
CORRELATION = "0af76519-16cd-43dd-8448-eb211c80319c"
SECONDS = 60.0
"""The time limit of a delivery: longer than a loaded machine stalls.  Tests of the limit have channels of their own."""


def event(number: int, id: str = "o1", resource_type: str = "Observation") -> Event:
    """An event of the first version of a resource."""
    return Event(number, resource_type, id, 1, datetime(2026, 1, 2, tzinfo=UTC), f"c{number}", b"{}")


def note(
    url: str, number: int = 1, body: bytes | None = b'{"resourceType":"Observation"}', **changes: Any
) -> Notification:
    """A notification of one event."""
    given: dict[str, Any] = {
        "tenant": "default", "subscription_id": "s1", "content_type": "application/fhir+json", "key": "Patient/7",
        "events": (event(number),), "message_id": f"s1/{number}/x",
    }  # fmt: skip
    return Notification("POST", url, [("X-Route", "north")], body, CORRELATION, **(given | changes))


class BrokerCase(TestCase):
    """A folder, and waits."""

    timeout = 600

    def setUp(self) -> None:
        self.folder = scratch()
        self.addCleanup(shutil.rmtree, self.folder, True)

    async def aside(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of an asyncio coroutine, run in a thread."""
        found: T = await deferToThread(asyncio.run, work)
        return found

    async def delivered(self, channel: BrokerChannel, notification: Notification) -> None:
        """Send as the ledger does: again and again, until it is acknowledged.  It fails with the last error."""
        deadline = reactor.seconds() + PATIENCE
        while not (sent := await channel.send(notification)).succeeded:
            self.assertLess(reactor.seconds(), deadline, sent.error)
            await deferLater(reactor, 0.1)

    async def refused(self, channel: BrokerChannel, notification: Notification, error: str) -> None:
        """Send to a server that is down until the reason is `error`, ten times at most.

        The first attempts may have another one: they find the end of the connection that was.
        """
        for _ in range(10):
            sent = await channel.send(notification)
            self.assertEqual((sent.succeeded, sent.is_refused), (False, False), sent.error)
            if error in str(sent.error):
                return
            await deferLater(reactor, 0.1)
        self.fail(f"not {error}: {sent.error}")
