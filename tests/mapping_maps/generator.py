"""Random HL7 v2 messages of every type that has a map: right, sparse and odd ones.

The structure of the message (`ipf.hl7.structure`) and the data types of its fields (`ipf.mapping.compiler.v2`) say what
may stand where.  A field is empty, or a value of that field in the corpus, or made from its data type; a made value may
be odd: HL7's null, text in a coded field, a date that does not exist, components without the first one, repetitions
where the standard has none.  The same number gives the same message.

`python -m tests.mapping_maps.generator ADT_A01 7` prints one.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from random import Random

from ipf.config.paths import folder
from ipf.hl7.structure import Definition, Slot, structure, structure_name
from ipf.mapping.compiler.v2 import types_of
from tests.corpus import samples

MOST_SEGMENTS = 40
MOST_FIELDS = 55
VERSIONS = ("2.1", "2.3", "2.3.1", "2.4", "2.5", "2.5.1", "2.5.1", "2.6", "2.7", "2.8", "2.8.2")
DATES = ("20260102", "20260102030405", "202601020304+0100", "19800229", "2026", "202603", "20251231235959.1234-0500")
ODD_DATES = (
    "20261340", "20260230", "0000", "2026-01-02", "today", "20260102T03", "99999999", "1", "20260102030461",
    "20260102030405+1500", "202601022400", "20260102030405Z", " 20260102 ",
)  # fmt: skip
TIMES = ("DT", "DTM", "TS", "TM")
NUMBERS = ("1", "7", "0", "3.5", "120", "-4", "1000000")
ODD_NUMBERS = (
    "1e400",
    "<5",
    "abc",
    "1,5",
    "9" * 30,
    "-0",
    "+3.",
    "1/2",
    "NaN",
    "5 mg",
    " 7.2 ",
    ".5",
    "1_0",
    ".5e3",
    "≥5",
)
WORDS = (
    "Hansen",
    "Ward 3",
    "A",
    "note",
    "Kari Anne",
    "x y",
    "Å",
    "12345",
    "2.16.840.1.113883.4.1",
    "W1",
    "http://a.test/b",
)
ODD_WORDS = (
    " ", "<b>bold</b>", "a" * 300, "\\.br\\line", "\\X0D\\", "\\F\\", "-", ".", "?", "a  b", " lead", "tail ", "\t",
    "a b:c", "urn:oid:1.2", "urn:uuid:x", "http://a b", "1.2.3", "%", "#", "é'\"", "\x00", "\x07",
)  # fmt: skip
ODD = ('""', "&", "^^^", "&&x", "^x", "~", "x~", "~x", "^~^", '""^""', "\\", "\\Z", "^^^^^^^^x")
_ENCAPSULATED = {3: ("Base64", "base64", "BASE-64"), 4: ("JVBERi0xLjQK", "SGVsbG8=")}
"""Of ED: what says how the data are written, and data that are."""
KINDS_OF_ID = ("ISO", "UUID", "DNS", "URI", "L", "GUID", "HL7", "x y")
UNIVERSAL = ("1.2.840.113619", "2.16", "0f0e7b2c-1b1a-4d2e-9f5e-0123456789ab", "not an id", "a.test", "http://a.test/")
LANGUAGES = ("en", "EN", "eng", "English", "no-NO", "zxx-1", "ENGL^English", "de_DE")


class Generator:
    """Messages of one type from one random sequence.  `time`: what stands in every field of a time, if given."""

    def __init__(self, message_type: str, number: int, time: str = "") -> None:
        self.time = time
        self.random = Random(f"{message_type}/{number}")
        self.message_type = message_type
        self.density = self.random.choice((0.03, 0.15, 0.35, 0.7))
        self.oddity = self.random.choice((0.0, 0.02, 0.1, 0.5))
        self.version = self.random.choice(VERSIONS)
        self.left = MOST_SEGMENTS

    def message(self) -> str:
        """One message, one segment a line."""
        code, _, event = self.message_type.partition("_")
        found = structure(structure_name(code, event), self.version)
        if found is None:
            raise ValueError(f"{self.message_type} has no structure")
        lines = [self._header(code, event, found.name)]
        self._sequence(found.root, lines)
        return "\n".join(lines) + "\n"

    def _header(self, code: str, event: str, name: str) -> str:
        """MSH: the sender may be absent, the rest of it is random."""
        fields = self._fields("MSH", 25)[2:]
        sender = self.random.choice((("APP", "FAC"), ("APP^1.2.3^ISO", "FAC"), ("APP", ""), ("", "FAC"), ("", "")))
        trigger = self.random.choice((f"{code}^{event}", f"{code}^{event}^{name}"))
        fields[0:2] = sender
        fields[6:10] = [trigger, self.random.choice(("C1", "C1", "")), "P", self.version]
        fields[15] = ""  # the character set: the message is UTF-8
        return ("MSH|^~\\&|" + "|".join(fields)).rstrip("|")

    def _sequence(self, definition: Definition, lines: list[str]) -> None:
        for slot in definition.slots:
            for _ in range(self._times(slot)):
                if self.left <= 0:
                    return
                item = self.random.choice(slot.alternatives)
                if item.group is not None:
                    self._sequence(item.group, lines)
                elif item.name not in ("MSH", "Hxx"):
                    self.left -= 1
                    lines.append("|".join([item.name, *self._fields(item.name, MOST_FIELDS)]).rstrip("|"))

    def _times(self, slot: Slot) -> int:
        """How often a slot occurs; required ones may be missing too.

        A second patient is not generated where there is one: such a message is refused (ipf/hl7/patients.py).
        """
        often = 0.93 if slot.required else 0.25 + self.density / 2
        if self.random.random() >= often:
            return 0
        is_odd = not slot.repeats and self.random.random() < 0.02
        begins = {name for one in slot.alternatives for name in (one.group.first if one.group else (one.name,))}
        if is_odd and "PID" in begins:
            return 1
        return self.random.choice((1, 1, 2, 3)) if slot.repeats or is_odd else 1

    def _fields(self, segment: str, most: int) -> list[str]:
        return [self._field(f"{segment}_{number}") for number in range(1, most + 1)]

    def _field(self, name: str) -> str:
        types = types_of(name)
        if self.time and not set(types).isdisjoint(TIMES):
            return self.time
        if not types or self.random.random() >= self.density:
            return ""
        known = values_in_corpus().get(name, ())
        if known and self.random.random() < 0.5:
            return self.random.choice(known)
        if self.random.random() < self.oddity / 2:
            return self.random.choice(ODD)
        times = self.random.choice((2, 3)) if self.random.random() < 0.1 else 1
        return "~".join(self._value(self.random.choice(types), "^") for _ in range(times))

    def _value(self, kind: str, separator: str) -> str:
        """A value of a data type; `separator` "" below subcomponents, where only the first part is sent."""
        parts = [types_of(f"{kind}_{number}") for number in range(1, 24)]
        if not any(parts):
            return self._primitive(kind)
        if not separator:
            return self._value(parts[0][0], "") if parts[0] else "x"
        filled = []
        for place, types in enumerate(parts):
            wanted = bool(types) and self.random.random() < (0.85 if place == 0 else self.density)
            part = self._value(self.random.choice(types), "&" if separator == "^" else "") if wanted else ""
            if wanted and kind == "ED" and place in _ENCAPSULATED:  # any other fails the message
                part = self.random.choice(_ENCAPSULATED[place])
            filled.append(self._of_authority(kind, place) if wanted and kind == "HD" else part)
        return separator.join(filled).rstrip(separator)

    def _of_authority(self, kind: str, place: int) -> str:
        return self.random.choice((WORDS, UNIVERSAL, KINDS_OF_ID)[place % 3])

    def _primitive(self, kind: str) -> str:
        if self.time and kind in TIMES:
            return self.time
        odd = self.random.random() < self.oddity
        if odd and self.random.random() < 0.2:
            return '""'
        if kind in TIMES:
            return self.random.choice(ODD_DATES if odd else DATES)
        if kind in ("NM", "SI", "SN"):
            return self.random.choice(ODD_NUMBERS if odd else NUMBERS)
        if kind in ("ID", "IS") and not odd:
            return self.random.choice(codes())
        if odd:
            return self.random.choice(ODD_WORDS + LANGUAGES)
        return self.random.choice(WORDS) if self.random.random() < 0.7 else self.random.choice(codes())


def message(message_type: str, number: int) -> str:
    """Message `number` of a type."""
    return Generator(message_type, number).message()


def with_time(message_type: str, number: int, time: str) -> str:
    """Message `number` of a type, with this text in every field and component of a time."""
    return Generator(message_type, number, time).message()


def messages(message_types: Iterable[str], numbers: Iterable[int]) -> dict[str, str]:
    """The messages of these numbers, of each type, by type and number."""
    return {f"{one} {number}": message(one, number) for one in message_types for number in numbers}


@lru_cache(maxsize=1)
def codes() -> tuple[str, ...]:
    """Codes of the tables that maps translate from, and some that none has."""
    found = {"Y", "N", "ZZZ", "U", "1", "F"}
    for path in (folder("maps") / "codesystems").glob("*.json"):
        for group in json.loads(path.read_text(encoding="utf-8")).get("group", ()):
            found |= {one["code"] for one in group.get("element", ()) if not set(one["code"]) & set("|^~\\&\r\n")}
    return tuple(sorted(found))


@lru_cache(maxsize=1)
def values_in_corpus() -> dict[str, tuple[str, ...]]:
    """The values of each field (`PID_3`) in the corpus, all repetitions as sent."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in samples.names():
        lines = (samples.HERE / f"{name}.hl7").read_text(encoding="utf-8").splitlines()
        if not lines[0].startswith("MSH|^~\\&|"):
            continue
        for line in lines[1:]:
            segment, *fields = line.split("|")
            for number, value in enumerate(fields, 1):
                if value:
                    found[f"{segment}_{number}"].add(value)
    return {name: tuple(sorted(values)) for name, values in found.items()}


if __name__ == "__main__":
    print(message(sys.argv[1], int(sys.argv[2])), end="")
