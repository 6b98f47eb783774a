"""Batches: taken apart, refused when cut off, acknowledged."""

from __future__ import annotations

from itertools import product

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.hl7.batches import acknowledgement, content_of, is_batch

M1, M2, M3 = (f"MSH|^~\\&|LAB|H|IPF|H|2026||ADT^A01|{number}|P|2.5\rPID|1||{number}\r" for number in "123")
FHS, BHS = "FHS|^~\\&|LAB|H|IPF|H|2026|||night|F7", "BHS|^~\\&|LAB|H|IPF|H|2026||||B7"


def text(*lines: str, end: str = "\r") -> bytes:
    """Segments with this line end."""
    return end.join(line.strip("\r").replace("\r", end) for line in lines).encode() + end.encode()


class ContentTests(TestCase):
    def test_what_is_taken(self) -> None:
        for raw in (
            text(M1, M2),
            text(BHS, M1, M2, "BTS|2"),
            text(BHS, M1, M2, "BTS"),
            text(BHS, M1, M2, "BTS|02|all"),
            text(FHS, BHS, M1, M2, "BTS|2", "FTS|1"),
            text(FHS, BHS, M1, "BTS|1", BHS, M2, "BTS|1", "FTS|2"),
            text(FHS, M1, M2, "FTS|2"),
            text(FHS, BHS, M1, M2, "BTS|2", "FTS|1", end="\n"),
            text(FHS, BHS, M1, M2, "BTS|2", "FTS|1", end="\r\n") + b"\r\n\r\n",
            b"\xef\xbb\xbf" + text(BHS, M1, M2, "BTS|2"),
            b"\x0b" + text(M1) + b"\x1c\r\x0b" + text(M2) + b"\x1c\r",
        ):
            self.assertEqual(content_of(raw).messages, [M1.encode(), M2.encode()], raw)

    def test_what_is_cut_off_or_out_of_order_is_refused(self) -> None:
        for raw, reason in (
            (text(BHS, M1, M2), "BHS has no BTS: it is cut off"),
            (text(FHS, BHS, M1, "BTS|1"), "FHS has no FTS: it is cut off"),
            (text(BHS, M1, M2, "BTS|3"), "line 6: BTS-1 says 3 messages, there are 2"),
            (text(FHS, BHS, M1, "BTS|1", "FTS|2"), "line 6: FTS-1 says 2 batches, there are 1"),
            (text(BHS, BHS, M1, "BTS|1"), "line 2: BHS stands within a batch"),
            (text(M1, FHS, M2, "FTS"), "line 3: FHS must be the first segment"),
            (text(M1, "BTS|1"), "line 3: BTS without its BHS"),
            (text(BHS, "PID|1", M1, "BTS|1"), "line 2: stands outside of a message"),
            (text(FHS, M1, "FTS|1", M2), "line 5: stands after FTS"),
            (text(BHS, "BTS|0"), "there is no message in it"),
            (b"", "there is no message in it"),
        ):
            problem = self.assertRaises(Problem, content_of, raw)
            self.assertIn(reason, str(problem), raw)

    def test_bytes_of_fields_stay(self) -> None:
        message = b"MSH|^~\\&|LAB|H|IPF|H|2026||ORU^R01|1|P|2.5\rOBX|1|TX|x||Gr\xfc\xdfe \nzwei \r"
        self.assertEqual(content_of(b"BHS|^~\\&\r" + message + b"BTS|1\r").messages, [message])

    def test_what_is_a_batch(self) -> None:
        texts = M1.replace("PID", "OBX|1|TX|a||MSH and\nMSHx ~MSH|\nPID")
        for raw, expected in (
            (text(BHS), True), (text(FHS), True), (text(M1), False), (b"", False), (texts.encode(), False),
            (M1.encode("utf-16"), False), ((M1 + M2).encode("utf-16"), True), (M1.encode("utf-16-le"), False),
        ):  # fmt: skip
            self.assertEqual(is_batch(raw), expected, raw)
        for end in ("\r", "\n", "\r\n"):
            for more in (M2, BHS, "BTS|1", "FTS|1", "BTS"):
                self.assertTrue(is_batch(text(M1, more, end=end)), more)

    def test_what_is_taken_apart_is_taken_once(self) -> None:
        """A message of a batch is none itself: generated from what could begin one."""
        pieces = (
            "MSH|", "MSH#^~\\&#x", "MSHx|", "\x0bMSH|^~\\&|", "BHS|", "BTS", "PID|1", "\x1c", "x\x0bMSH|", "", "FTS|1",
        )  # fmt: skip
        for chosen in product(pieces, repeat=3):
            for ends in product("\r\n", repeat=2):
                raw = (M1 + chosen[0] + ends[0] + chosen[1] + ends[1] + chosen[2]).encode()
                try:
                    messages = content_of(raw).messages if is_batch(raw) else []
                except Problem:
                    continue
                self.assertEqual([one for one in messages if is_batch(one)], [], raw)

    def test_several_messages_without_a_header(self) -> None:
        """Whatever ends the lines, also mixed: those of text within fields stay."""
        messages = [M1, M2.replace("PID", "NTE|1||a\nb MSH|\rPID"), M3]
        for ends in product(("\r", "\n", "\r\n"), repeat=2):
            raw = "".join(one.replace("\rPID", f"{ends[0]}PID").replace("\rNTE", f"{ends[0]}NTE")[:-1] + ends[1]
                          for one in messages).encode()  # fmt: skip
            self.assertTrue(is_batch(raw))
            self.assertEqual(content_of(raw).messages, [one.encode() for one in messages], raw)
        self.assertRaises(Problem, content_of, (M1 + M2).encode("utf-16"))


class AcknowledgementTests(TestCase):
    def test_it_has_the_shape_of_what_it_answers(self) -> None:
        content = content_of(text(FHS, BHS, M1, "BTS|1", BHS, M2, M3, "BTS|2", "FTS|2"))
        made = acknowledgement(content, [b"A1\r", None, b"A3\r"], "20260102", "C1").decode()
        self.assertEqual(
            made.rstrip("\r").split("\r"),
            [
                "FHS|^~\\&|IPF|H|LAB|H|20260102||||C1|F7",
                "BHS|^~\\&|IPF|H|LAB|H|20260102||||C1|B7", "A1", "BTS|1",
                "BHS|^~\\&|IPF|H|LAB|H|20260102||||C1|B7", "A3", "BTS|1",
                "FTS|2",
            ],
        )  # fmt: skip
