"""Quirks: the effect of each strategy on a message."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from twisted.trial.unittest import TestCase

from ipf.hl7.message import Message
from ipf.ports import Claimed
from ipf.vendor_profiles.quirks import KNOWN, control_id, edits_for, fallback_charset, normalized

MSH = "MSH|^~\\&|APP^1.2^ISO|SITE|||01.02.2026 08:09||ADT^A04|C1|P|2.5"


def claimed(*segments: str, charset: str = "utf-8") -> Claimed:
    """A stored message."""
    raw = "\r".join((MSH, *segments, "")).encode(charset)
    return Claimed(1, 1, "c", datetime.now(UTC), "APP", "C1", "ADT_A04", raw, charset, 0)


class QuirkTests(TestCase):
    def test_strategies(self) -> None:
        """Each row: quirk, strategy, a segment as sent and as normalized."""
        for quirk, strategy, sent, seen in (
            ("padded-values", "trim", "PID|1 ||77 ^^^ A &1.2||Ann ^ B", "PID|1||77^^^A&1.2||Ann^B"),
            ("padded-values", "trim", "OBX|1|ST|a^b ||  1 ~ 2 ", "OBX|1|ST|a^b||  1 ~ 2 "),
            ("padded-values", "trim", "NTE|1||  text ", "NTE|1||  text "),
            ("null-values", "ignore", 'PID|1||77^""^^A||""|""~B', "PID|1||77^^^A|||~B"),
            ("repetitions", "distinct", "PID|1||77^^^A~78^^^A~77^^^A||X~X", "PID|1||77^^^A~78^^^A||X"),
            ("timestamps", "day-first", "PV1|1|I|15.03.1970|1/2/2026 03:04:05|31.12.2026 23:59|x15.03.1970|1.2.3",
             "PV1|1|I|19700315|20260201030405|202612312359|x15.03.1970|1.2.3"),
            ("timestamps", "month-first", "PV1|1|03/15/1970|15.13.1970", "PV1|1|19700315|15.13.1970"),
            ("timestamps", "iso-8601", "PV1||2026-02-01|2026-02-01T03:04|2026-02-01 03:04:05.6+01:00|2026-02-01 03:04Z",
             "PV1||20260201|202602010304|20260201030405.6+0100|202602010304+0000"),
            ("timestamps", "iso-8601", "OBX|1|ST|a||2026-02-01", "OBX|1|ST|a||2026-02-01"),
            ("assigning-authority", "sending-facility", "PID|1||77~78^^^B~^^^||X", "PID|1||77^^^SITE~78^^^B~^^^||X"),
            ("assigning-authority", "sending-application", "PV1|1|I|77||" + "|" * 14 + "V1",
             "PV1|1|I|77||" + "|" * 14 + "V1^^^APP&1.2&ISO"),
        ):  # fmt: skip
            read = normalized(claimed(sent), {quirk: strategy})
            self.assertEqual(read.raw.decode().split("\r")[1], seen, (quirk, strategy))
            self.assertEqual(Message.parse(read.raw, read.charset).control_id, "C1")

    def test_default_strategies_change_nothing(self) -> None:
        """The first strategy of each returns the same object."""
        message = claimed("PID|1 ||77")
        plain = {name: quirk.strategies[0] for name, quirk in KNOWN.items()}
        self.assertIs(normalized(message, plain), message)
        self.assertEqual((edits_for(plain), control_id(plain, b"x"), fallback_charset(plain)), ((), "", None))

    def test_every_other_strategy_has_an_effect(self) -> None:
        """Each strategy but the first changes something."""
        for name, quirk in KNOWN.items():
            for strategy in quirk.strategies[1:]:
                set_ = {name: strategy}
                if strategy not in ("reject", "join"):  # refuses messages: test_layout; test_broken_lines
                    self.assertTrue(edits_for(set_) or control_id(set_, b"x") or fallback_charset(set_), set_)

    def test_separators_type_and_control_id_do_not_change(self) -> None:
        quirks = {"padded-values": "trim", "repetitions": "distinct", "timestamps": "day-first"}
        read = normalized(claimed("PID|1"), quirks)
        self.assertEqual(read.raw.decode().split("\r")[0], MSH.replace("01.02.2026 08:09", "202602010809"))

    def test_characters_stay_what_they_are(self) -> None:
        """The bytes that are mapped are in the charset of the message; line ends may be any."""
        message = claimed("PID|1||77||M\u00fcller ", charset="iso8859-1")
        message = replace(message, raw=message.raw.replace(b"\r", b"\n"))
        read = normalized(message, {"padded-values": "trim"})
        self.assertEqual((read.charset, read.raw.split(b"\r")[1]), ("iso8859-1", b"PID|1||77||M\xfcller"))

    def test_a_control_id_is_made_of_the_content(self) -> None:
        quirks = {"missing-control-id": "content-hash"}
        first = control_id(quirks, b"one")
        self.assertEqual(first, control_id(quirks, b"one"))
        self.assertNotEqual(first, control_id(quirks, b"two"))
        self.assertEqual(control_id({"missing-control-id": "reject"}, b"one"), "")
