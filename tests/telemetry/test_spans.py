"""The spans of a message form one tree through all stages; without a collector the SDK is not imported."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.pipeline.tracing import TracedChannel, TracedCommit, TracedMapper, traced_handler, traced_submit
from ipf.ports import Answer, Claimed, Delivered, Mapped, Notification, Outcome, Received, Request
from ipf.rest.write.unit import Unit, UnitResult
from ipf.telemetry import correlation
from ipf.telemetry.spans import Spans, open_spans
from tests.fakes import MemoryInbox

OWN = "4bf92f35-77b3-4da6-a3ce-929d0e0e4736"
NOW = datetime.now(UTC)


class StoringProcessor:
    """Stores the spans."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    def on_end(self, span: Any) -> None:
        self.spans.append(span)

    def shutdown(self) -> None:
        """Nothing is left to send."""


class Mapping:
    def has_map(self, message_type: str) -> bool:
        return True

    async def transform(self, message: Claimed) -> Mapped:
        if message.message_type == "ZZZ":
            raise Problem(Category.UNMAPPED, "no map for Hansen")
        return Mapped({}, "http://m/ADT")


class Hook:
    unavailable = None
    answer = Delivered(500, 3, None)

    def destination(self, endpoint: str) -> str:
        return endpoint

    async def send(self, notification: Notification) -> Delivered:
        return self.answer


def claimed(message_type: str = "ADT_A01") -> Claimed:
    return Claimed(7, 1, OWN, NOW, "LAB", "M1", message_type, b"", "utf-8", 0)


class SpansTests(TestCase):
    def setUp(self) -> None:
        self.processor = StoringProcessor()
        self.spans = Spans(self.processor, "1.0", "main")

    async def test_spans_form_one_tree(self) -> None:
        """Receive, map, store and notify are children of the receipt, in the trace of the correlation id."""
        clock = Clock()
        commit = TracedCommit(MemoryInbox(), clock)
        commit.spans = self.spans
        outcomes: list[Any] = []
        for _ in range(2):  # the duplicate makes no span
            commit.submit(Received(OWN, NOW, "LAB", "M1", "ADT_A01", b"MSH|"), self, outcomes.append)
            clock.pump([0.001] * 5)
        self.assertEqual(outcomes, [Outcome.STORED, Outcome.DUPLICATE])
        await TracedMapper(Mapping(), self.spans).transform(claimed())
        result = UnitResult(())

        async def submit(units: Any) -> list[Any]:
            return [result, Problem(Category.CONFLICT, "somebody")]

        units = [Unit("default", (), OWN, None), Unit("default", (), OWN, None)]
        self.assertEqual((await traced_submit(submit, self.spans)(units))[0], result)
        notification = Notification("POST", "http://x/secret", (), None, OWN, subscription_id="s")
        await TracedChannel(Hook(), "rest-hook", self.spans).send(notification)
        found = self.processor.spans
        self.assertEqual([span.name for span in found], ["receive", "map", "store", "store", "notify"])
        root = found[0].context
        self.assertEqual({f"{span.context.trace_id:032x}" for span in found}, {OWN.replace("-", "")})
        self.assertEqual(f"{root.span_id:016x}", correlation.first_span(OWN))
        self.assertEqual([span.parent and span.parent.span_id for span in found], [None] + [root.span_id] * 4)
        self.assertEqual(len({span.context.span_id for span in found}), 5)
        self.assertEqual([span.status.is_ok for span in found], [True, True, True, False, False])
        self.assertNotIn("secret", str([dict(span.attributes) for span in found]))
        self.assertEqual(len(encode_spans(found).resource_spans), 1)

    async def test_a_failed_span_names_only_its_category(self) -> None:
        with self.assertRaises(Problem):
            await TracedMapper(Mapping(), self.spans).transform(claimed("ZZZ"))
        self.assertEqual(self.processor.spans[0].status.description, "UNMAPPED")

    async def test_the_span_of_a_request_is_a_root(self) -> None:
        async def handle(request: Request) -> Answer:
            return Answer(503)

        request = Request("GET", ("Patient", "hansen"), (), {}, b"", "", OWN)
        await traced_handler(handle, self.spans)(request)
        span = self.processor.spans[0]
        self.assertEqual((span.name, span.parent, span.status.is_ok), ("GET /fhir/Patient", None, False))

    def test_an_invalid_correlation_id_makes_no_span(self) -> None:
        self.spans.record("x", "nonsense", 0.0, 1.0)
        self.assertEqual(self.processor.spans, [])

    def test_the_sdk_is_not_imported_without_a_collector(self) -> None:
        self.assertIsNone(open_spans(None, "1", "main"))
        code = "import sys, ipf.app.converter; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        self.assertEqual(subprocess.run([sys.executable, "-c", code], check=False, env=environment).returncode, 0)
