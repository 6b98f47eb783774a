"""kill -9 under delivery load: numbers without gap, every event delivered, in order within a subscription.

With several notifications in flight the versions of each resource are in order, and no event is earlier than the window
allows.  `IPF_KILLS` says how often it is killed (default 4; 50 for a long run).
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import random
from collections import defaultdict

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario
from tests.traffic.sink import Sink
from tests.traffic.subscribers import subscribe
from tests.waiting import until

GROUP = "kills"

KILLS = int(os.environ.get("IPF_KILLS", "4"))
SECONDS = LIMIT * max(1, KILLS / 6)
SUBSCRIPTIONS = 8
IN_FLIGHT = 8


class Orders(Sink):
    """Remembers, for each subscription, which version came when, repeats included."""

    def __init__(self) -> None:
        super().__init__()
        self.came: dict[str, list[tuple[str, str]]] = defaultdict(list)

    def take(self, head: bytes, body: bytes) -> None:
        resource = json.loads(body)
        name = head.split(b" ", 2)[1].decode().split("/")[2]
        self.came[name].append((resource["id"], resource["meta"]["versionId"]))
        super().take(head, body)


class DeliveryFaultTests(TestCase):
    timeout = SECONDS

    def test_kills_under_delivery_load(self) -> None:
        """Eight subscriptions see every change of a Patient, while the process is killed at random moments."""
        run(self._kills(), seconds=SECONDS)

    def test_kills_with_several_in_flight(self) -> None:
        """The same with the setting, at half the number of kills."""
        run(self._kills(IN_FLIGHT, max(KILLS // 2, 1)), seconds=SECONDS)

    async def _kills(self, in_flight: int = 1, kills: int = KILLS) -> None:
        chance = random.Random(kills)
        setting = {"SUBSCRIPTION_SERVICE_DELIVERY_IN_FLIGHT": str(in_flight)}
        async with Scenario(IPF_WORKER_PROCESSES="0", **setting) as scenario:
            orders = Orders()
            url = await orders.start()
            for number in range(SUBSCRIPTIONS):
                await subscribe(scenario.service, f"{url}/{number}", scenario.criteria)
            written: list[int] = []
            writing = asyncio.ensure_future(_write(scenario, written))
            for _ in range(kills):
                await _reached(written, len(written) + chance.randint(1, 60))
                scenario.service.kill()
                scenario.service.start()
                await scenario.ready()
            await _reached(written, max(len(written) + 50, 100))
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await scenario.settled()
            self._check(scenario, orders, in_flight)
            orders.close()

    def _check(self, scenario: Scenario, orders: Orders, in_flight: int) -> None:
        rows = scenario.sql(
            "fhir",
            "SELECT e.subscription_rid, e.event_number, r.id, e.version_id, v.body::json #>> '{channel,endpoint}'"
            " FROM subscription_events e JOIN resources r ON r.rid = e.resource_rid"
            " JOIN resource_versions v ON v.rid = e.subscription_rid AND v.version_id = 1 ORDER BY 1, 2",
        )
        events: dict[str, list[tuple[int, tuple[str, str]]]] = defaultdict(list)
        for _, number, id, version, endpoint in rows:
            events[endpoint.rpartition("/")[2]].append((int(number), (id, version)))
        events.pop("hook")  # the scenario's own
        ((stored,),) = scenario.sql(
            "fhir",
            "SELECT count(*) FROM resource_versions JOIN resources r USING (rid) WHERE resource_type = 'Patient'",
        )
        self.assertGreaterEqual(int(stored), 100)
        self.assertEqual(len(events), SUBSCRIPTIONS)
        for name, numbered in events.items():
            self.assertEqual([number for number, _ in numbered], list(range(1, int(stored) + 1)), f"gaps in {name}")
            first_arrivals = list(dict.fromkeys(orders.came[name]))
            in_order = [version for _, version in numbered]
            if in_flight == 1:
                self.assertEqual(first_arrivals, in_order, f"order of {name}")
                continue
            self.assertEqual(sorted(first_arrivals), sorted(in_order), f"lost by {name}")
            places = {version: place for place, version in enumerate(in_order)}
            early = max(places[version] - place for place, version in enumerate(first_arrivals))
            self.assertLess(early, in_flight, f"order of {name}")
            self.assertEqual(_by_resource(first_arrivals), _by_resource(in_order), f"order of versions at {name}")


async def _reached(written: list[int], count: int) -> None:
    await until(lambda: len(written) >= count, f"{count} writes")


def _by_resource(versions: list[tuple[str, str]]) -> dict[str, list[str]]:
    """The versions of each resource, in the order given."""
    found: dict[str, list[str]] = defaultdict(list)
    for id, version in versions:
        found[id].append(version)
    return found


async def _write(scenario: Scenario, written: list[int]) -> None:
    """Changes of a few Patients, one after another, as fast as they are taken; `written`: which were."""
    number = 0
    while True:
        number += 1
        id = f"d{number % 40}"
        patient = {"resourceType": "Patient", "id": id, "identifier": [{"value": str(number)}]}
        with contextlib.suppress(OSError, http.client.HTTPException):
            await asyncio.to_thread(scenario.service.request, "PUT", f"/fhir/Patient/{id}", patient)
            written.append(number)
        await until(lambda: asyncio.to_thread(scenario.service.answers))
