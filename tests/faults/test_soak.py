"""A mixed feed, with a subscriber that fails now and then: at the end all records agree with one another.

`IPF_SOAK_MESSAGES` of each sender (default 150; 10,000 run for an hour).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
from collections import Counter
from typing import Any

from twisted.trial.unittest import TestCase

from tests.corpus import samples
from tests.event_loop import LIMIT, run
from tests.faults.feed import admission
from tests.faults.scenario import Scenario
from tests.traffic.messages import END, VT
from tests.traffic.messages_results import oru
from tests.traffic.sink import Sink
from tests.traffic.subscribers import subscribe
from tests.waiting import PATIENCE, SLOW, until

GROUP = "campaigns"

MESSAGES = int(os.environ.get("IPF_SOAK_MESSAGES", "150"))
SECONDS = LIMIT + MESSAGES * SLOW
MIXED = ("orm_radiology", "siu_s12_booking", "vxu_child", "mdm_t02_note", "a08_update", "dft_charges", "rde_encoded")
BACKLOG = 100  # messages that wait: senders go on when there are fewer


class FailingSink(Sink):
    """A subscriber that answers every twentieth request with 503."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: Counter[int] = Counter()

    def answer(self) -> bytes:
        """The next answer."""
        failing = sum(self.answers.values()) % 20 == 19
        self.answers[503 if failing else 200] += 1
        words = b"503 Service Unavailable" if failing else b"200 OK"
        return b"HTTP/1.1 " + words + b"\r\nContent-Length: 0\r\n\r\n"


class SoakTests(TestCase):
    timeout = SECONDS

    def test_everything_agrees_at_the_end(self) -> None:
        """Acknowledgements, rows, FHIR versions, events, deliveries, what the subscriber saw, and the metrics."""
        run(self._soak(), seconds=SECONDS)

    async def _soak(self) -> None:
        chosen = {
            "IPF_MAX_ATTEMPTS": "2", "IPF_WORKER_PROCESSES": "1", "IPF_WORKER_POLL_MS": "100",
            # A machine that stands still for a while is no failure of a subscriber, nor of a conversion.
            "SUBSCRIPTION_SERVICE_DELIVERY_TIMEOUT_MS": "120000", "IPF_WORKER_TRANSFORMING_STALE_SECONDS": "120",
        }  # fmt: skip
        async with Scenario(**chosen) as scenario:
            failing = FailingSink()
            await subscribe(scenario.service, await failing.start(), "DiagnosticReport?")
            codes = await self._feed(scenario)
            await self._settle(scenario)
            await self._compare(scenario, failing, codes)
            failing.close()

    async def _feed(self, scenario: Scenario) -> Counter[str]:
        """Senders of several kinds; how many answers of each kind came."""
        codes: Counter[str] = Counter()
        kinds = (_admissions("1"), _admissions("2"), _results(), _mixed(), _odd())
        waiting = Backlog(scenario)
        watching = asyncio.create_task(until(waiting.look, seconds=float("inf")))
        port = scenario.service.mllp_port
        await asyncio.gather(*(_sender(port, itertools.islice(kind, MESSAGES), codes, waiting) for kind in kinds))
        watching.cancel()
        return codes

    async def _settle(self, scenario: Scenario) -> None:
        """Wait until nothing is open and nothing is due."""
        try:
            await until(lambda: asyncio.to_thread(lambda: not _still_open(scenario)), "settled")
        except AssertionError as late:
            raise AssertionError(f"not settled: {_still_open(scenario)}") from late

    async def _compare(self, scenario: Scenario, failing: FailingSink, codes: Counter[str]) -> None:
        rows = dict(scenario.sql("ipf", "SELECT status, count(*) FROM ingested_messages GROUP BY 1"))
        ((rejects,),) = scenario.sql("ipf", "SELECT count(*) FROM rejects")
        delivered, dead = int(rows.pop("DELIVERED")), int(rows.pop("DEAD_LETTER"))
        self.assertEqual(rows, {})
        self.assertGreater(min(delivered, dead, codes["AR"], codes["duplicate"]), 0)
        self.assertEqual(delivered + dead, codes["AA"] + codes["CA"] - codes["duplicate"])
        self.assertEqual(int(rejects), codes["AR"])
        ingested, deliveries = "interface_engine_ingested_messages_total", "fhir_subscription_delivery_total"
        seen = self._compare_deliveries(scenario, failing)
        await self._metrics_say(scenario, {
            (ingested, "RECEIVED"): delivered + dead, (ingested, "DELIVERED"): delivered,
            (ingested, "DEAD_LETTER"): dead, ("interface_engine_dlq_current_size", ""): dead,
            (deliveries, "success"): seen, (deliveries, "failure"): failing.answers[503],
        })  # fmt: skip
        for status, count in (("DELIVERED", delivered), ("DEAD_LETTER", dead)):
            _, page = await asyncio.to_thread(scenario.service.get, f"/admin/messages?status={status}&limit=1")
            self.assertEqual(page["total"], count)

    async def _metrics_say(self, scenario: Scenario, expected: dict[tuple[str, str], float]) -> None:
        """Counters and gauges follow the rows: so it may take a while."""

        def found() -> dict[tuple[str, str], float]:
            metrics = _metrics(scenario)
            return {key: metrics.get(key, 0) for key in expected}

        with contextlib.suppress(AssertionError):
            await until(lambda: asyncio.to_thread(lambda: found() == expected))
        self.assertEqual(found(), expected)

    def _compare_deliveries(self, scenario: Scenario, failing: FailingSink) -> int:
        """What the ledger says is what both subscribers saw, and every event was acknowledged once; how many."""
        ledger = {
            (succeeded, status): int(count)
            for succeeded, status, count in scenario.sql(
                "fhir", "SELECT succeeded, http_status, count(*) FROM delivery_attempts GROUP BY 1, 2"
            )
        }
        seen = failing.answers[200] + len(scenario.sink.times)
        self.assertEqual(ledger, {("t", "200"): seen, ("f", "503"): failing.answers[503]})
        self.assertGreater(failing.answers[503], 0)
        ((events, gaps),) = scenario.sql(
            "fhir",
            "SELECT (SELECT count(*) FROM subscription_events), (SELECT count(*) FROM subscription_states s WHERE"
            " last_event_number <> (SELECT count(*) FROM subscription_events WHERE subscription_rid = s.rid))",
        )
        self.assertEqual((int(events), int(gaps)), (seen, 0))
        ((twice,),) = scenario.sql(
            "fhir",
            "SELECT count(*) FROM (SELECT 1 FROM index_text i JOIN search_parameters p ON p.id = i.param WHERE"
            " p.resource_type = 'Patient' AND p.code = 'identifier' AND i.val LIKE 'S%' GROUP BY val"
            " HAVING count(DISTINCT rid) > 1) doubled",
        )
        self.assertEqual(twice, "0")
        return seen


class Backlog:
    """How many messages wait."""

    def __init__(self, scenario: Scenario) -> None:
        self.count = 0
        self._scenario = scenario

    async def look(self) -> bool:
        """Ask the service; False, so that it is asked again."""
        path = "/admin/messages?status=RECEIVED&limit=1"
        self.count = (await asyncio.to_thread(self._scenario.service.get, path))[1]["total"]
        return False


async def _sender(port: int, messages: Any, codes: Counter[str], waiting: Backlog) -> None:
    """One connection that waits for each acknowledgement."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for message, is_repeat in messages:
            await until(lambda: waiting.count < BACKLOG, "the service keeps up")
            writer.write(message)
            answer = await asyncio.wait_for(reader.readuntil(b"\x1c\r"), PATIENCE)
            codes[answer.split(b"MSA|")[1][:2].decode()] += 1
            codes["duplicate"] += is_repeat
    finally:
        writer.close()


def _admissions(sender: str) -> Any:
    """Admissions of a few patients; every tenth message is sent twice."""
    for number in itertools.count():
        message = admission(f"S{sender}N{number}", f"S{sender}P{number % 7}", f"+47{number:06}")
        yield message, False
        if number % 10 == 9:
            yield message, True


def _results() -> Any:
    for number in itertools.count():
        yield VT + oru(8, f"SR{number}", f"S1P{number % 7}") + END, False


def _mixed() -> Any:
    """Samples of many types, each time with a control id of its own."""
    texts = [(samples.HERE / f"{name}.hl7").read_text(encoding="utf-8").strip().split("\n") for name in MIXED]
    for number in itertools.count():
        segments = texts[number % len(texts)]
        header = segments[0].split("|")
        header[9] = f"MX{number}"
        yield VT + "\r".join(["|".join(header), *segments[1:], ""]).encode() + END, False


def _odd() -> Any:
    """A type that nobody maps, which dead-letters, then what is refused."""
    for number in itertools.count():
        yield VT + f"MSH|^~\\&|ODD|X|||20260101||ZZZ^Z99|OD{number}|P|2.5\rPID|1||OD{number}\r".encode() + END, False
        yield VT + f"MSH|^~\\&||X|||20260101||ADT^A01|NO{number}|P|2.5\r".encode() + END, False


def _still_open(scenario: Scenario) -> list[list[str]]:
    """Messages by status, and subscriptions with their numbers, that are not at their end."""
    ended = "status IN ('DELIVERED', 'DEAD_LETTER')"
    messages = f"SELECT status, count(*), min(last_error) FROM ingested_messages WHERE NOT {ended} GROUP BY 1"
    behind = (
        "SELECT id, status, delivered_number, last_event_number, attempt_count, last_error FROM subscription_states"
        " WHERE delivered_number < last_event_number"
    )
    return scenario.sql("ipf", messages) + scenario.sql("fhir", behind)


def _metrics(scenario: Scenario) -> dict[tuple[str, str], float]:
    """Sums of the exposition by name and by what tells its series apart."""
    found: Counter[tuple[str, str]] = Counter()
    text = str(scenario.service.get("/actuator/prometheus")[1])
    for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE):
        named = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found[name, named.get("status") or named.get("outcome") or ""] += float(value)
    return dict(found)
