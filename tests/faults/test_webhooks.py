"""Endpoints that are down, slow or resetting connections: deliveries are repeated and others are not delayed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario
from tests.traffic.sink import Sink
from tests.traffic.subscribers import subscribe
from tests.waiting import PATIENCE, free_port, until

GROUP = "kills"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class WebhookFaultTests(TestCase):
    timeout = LIMIT

    def test_others_are_not_delayed_and_nothing_is_lost(self) -> None:
        """A working endpoint, with others that are down, never answer, or reset connections."""
        run(self._faults())

    async def _faults(self) -> None:
        # One process: a converter process would need time to load its maps.
        chosen = {"SUBSCRIPTION_SERVICE_DELIVERY_TIMEOUT_MS": "1500", "IPF_WORKER_PROCESSES": "0"}
        async with Scenario(**chosen) as scenario:
            down_port = free_port()
            hanging = await asyncio.start_server(_never_answers, "127.0.0.1", 0)
            resetting = await asyncio.start_server(_resets, "127.0.0.1", 0)
            for url in (f"http://127.0.0.1:{down_port}/hook", _url(hanging), _url(resetting)):
                await subscribe(scenario.service, url, scenario.criteria)
            scenario.feed.start()
            await scenario.feed.until(100)
            await scenario.feed.stop()
            # If each event waited for the endpoint that never answers, this would take minutes.
            self.assertTrue(await scenario.sink.until(len(scenario.feed.accepted), PATIENCE))
            query = "SELECT count(DISTINCT subscription_rid) FROM delivery_attempts WHERE NOT succeeded"
            await until(lambda: scenario.sql("fhir", query) == [["3"]], "all three have failed")
            hanging.close()
            resetting.close()
            await self._revived(scenario, down_port)

    async def _revived(self, scenario: Scenario, port: int) -> None:
        """The endpoint that was down listens now and receives every event, in order."""
        revived = Sink()
        revived.keep_bodies = True
        await revived.start_on(port)
        self.assertTrue(await revived.until(len(scenario.feed.accepted), PATIENCE))
        numbers = await asyncio.to_thread(
            scenario.sql,
            "fhir",
            "SELECT s.delivered_number = s.last_event_number FROM subscription_states s ORDER BY rid LIMIT 1",
        )
        self.assertEqual(numbers, [["t"]])
        revived.close()


def _url(server: asyncio.Server) -> str:
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"


async def _never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def _resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.transport.abort()
