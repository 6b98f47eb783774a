"""Catch-up: one subscription that takes one event at a time (max-count 1), after an outage of its endpoint.

The events are numbered while the endpoint refuses connections.  The rate counts from the first notification after the
outage to the last one.  Every notification has one event.  With one in flight the numbers must arrive in order, each
once; with several, none may arrive before one that is `in flight` places ahead of it.

`IPF_BENCH_CODE` names another checkout of the service to measure with the same bench.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

from bench.notify import ALONE, bare, idle, transaction
from bench.receive import service
from bench.report import line
from bench.senders import run as run_load
from bench.turns import spent
from tests.service_process import ROOT, ServiceProcess
from tests.traffic.sink import Sink
from tests.traffic.subscribers import activated
from tests.waiting import PATIENCE

EVENTS = 5000
BARE_POSTS = 2000
IN_FLIGHT = 16
TOPIC = "http://bench.test/catch-up"
RETRIES = {
    "SUBSCRIPTION_SERVICE_DELIVERY_MAX_ATTEMPTS": "1000",
    "SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_MAX_MS": "1000",
}
_GUIDE = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition"
_NUMBER = re.compile(rb'"event-number","valueString":"(\d+)"')


def catch_up(folder: Path) -> None:
    """Events per second with max-count 1 after an outage, against treq alone with one request at a time."""
    code = os.environ.get("IPF_BENCH_CODE", str(ROOT))
    for in_flight in (1, IN_FLIGHT) if code == str(ROOT) else (1,):
        setting = {"SUBSCRIPTION_SERVICE_DELIVERY_IN_FLIGHT": str(in_flight)} if in_flight > 1 else {}
        with service(folder / str(in_flight), PYTHONPATH=code, **setting, **RETRIES, **ALONE) as one:
            trigger = {"resource": "Patient"}
            topic = {"url": TOPIC, "status": "active", "resourceTrigger": [trigger]}
            status, answer = one.request(
                "POST", "/fhir/SubscriptionTopic", {"resourceType": "SubscriptionTopic", **topic}
            )
            assert status == 201, answer
            for seconds in (0.0, 0.003):
                run_load(_outage(one, in_flight, seconds))


def _subscription(url: str) -> dict[str, Any]:
    content = {"extension": [{"url": f"{_GUIDE}/backport-payload-content", "valueCode": "full-resource"}]}
    most = [{"url": f"{_GUIDE}/backport-max-count", "valuePositiveInt": 1}]
    json_payload = {"payload": "application/fhir+json", "_payload": content}
    channel = {"type": "rest-hook", "endpoint": url, "extension": most, **json_payload}
    named = {"resourceType": "Subscription", "status": "requested", "reason": "bench"}
    return {**named, "criteria": TOPIC, "channel": channel}


async def _outage(one: ServiceProcess, in_flight: int, seconds: float) -> None:
    sink = Sink(seconds)
    url = await sink.start()
    port = int(url.split(":")[2].split("/")[0])
    status, created = await asyncio.to_thread(one.request, "POST", "/fhir/Subscription", _subscription(url))
    assert status == 201, created
    await activated(one, [created["id"]])
    sink.fail()
    for first in range(0, EVENTS, 100):
        status, answer = await asyncio.to_thread(one.request, "POST", "/fhir", transaction(first, 100))
        assert status == 200, answer
    sink = Sink(seconds)
    sink.keep_bodies = True
    used = spent(one)
    await sink.start_on(port)
    if not await sink.until(EVENTS, PATIENCE):
        raise SystemExit(f"only {len(sink.times)} of {EVENTS} notifications arrived")
    rate = (EVENTS - 1) / (sink.times[-1] - sink.times[0])
    await idle(one)
    own, postgres = [(now - then) / EVENTS * 1e6 for now, then in zip(spent(one), used, strict=True)]
    _check_order(sink.bodies, in_flight)
    sink.keep_bodies = False
    peer, peer_cost = await bare(url, sink.bodies[0], min(BARE_POSTS, EVENTS), 1)
    what = f"answer after {seconds * 1000:.0f} ms, {in_flight} in flight, {len(sink.bodies[0])} bytes"
    line(what, f"{rate:,.0f}/s", f"bare treq, one at a time, {peer:,.0f}/s; {rate / peer:.2f} x (target 1,500/s)")
    line("  processor time: service, PostgreSQL", f"{own:.0f} us, {postgres:.0f} us", f"bare treq {peer_cost:.0f} us")
    await asyncio.to_thread(one.request, "DELETE", f"/fhir/Subscription/{created['id']}")
    sink.close()


def _check_order(bodies: list[bytes], in_flight: int) -> None:
    """SystemExit when an event is missing, repeated, or too early."""
    numbers = [[int(number) for number in _NUMBER.findall(body)] for body in bodies]
    if sorted(numbers) != [[number] for number in range(1, EVENTS + 1)]:
        raise SystemExit("an event is missing or repeated, or a notification has several")
    early = max(number - place for place, (number,) in enumerate(numbers, 1))
    if early >= in_flight:
        raise SystemExit(f"an event arrived {early} places early")
