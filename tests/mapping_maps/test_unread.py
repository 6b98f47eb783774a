"""Every field of every message is read, declared, or listed as unread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.hl7.message import Message, Segment
from ipf.hl7.reads import read_fields
from ipf.mapping.library.maps import Library
from ipf.ports.messages.mapping import DECLARED, UNREAD
from tests.corpus import samples
from tests.mapping_maps import generator
from tests.mapping_maps.unread import TABLE, messages_in, report, table
from tests.reference import REFERENCE, needs_reference

FAMILY = "maps"


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
            self.assertGreater(three_sets(self, name, samples.parse(text), library), 5)

    def test_open_fields_of_the_corpus(self) -> None:
        """tests/corpus/unread.txt says what is open."""
        self.assertTrue(TABLE.read_text(encoding="utf-8") == table(), "run bin/mapping-coverage")


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
