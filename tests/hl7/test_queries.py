"""Which messages are queries, answers, or events."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.hl7.queries import is_event, is_query


class QueryTests(TestCase):
    """By message code, whatever the trigger."""

    def test_kinds(self) -> None:
        """A query is no event, an answer is neither."""
        table = [
            ("QBP_Q22", True, False),
            ("QRY_A19", True, False),
            ("QRY", True, False),
            ("VXQ_V01", True, False),
            ("SQM_S25", True, False),
            ("RSP_K22", False, False),
            ("ADR_A19", False, False),
            ("ACK", False, False),
            ("ADT_A01", False, True),
            ("ZZZ_Z01", False, True),
        ]
        for message_type, query, event in table:
            with self.subTest(message_type=message_type):
                self.assertEqual((is_query(message_type), is_event(message_type)), (query, event))
