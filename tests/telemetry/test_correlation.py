"""Correlation ids: valid, in order of time, and the caller's own where it is one."""

from __future__ import annotations

from time import time
from uuid import UUID

from twisted.trial.unittest import TestCase

from ipf.telemetry.correlation import accept, new_correlation_id


class CorrelationTests(TestCase):
    def test_a_new_id_is_a_version_7_uuid_of_now(self) -> None:
        text = new_correlation_id()
        made = UUID(text)
        self.assertEqual((made.version, made.variant, str(made)), (7, "specified in RFC 4122", text))
        self.assertLess(abs((made.int >> 80) / 1000 - time()), 5)

    def test_ids_are_distinct_and_sort_by_time(self) -> None:
        made = [new_correlation_id() for _ in range(5000)]
        self.assertEqual(len(set(made)), 5000)
        firsts = [text[:18] for text in made]
        self.assertEqual(firsts, sorted(firsts))

    def test_a_callers_uuid_is_kept(self) -> None:
        own = "6f1e1b5e-0c38-4b3c-9c51-0242ac120002"
        for given in (own, own.upper(), f" {own} ", own.encode()):
            self.assertEqual(accept(given), own)

    def test_anything_else_is_replaced(self) -> None:
        own = "6f1e1b5e-0c38-4b3c-9c51-0242ac120002"
        for given in (None, "", b"", "abc", own[:-1], own + "0", own.replace("-", ""), f"{{{own}}}", own + "\nx: y"):
            made = accept(given)
            self.assertNotEqual(made, own)
            self.assertEqual(UUID(made).version, 7)
