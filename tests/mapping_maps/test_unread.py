"""Every field of every message is read, declared, or listed as unread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.hl7.message import Message, Segment
from ipf.hl7.reads import read_fields
from ipf.mapping.bundle.merging import TWO_OWNERS
from ipf.mapping.library.maps import Library
from ipf.ports.messages.mapping import DECLARED, UNREAD
from tests.corpus import samples
from tests.mapping_maps import generator
from tests.mapping_maps.unread import TABLE, messages_in, report, table
from tests.reference import REFERENCE, needs_reference

FAMILY = "maps"

IS_PART = re.compile(r"-\d+(?:\.\d+|\[2\])$")
"""A component, or the repetitions of a field."""


def valued(segment: Segment) -> Iterator[str]:
    """The fields with a value, from the text of the segment."""
    offset = 1 if segment.name == "MSH" else 0
    for number, raw in enumerate(segment.raw.split("|")[1:], start=1 + offset):
        if raw.replace('""', "").replace("~", "").replace("^", "").replace("&", "").strip(" "):
            yield f"{segment.name}-{number}"
    if offset:
        yield "MSH-1"


def three_sets(test: TestCase, name: str, message: Message, library: Library) -> int:
    """Read, declared and unread fields are disjoint, and together all fields; returns their number."""
    result = library.run(message, checked=False)
    assert result.findings is not None
    found = result.findings.by_segment()
    counts: dict[str, int] = {}
    every = 0
    for segment in message.all_segments:
        number = counts[segment.name] = counts.get(segment.name, 0) + 1
        expected = set(valued(segment)) | ({"MSH-2"} if segment.name == "MSH" else set())
        mine = [one.field for one in found if (one.segment, one.number) == (segment.name, number)]
        mine = [one for one in mine if not IS_PART.search(one.path)]
        read = {f"{segment.name}-{number}" for number in read_fields(segment)}
        declared = {one.path for one in mine if one.kind == DECLARED}
        open_ = {one.path for one in mine if one.kind == UNREAD}
        where = f"{name} {segment.name}[{number}]"
        for whole in (declared, open_):
            if segment.name in whole:  # the whole segment: nothing else is said about it
                test.assertEqual(len(mine), 1, where)
                whole |= expected
                whole.remove(segment.name)
        test.assertEqual(sorted(read | declared | open_), sorted(expected), where)
        test.assertEqual(len(read) + len(declared) + len(open_), len(expected), where)
        every += len(expected)
    return every


class ThreeSetsTests(TestCase):
    def test_corpus(self) -> None:
        """Messages of the corpus, twice and more: results from the cache bring their marks."""
        every = 0
        for _ in range(3):
            for name in samples.names():
                message = samples.message(name)
                if samples.library().has_map(message.message_type):
                    every += three_sets(self, name, message, samples.library())
        self.assertGreater(every, 3 * 2000)

    @needs_reference
    def test_published(self) -> None:
        """Messages that others published."""
        count = 0
        for path in sorted((REFERENCE / "v2-pairs" / "messages").glob("*.hl7")):
            for raw in messages_in(path):
                count += three_sets(self, path.name, Message.parse(raw), samples.library()) > 0
        self.assertGreaterEqual(count, 60)

    def test_generated(self) -> None:
        """A message of every type that has a map; `test_many_generated` tries more."""
        library = samples.library()
        for name, text in generator.messages(library.message_types, range(1)).items():
            try:
                self.assertGreater(three_sets(self, name, samples.parse(text), library), 5)
            except Problem as problem:  # one number for things of two patients
                self.assertEqual(problem.text, TWO_OWNERS)

    def test_open_fields_of_the_corpus(self) -> None:
        """tests/corpus/unread.txt says what is open."""
        self.assertTrue(TABLE.read_text(encoding="utf-8") == table(), "run bin/mapping-coverage")


def without(message: Message, path: str) -> Iterator[Message]:
    """The message with another text in a component (`PID-3.2`), in each segment that has it."""
    segment, _, place = path.partition("-")
    field, component = (int(one) for one in place.split("."))
    lines = message.raw.decode().split("\r")
    for number, line in enumerate(lines):
        fields = line.split("|")
        index = field - 1 if segment == "MSH" else field
        if fields[0] == segment and index < len(fields) and "~" not in fields[index]:
            components = fields[index].split("^")
            if len(components) >= component and components[component - 1]:
                components[component - 1] = "ZZZ9"
                fields[index] = "^".join(components)
                yield Message.parse("\r".join([*lines[:number], "|".join(fields), *lines[number + 1 :]]).encode())


class ComponentTests(TestCase):
    def test_unread_components_change_nothing(self) -> None:
        """Another text in a component that no rule reads gives the same Bundle."""
        library, tried = samples.library(), 0
        for name in samples.names():
            message = samples.message(name)
            if not library.has_map(message.message_type):
                continue
            result = library.run(message, checked=False)
            for one in result.unread():
                if one.kind in (UNREAD, DECLARED) and IS_PART.search(one.path) and "[" not in one.path:
                    for other in without(message, one.path):
                        made = library.run(other, checked=False).made.bundle()
                        self.assertEqual(samples.readable(made), samples.readable(result.made.bundle()), (name, one))
                        tried += 1
        self.assertGreater(tried, 15)

    def test_agreeing_fields(self) -> None:
        """What another field says as well is read; what contradicts it is not."""
        head = "MSH|^~\\&|A|B|||20260310120000||ORU^R01^ORU_R01|1|P|2.5.1\n"
        for pid, orc, obr, expected in (
            ("Y|2|||20260101|Y", "P1|F1", "P1|F1", set()),
            ("N|2|||20260101|N", "P1|F1", "P2|F1", {"PID-24", "PID-30"}),  # OBR-2 is a number of the order
        ):
            born, order, _, _, died, dead = pid.split("|")
            person = f"PID|1||1^^^B^MR||X{'|' * 19}{born}|{order}||||{died}|{dead}\n"
            text = f"{head}{person}ORC|RE|{orc}\nOBR|1|{obr}|T^Test^L|||||||||||||||||||||F\n"
            unread = {one.path for one in samples.library().run(samples.parse(text)).unread() if one.kind == UNREAD}
            self.assertEqual(unread & {"PID-24", "PID-30", "OBR-2", "OBR-3"}, expected)


class ReportTests(TestCase):
    def test_files_of_messages(self) -> None:
        """Several messages in one file, in frames and with any line ends; one that has no map is named."""
        path = Path(self.mktemp())
        one = samples.message("a01_inpatient").raw.rstrip(b"\r") + b"\rZZZ|1|x\r"
        other = one.replace(b"\r", b"\r\n").replace(b"ZZZ|1|x", b"ZZZ|2")
        path.write_bytes(b"\x0b" + one + b"\x1c\r" + other + one.replace(b"ADT^A01^ADT_A01", b"XYZ^Q99"))
        lines = list(report([str(path)]))
        self.assertEqual([line for line in lines if "no StructureMap" in line],
                         [f"not mapped: {path}: no StructureMap is installed for XYZ_Q99"])  # fmt: skip
        found = {line.split()[0]: line.split()[1] for line in lines if line.startswith("  ")}
        self.assertEqual((found["ZZZ"], found["PID-3"], found["PID-1"]), ("2", "2", "2"))
        kinds = [line.partition(":")[0] for line in lines if not line.startswith(("  ", "not mapped"))]
        self.assertEqual(kinds, ["mapped", "declared", "unread", "dropped"])
        declared = next(line for line in lines if line.startswith("  PID-1 "))
        self.assertIn("(segments/MSH_MessageHeader.fml:", declared)
