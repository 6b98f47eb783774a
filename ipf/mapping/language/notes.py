"""Notes in a map: comments that say what was decided about a field.

    // decided PID-12: how the field is mapped
    // not mapped PV1-40: why no rule reads the field
    // not mapped ZXX, OBR-18 (note): why; goes on in
    // the next lines of comment
    // initial PV1_Status.byClass: why this rule of the group does not replace what other fields have said
    // deleted PV1-36 (A13), PV1-45 (A13 A25): why these events delete what the fields have said

Several keys are separated by commas.  A key is a field (`PID-12`), a segment (`ZXX`), a part of a data type (`CWE.2`),
a place in a message (`SIU_S12.RESOURCES.RGS`) or a table (`PV1[Coverage]`) of HL7's v2-to-FHIR guide.  A path in
parentheses limits the note to one target of the field.

`not mapped` with a field, a segment, a component (`PID-3.6`), the repetitions of a field (`PID-12[2]`) or a component
of a data type (`CX.6`, in every field of this type), and without a path, declares that the maps ignore it on purpose;
`decided` with an element of a resource (`Encounter.status`), that one value replaces another there on purpose.
`unread` lists both apart.  `initial` and `deleted` are about updates of stored resources (`rest.identity.omitted`); the
path of `deleted` names the events, separated by blanks; `*` is any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ipf.hl7.reads import REPETITIONS
from ipf.mapping.language.lexer import FmlError
from ipf.mapping.language.model import Deleted, Ignored, Place

_KEY = r"[A-Z][\w:]*(?:[-.][\w.]+)?(?:\[[^\]]+\])?"
_KEY_AND_PATH = rf"{_KEY}(?: \([^)]*\))?"
_NOTE = re.compile(rf"(decided|not mapped|initial|deleted) ({_KEY_AND_PATH}(?:, {_KEY_AND_PATH})*): (.*)")
_ONE_KEY = re.compile(rf"({_KEY})(?: \(([^)]*)\))?")
_BEGINNING = re.compile(r"(?:not mapped|initial|deleted) [A-Z][A-Z0-9]{2}\b")
_ELEMENT = re.compile(r"[A-Z][a-z]\w*(?:\.[a-z]\w*)+")
_FIELD = re.compile(r"([A-Z][A-Z0-9]{2})(?:-(\d{1,3})(?:\.(\d{1,3})|(\[2\]))?)?")
_COMPONENT = re.compile(r"([A-Z][A-Z0-9]{1,2})\.(\d{1,3})")


@dataclass(frozen=True, slots=True)
class Note:
    """One decision.  `path` is empty when it is about all of the key; `verb`: its first words."""

    key: str
    path: str
    verb: str
    text: str
    place: Place

    @property
    def is_mapped(self) -> bool:
        """Whether it says how something is mapped."""
        return self.verb == "decided"


def notes(text: str, file: str = "") -> Iterator[Note]:
    """The notes of a map.  FmlError: a comment begins as a declaration and is none."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        comment = _comment(line)
        match = _NOTE.fullmatch(comment)
        place = Place(number + 1, line.find("//") + 1)
        if match is None:
            if _BEGINNING.match(comment):
                raise FmlError("a declaration is written '// not mapped PV1-40: why'", file, place)
            continue
        words = [match[3], *_further(lines, number + 1)]
        for key in _ONE_KEY.finditer(match[2]):
            yield Note(key[1], key[2] or "", match[1], " ".join(words), place)


def ignored(text: str, file: str = "") -> tuple[Ignored, ...]:
    """The fields, segments and elements of which a map declares that something is ignored on purpose."""
    found: list[Ignored] = []
    for note in notes(text, file) if "not mapped " in text or "decided " in text else ():
        is_whole = note.verb == "not mapped" and not note.path
        field = _FIELD.fullmatch(note.key) if is_whole else None
        component = _COMPONENT.fullmatch(note.key) if is_whole else None
        if field is not None:
            part = REPETITIONS if field[4] else int(field[3] or 0)
            found.append(Ignored(field[1], int(field[2] or 0), note.text, file, note.place, part))
        elif component is not None:
            found.append(Ignored(component[1], 0, note.text, file, note.place, int(component[2])))
        elif note.is_mapped and _ELEMENT.fullmatch(note.key):
            found.append(Ignored(note.key, 0, note.text, file, note.place))
    return tuple(found)


def initial(text: str, file: str = "") -> frozenset[str]:
    """The rules (`Group.rule`) whose values do not replace what other fields have said."""
    if "// initial " not in text:
        return frozenset()
    return frozenset(note.key for note in notes(text, file) if note.verb == "initial")


def deleted(text: str, file: str = "") -> tuple[Deleted, ...]:
    """The fields that events delete.  FmlError: no event is named."""
    found: list[Deleted] = []
    for note in notes(text, file) if "// deleted " in text else ():
        if note.verb == "deleted":
            field = _FIELD.fullmatch(note.key)
            if not note.path or field is None or not field[2] or field[3] or field[4]:
                raise FmlError("a deletion is written '// deleted PV1-45 (A13): why'", file, note.place)
            found += [Deleted(event, note.key) for event in note.path.split()]
    return tuple(found)


def _comment(line: str) -> str:
    stripped = line.strip()
    return stripped[2:].strip() if stripped.startswith("//") else ""


def _further(lines: list[str], start: int) -> Iterator[str]:
    """A note goes on in lines of comment that begin with a small letter."""
    for number in range(start, len(lines)):
        text = _comment(lines[number])
        if not text or _NOTE.fullmatch(text) or text[0].isupper():
            return
        yield text
