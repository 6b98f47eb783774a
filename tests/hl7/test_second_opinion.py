r"""python-hl7 as the second opinion: both parsers read each message, and each part of each field is compared.

`DIFFERENCES` lists where the two may differ, and why.  Any other difference fails, and so does an entry that no message
needs.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import hl7
from twisted.trial.unittest import TestCase

from ipf.hl7.escape import NULL
from ipf.hl7.message import Field, Message, Segment
from tests.hl7.generated import generated_messages
from tests.hl7.samples import SAMPLES
from tests.reference import REFERENCE, needs_reference

COUNT = 2000
Check = Callable[["Leaf"], bool]


class Leaf:
    """One smallest part as both read it.  `raw`: as sent; `ours`, `theirs`: the text, escape sequences resolved."""

    def __init__(self, raw: str, ours: str | None, theirs: str, escape: str, codec: str) -> None:
        self.raw = raw
        self.ours = ours
        self.theirs = theirs
        self.escape = escape
        self.codec = codec

    def has(self, code: str) -> bool:
        """Whether an escape sequence of this pattern is in it."""
        mark = re.escape(self.escape)
        return bool(self.escape) and re.search(f"{mark}{code}{mark}", self.raw) is not None

    @property
    def words(self) -> bool:
        """Whether both read the same when white space is left out."""
        return "".join((self.ours or "").split()) == "".join(self.theirs.split())


def _hexadecimal(leaf: Leaf) -> bool:
    found = re.search(r"X((?:[0-9A-Fa-f]{2})+)", leaf.raw)
    assert found is not None
    data = bytes.fromhex(found[1])
    return (leaf.ours or "").replace(data.decode(leaf.codec, "replace"), data.decode("latin-1")) == leaf.theirs


def _single_mark(leaf: Leaf) -> bool:
    """python-hl7 drops what follows the character; ours has it as it was sent."""
    return leaf.ours == leaf.raw and leaf.raw.startswith(leaf.theirs) and leaf.raw.count(leaf.escape) % 2 == 1


DIFFERENCES: dict[str, tuple[str, Check]] = {
    "null": (
        "an empty field keeps and a null one deletes (section 2.5.3), so null is a state of its own here and no text",
        lambda leaf: leaf.raw == leaf.theirs == NULL and leaf.ours is None,
    ),
    "layout": (
        "a formatting command is a line feed or nothing; python-hl7 has carriage returns and blanks (section 2.7.6)",
        lambda leaf: leaf.has(r"\.[a-z]{2}\d*") and leaf.words,
    ),
    "highlighting": (
        "start and end of highlighting are no text (section 2.7.3); python-hl7 has a low line unless one maps them",
        lambda leaf: leaf.has("[HN]") and leaf.ours == leaf.theirs.replace("_", ""),
    ),
    "hexadecimal": (
        "hexadecimal data is bytes in the character set of the message (2.7.5); to python-hl7 each is a character",
        lambda leaf: leaf.has("X[0-9A-Fa-f]+") and _hexadecimal(leaf),
    ),
    "local": (
        "a locally defined sequence is kept, since its meaning is local (section 2.7.7); python-hl7 removes it",
        lambda leaf: leaf.has("Z[^Z]*") and re.sub(r"(.)Z\w*\1", "", leaf.ours or "") == leaf.theirs,
    ),
    "escape character alone": (
        "an escape character that begins no sequence is text: nothing is lost; python-hl7 drops all that follows it",
        _single_mark,
    ),
}
"""Name -> reason, and what must then hold between the two readings."""

STRUCTURE = {
    "empty": "an empty or null repetition, component or subcomponent is no child; python-hl7 lists it",
    "free text": "OBX-5 of a primitive type and NTE-3 are not split: senders often do not escape separators in text",
}


class Comparison:
    """Compares messages.  `needed`: names of the differences that were met, `leaves`: how many parts were compared."""

    def __init__(self) -> None:
        self.needed: set[str] = set()
        self.leaves = 0
        self.wrong: list[str] = []

    def message(self, name: str, raw: bytes) -> None:
        """Compare one message; python-hl7 gets its text, with CR after each segment, which is all that it reads."""
        ours = Message.parse(raw)
        text = raw.decode(ours.encoding.codec, "replace")
        theirs = hl7.parse(re.sub(r"\r\n|\n", "\r", text))
        found = [(segment.name, len(segment.fields)) for segment in ours.all_segments]
        expected = [(str(segment[0]), len(segment)) for segment in theirs]
        self.equal(f"{name} segments", found, expected)
        for segment, other in zip(ours.all_segments, theirs, strict=False):
            for number in range(1, len(segment.fields)):
                where = f"{name}: {segment.name}-{number}"
                self.equal(where, segment.fields[number], str(other[number]))
                self._field(where, segment, number, other[number], theirs)

    def _field(self, where: str, segment: Segment, number: int, other: Any, theirs: Any) -> None:
        real = [one for one in other if self._is_real(str(one))]
        fields = segment.children(f"{segment.name}_{number}")
        self.equal(f"{where} repetitions", len(fields), len(real))
        if str(other) == NULL and not segment.is_null(f"{segment.name}_{number}"):
            self.wrong.append(f"{where}: not null")
        for field, repetition in zip(fields, real, strict=False):
            if segment.name == "MSH" and number <= 2:  # the separators themselves
                self.equal(where, field.text, str(repetition))
            elif segment.is_literal(number):
                self._free_text(where, field, repetition)
            else:
                for component, part in enumerate(_list(repetition), 1):
                    for sub, leaf in enumerate(_list(part), 1):
                        self._leaf(f"{where}.{component}.{sub}", field, (component, sub), str(part), str(leaf), theirs)

    def equal(self, where: str, ours: object, theirs: object) -> None:
        """Note a difference that nothing explains."""
        if ours != theirs:
            self.wrong.append(f"{where}: {ours!r} {theirs!r}")

    def _is_real(self, text: str) -> bool:
        if text in ("", NULL):
            self.needed.add("empty")
            return False
        return True

    def _free_text(self, where: str, field: Field, repetition: Any) -> None:
        leaves = [leaf.raw for part in field.children("1") for leaf in part.children("1")]
        self.equal(where, leaves, [str(repetition)])
        if not isinstance(repetition, str) and len(repetition) > 1:
            self.needed.add("free text")

    def _leaf(self, where: str, field: Field, place: tuple[int, int], part: str, text: str, theirs: Any) -> None:
        self.leaves += 1
        component, sub = place
        found = [leaf for one in field.children(f"C_{component}") for leaf in one.children(f"S_{sub}")]
        raw = found[0].raw if found else ""
        if not found and self._is_real(text) and part != NULL:
            self.wrong.append(f"{where}: missing {text!r}")
        if found:
            self.equal(where, raw, text)
        value = found[0].text if found else None
        leaf = Leaf(text, value, theirs.unescape(text), field.encoding.separators.escape, field.encoding.codec)
        if (leaf.ours or "") != leaf.theirs:
            names = [name for name, (_, holds) in DIFFERENCES.items() if holds(leaf)]
            self.needed.update(names)
            if not names:
                self.wrong.append(f"{where}: {leaf.raw!r} read as {leaf.ours!r} and {leaf.theirs!r}")


def _list(node: Any) -> list[Any]:
    return [node] if isinstance(node, str) else list(node)


def public_messages() -> Iterator[tuple[str, bytes]]:
    """Every message of the reference material, by its place."""
    for path in sorted(REFERENCE.rglob("*.hl7")):
        yield path.name, path.read_bytes()
    cases = json.loads((REFERENCE / "mllp/wire_cases.json").read_text())["cases"]
    for case in cases:
        sent = "".join(step.get("bytes") or step.get("each_byte") or "" for step in case["send"])
        for frame in re.findall("\x0b(MSH[^A-Za-z0-9][^\x0b\x1c]*)\x1c\r", sent):
            yield case["id"], frame.encode()


class SecondOpinionTests(TestCase):
    def setUp(self) -> None:
        logging.disable()  # python-hl7 logs each sequence that it does not know
        self.addCleanup(logging.disable, logging.NOTSET)

    def test_generated_messages(self) -> None:
        """Each difference is one of the table, and each of the table is met."""
        comparison = Comparison()
        for number, text in enumerate(generated_messages(COUNT)):
            comparison.message(f"generated {number}", text.encode())
        for name, text in SAMPLES.items():
            comparison.message(name, text.encode())
        self.assertEqual(comparison.wrong[:20], [])
        self.assertEqual(comparison.needed, DIFFERENCES.keys() | STRUCTURE.keys())
        self.assertGreater(comparison.leaves, 20 * COUNT)

    @needs_reference
    def test_public_messages(self) -> None:
        comparison = Comparison()
        names = []
        for name, raw in public_messages():
            names.append(name)
            comparison.message(name, raw)
        self.assertEqual(comparison.wrong[:20], [])
        self.assertGreater(len(names), 80)

    def test_a_wrong_reading_is_found(self) -> None:
        """The comparison sees a part that one of the two lost, moved or changed."""
        raw = SAMPLES["dense admission"].encode()
        for other in (raw.replace(b"Sample^Ann", b"Sample^Anne"), raw.replace(b"W1^101", b"W1^^101"), raw + b"ZZZ|1\r"):
            comparison = Comparison()
            parse = hl7.parse
            self.patch(hl7, "parse", lambda text, other=other, parse=parse: parse(other.decode()))
            comparison.message("changed", raw)
            self.patch(hl7, "parse", parse)
            self.assertNotEqual(comparison.wrong, [])
