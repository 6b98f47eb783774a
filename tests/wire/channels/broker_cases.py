"""What the tests of channels to brokers share: a scratch folder, notifications, and asyncio helpers in a thread."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from ipf.ports import Event, Notification
from ipf.wire.channels.brokers import BrokerChannel
from tests.faults.scenario import scratch
from tests.waiting import until

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

    timeout = 600  # the first test of a module starts a broker: a Java or an Erlang machine

    def setUp(self) -> None:
        self.folder = scratch()
        self.addCleanup(shutil.rmtree, self.folder, True)

    async def aside(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of an asyncio coroutine, run in a thread."""
        found: T = await deferToThread(asyncio.run, work)
        return found

    async def delivered(self, channel: BrokerChannel, notification: Notification) -> None:
        """Send as the ledger does: again and again, until it is acknowledged.  It fails with the last error."""
        errors: list[str | None] = []

        async def is_acknowledged() -> bool:
            sent = await channel.send(notification)
            errors.append(sent.error)
            return sent.succeeded

        await self._until(is_acknowledged, errors)

    async def refused(self, channel: BrokerChannel, notification: Notification, error: str) -> None:
        """Send to a server that is down until the reason is `error`.

        The first attempts may have another one: they find the end of the connection that was.
        """
        errors: list[str | None] = []

        async def is_refused() -> bool:
            sent = await channel.send(notification)
            self.assertEqual((sent.succeeded, sent.is_refused), (False, False), sent.error)
            errors.append(sent.error)
            return error in str(sent.error)

        await self._until(is_refused, errors)

    async def _until(self, condition: Callable[[], Awaitable[bool]], errors: list[str | None]) -> None:
        try:
            await until(condition)
        except AssertionError as failure:
            raise AssertionError(f"{failure}; the last errors: {errors[-3:]}") from None
