"""Correlation ids are valid, sort by time, and come from the caller where possible."""

from __future__ import annotations

from time import time
from uuid import UUID

from twisted.trial.unittest import TestCase

from ipf.telemetry.correlation import accept, first_span, new_correlation_id, of, traceparent

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACE_ID = "4bf92f35-77b3-4da6-a3ce-929d0e0e4736"
SPAN = "00f067aa0ba902b7"


class CorrelationTests(TestCase):
    def test_a_new_id_is_a_version_7_uuid(self) -> None:
        before = int(time() * 1000)
        text = new_correlation_id()
        after = int(time() * 1000)
        made = UUID(text)
        self.assertEqual((made.version, made.variant, str(made)), (7, "specified in RFC 4122", text))
        self.assertTrue(before <= made.int >> 80 <= after, text)

    def test_ids_are_distinct_and_sort_by_time(self) -> None:
        made = [new_correlation_id() for _ in range(5000)]
        self.assertEqual(len(set(made)), 5000)
        firsts = [text[:18] for text in made]
        self.assertEqual(firsts, sorted(firsts))

    def test_a_callers_uuid_is_kept(self) -> None:
        own = "6f1e1b5e-0c38-4b3c-9c51-0242ac120002"
        for given in (own, own.upper(), f" {own} ", own.encode()):
            self.assertEqual(accept(given), own)

    def test_an_invalid_id_is_replaced(self) -> None:
        own = "6f1e1b5e-0c38-4b3c-9c51-0242ac120002"
        for given in (None, "", b"", "abc", own[:-1], own + "0", own.replace("-", ""), f"{{{own}}}", own + "\nx: y"):
            made = accept(given)
            self.assertNotEqual(made, own)
            self.assertEqual(UUID(made).version, 7)

    def test_a_trace_id_replaces_a_missing_correlation_id(self) -> None:
        own = "6f1e1b5e-0c38-4b3c-9c51-0242ac120002"
        for parent in (f"00-{TRACE}-{SPAN}-01", f" 00-{TRACE}-{SPAN}-00".encode(), f"01-{TRACE}-{SPAN}-01-more"):
            self.assertEqual(accept(None, parent), TRACE_ID)
            self.assertEqual(accept("nonsense", parent), TRACE_ID)
            self.assertEqual(accept(own, parent), own)
        self.assertEqual(of({"traceparent": f"00-{TRACE}-{SPAN}-01"}.get), TRACE_ID)

    def test_an_invalid_traceparent_is_ignored(self) -> None:
        for parent in (
            f"ff-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-more",
            f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01",
            f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE}-{SPAN}", "", "00", f"00-{TRACE}-{SPAN}-01\nx",
        ):  # fmt: skip
            self.assertEqual(UUID(accept(None, parent)).version, 7, parent)

    def test_outbound_traceparent(self) -> None:
        """The correlation id is the trace id, and another ipf derives the same id from it."""
        self.assertEqual(traceparent(TRACE_ID), f"00-{TRACE}-a3ce929d0e0e4736-00")
        self.assertEqual(traceparent(TRACE_ID, SPAN), f"00-{TRACE}-{SPAN}-00")
        self.assertEqual(accept(None, traceparent(TRACE_ID)), TRACE_ID)
        self.assertIsNone(traceparent("00000000-0000-0000-0000-000000000000"))
        self.assertEqual(first_span("4bf92f35-77b3-4da6-0000-000000000000"), "0000000000000001")
