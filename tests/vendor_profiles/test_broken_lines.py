"""Texts that were broken in lines: joined to the field before, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.hl7.checks import check_message
from ipf.hl7.message import Message
from ipf.vendor_profiles.quirks import normalized
from tests.corpus import samples
from tests.corpus.damage import lines_of
from tests.vendor_profiles.test_quirks import claimed

JOIN = {"broken-lines": "join"}
PID, OBX = "PID|1||77^^^A^MR", "OBX|1|TX|X^X^L||first"

DOCUMENT = "OBX|1|ED|P^P^L||^AP^PDF^Base64^"

LINES = [
    # lines as sent, lines as joined
    ((PID, OBX, "second line||||||F"), (PID, OBX + r"\.br\second line||||||F")),
    ((PID, OBX, "second", "third||||||F"), (PID, OBX + r"\.br\second\.br\third||||||F")),
    ((PID, OBX, "HIV", "LAB|none||||F"), (PID, OBX + r"\.br\HIV\.br\LAB|none||||F")),  # no names of segments
    ((PID, OBX, "Zebra", "ZOO: none"), (PID, OBX + r"\.br\Zebra\.br\ZOO: none")),
    ((PID, OBX, "ZB1|kept", "OBX|2"), (PID, OBX, "ZB1|kept", "OBX|2")),
    ((PID, OBX, "PV1"), (PID, OBX, "PV1")),
    ((PID, OBX, "PID has none||||F"), (PID, OBX + r"\.br\PID has none||||F")),
    ((PID, "1st line", OBX), (PID + r"\.br\1st line", OBX)),
    ((PID, OBX, " OBX|2|TX"), (PID, OBX, " OBX|2|TX")),  # damaged segments
    ((PID, OBX, "obx|2|TX"), (PID, OBX, "obx|2|TX")),
    ((PID, OBX, "Pv1|1|I"), (PID, OBX, "Pv1|1|I")),
    (("text after MSH", PID), ("text after MSH", PID)),
    (
        (PID, "OBX|1|ED|P^P^L||^AP^PDF^Base64^JVBE", "Ri0x||||||F"),
        (PID, "OBX|1|ED|P^P^L||^AP^PDF^Base64^JVBERi0x||||||F"),
    ),
    ((PID, "OBX|1|ED|P^P^L||^AP^PDF^Base64^JV||||x", "y"), (PID, r"OBX|1|ED|P^P^L||^AP^PDF^Base64^JV||||x\.br\y")),
]


class BrokenLineTests(TestCase):
    def test_lines(self) -> None:
        """Row by row; what is not joined is refused as before."""
        for sent, expected in LINES:
            with self.subTest(sent=sent):
                read = normalized(claimed(*sent), JOIN)
                self.assertEqual(tuple(read.raw.decode().split("\r")[1:-1]), expected)

    def test_a_whole_message_is_the_same_object(self) -> None:
        message = claimed(PID, OBX)
        self.assertIs(normalized(message, JOIN), message)
        self.assertEqual(normalized(claimed(PID, OBX, "x"), {"broken-lines": "refuse"}).raw.count(b"\r"), 4)

    def test_characters_and_other_quirks(self) -> None:
        """The charset stays, and other quirks see the joined line."""
        message = claimed(PID, "NTE|1||Zahn", "schmerz über Nacht", "ZB1| x ", charset="iso8859-1")
        read = normalized(message, JOIN | {"padded-values": "trim"})
        lines = [b"NTE|1||Zahn\\.br\\schmerz \xfcber Nacht", b"ZB1|x"]
        self.assertEqual((read.charset, read.raw.split(b"\r")[2:4]), ("iso8859-1", lines))

    def test_every_sample_broken_in_its_texts(self) -> None:
        """A carriage return within a field of each segment: joined, no segment is lost and none is made."""
        for name in samples.names():
            lines, random = lines_of(name), Random(name)
            for number in range(2, len(lines)):
                line = lines[number]
                cut = random.randrange(4, len(line) + 1)
                rest = line[cut:]
                if rest[3:4] == "|" or not rest:
                    continue  # it may begin as a segment does
                with self.subTest(sample=name, line=number, cut=cut):
                    raw = "\r".join((*lines[:number], line[:cut], rest, *lines[number + 1 :], "")).encode()
                    whole = Message.parse(normalized(replace(claimed(), raw=raw), JOIN).raw)
                    self.assertEqual([one.name for one in whole.all_segments], [one[:3] for one in lines])
                    self.assertEqual(whole.all_segments[number].raw.replace("\\.br\\", ""), line.replace("\\.br\\", ""))
                    check_message(whole, samples.WITHOUT_PATIENT)
                    if len(rest.rstrip()) != 3:  # else it may be a name without fields
                        self.assertRaises(Problem, check_message, Message.parse(raw), samples.WITHOUT_PATIENT)
