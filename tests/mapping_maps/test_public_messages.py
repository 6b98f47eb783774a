"""Every public message of `../shared/reference` becomes valid R4."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import TestCase

from tests.mapping_maps.public_messages import messages, survey
from tests.reference import REFERENCE, needs_reference
from tests.waiting import SLOW

GROUP = "campaigns"
MESSAGE = "MSH|^~\\&|A|B|||2026||ADT^A01|1|P|2.5\rPID|1||1^^^B^MR||X\r"


class PublicMessageTests(TestCase):
    timeout = 300.0 * SLOW

    @needs_reference
    def test_no_errors(self) -> None:
        """Converted, and without an error of the validator."""
        found = survey(REFERENCE)
        self.assertGreater(found.messages, 70)
        self.assertGreater(found.resources, 250)
        self.assertEqual((dict(found.errors), found.refused, dict(found.unmapped)), ({}, {}, {}))


class FindingTests(TestCase):
    def test_where_messages_are_found(self) -> None:
        """In files of messages with any line ends, in JSON, in source files; once each."""
        folder = Path(self.mktemp())
        folder.mkdir()
        second, third = MESSAGE.replace("|1|P", "|2|P"), MESSAGE.replace("|1|P", "|3|P")
        for name, text in (
            ("a.hl7", MESSAGE),
            ("b.txt", "\x0b" + MESSAGE.replace("\r", "\r\n") + "\x1c\r" + second.replace("\r", "\n")),
            ("c.json", '{"send": [{"bytes": "' + third.replace("\\", "\\\\").replace("\r", "\\r") + '"}]}'),
            ("d.py", f"TEXT = {MESSAGE.replace('|1|P', '|4|P')!r}\n"),
            ("e.csv", "ADT^A01,MSH,x\nMSH,1,2\n"),
        ):
            (folder / name).write_text(text, newline="")
        found = [(name, text.split("|")[9]) for name, text in messages(folder)]
        self.assertEqual(found, [("a.hl7#0", "1"), ("b.txt#1", "2"), ("c.json#0", "3"), ("d.py#0", "4")])
