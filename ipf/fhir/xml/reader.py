"""The XML reader: events of the XML parser in, parsed JSON out.

Each open element has a frame with its type from the definition tables.  The narrative is copied from the input text
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import MOST_VALUES, loads
from ipf.fhir.model.xml_pieces import feed, too_large
from ipf.fhir.model.xml_values import with_long_values, without_long_values
from ipf.fhir.xml.members import member_table
from ipf.ports import Json

_FHIR = "http://hl7.org/fhir "
_XHTML = "http://www.w3.org/1999/xhtml "
_DEEPEST = 100
MOST_ELEMENTS = MOST_VALUES
"""Elements, comments and processing instructions of one text."""
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INTEGERS = frozenset({"integer", "positiveInt", "unsignedInt"})


@dataclass(slots=True)
class _Frame:
    """One open element.  `kind`: primitive, complex, resource (a wrapper), body (a resource itself) or xhtml."""

    name: str
    kind: str
    type: str
    many: bool
    place: str
    value: Json = field(default_factory=dict)
    said: Any = None
    counts: dict[str, int] = field(default_factory=dict)


def from_xml(text: bytes) -> Json:
    """The resource of an XML text as parsed JSON.  Problem MALFORMED names the element; TOO_LARGE."""
    shortened, values = without_long_values(text)
    reader = _ResourceParser(shortened, values)
    parser = reader.parser
    try:
        feed(parser, shortened, lambda: reader.events)
    except expat.ExpatError as wrong:
        said = expat.errors.messages.get(wrong.code, "not XML")
        raise _malformed(f"not XML: {said} at line {wrong.lineno} column {wrong.offset + 1}") from None
    if reader.result is None:
        raise _malformed("the XML contains no resource")
    return reader.result


class _ResourceParser:
    """Collects a resource from the parser's events."""

    def __init__(self, text: bytes, values: Mapping[str, str]) -> None:
        """`values`: long values that are marks in the text."""
        self.result: Json | None = None
        self.events = 0  # elements, texts, comments and instructions so far
        self._elements = 0
        self._text = text
        self._values = values
        self._frames: list[_Frame] = []
        self._narrative = 0  # open elements inside a div
        self._begin = 0
        self._rewritten: list[str] = []
        self._plain = True
        self.parser = parser = expat.ParserCreate("UTF-8", " ")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._doctype
        parser.XmlDeclHandler = self._declaration
        parser.CommentHandler = parser.ProcessingInstructionHandler = self._ignored

    def _doctype(self, *_: Any) -> None:
        raise _malformed("a DOCTYPE is not accepted")

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.upper() not in ("UTF-8", "US-ASCII"):
            raise _malformed("the encoding must be UTF-8")

    def _ignored(self, *_: Any) -> None:
        self._count()

    def _count(self) -> None:
        self.events += 1
        self._elements += 1
        if self._elements > MOST_ELEMENTS:
            raise too_large(f"the XML has more than {MOST_ELEMENTS} elements and comments")

    # -- elements

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count()
        if self._narrative:
            self._inside(name, attributes)
            return
        if len(self._frames) > 2 * _DEEPEST:
            raise _malformed("nested too deeply", self._frames[-1].place[:200])
        if name.startswith(_XHTML):
            self._open_narrative(name, attributes)
            return
        if not name.startswith(_FHIR):
            raise _malformed(f"the element {name.rpartition(' ')[2][:60]} is not in the namespace of FHIR", self._place)
        frame = self._frame(name.removeprefix(_FHIR))
        self._frames.append(frame)
        self._attributes(frame, attributes)

    @property
    def _place(self) -> str | None:
        return self._frames[-1].place if self._frames else None

    def _frame(self, name: str) -> _Frame:
        """The frame of a new element."""
        parent = self._frames[-1] if self._frames else None
        if parent is None or parent.kind == "resource":
            return self._body(name, parent)
        path = "Element" if parent.kind == "primitive" else parent.type
        known = member_table(path).get(name)
        if known is None or known[0].kind == "xhtml":
            raise _malformed(f"{path} has no element {name[:60]}", f"{parent.place}.{name[:60]}")
        member, many = known
        number = parent.counts.get(name, 0)
        parent.counts[name] = number + 1
        if number and not many:
            raise _malformed("one element is expected, not several", f"{parent.place}.{name}")
        place = f"{parent.place}.{name}[{number}]" if many else f"{parent.place}.{name}"
        return _Frame(name, member.kind, member.type, many, place)

    def _body(self, name: str, parent: _Frame | None) -> _Frame:
        place = name if parent is None else parent.place
        if name not in definitions().resource_types:
            raise _malformed(f"{name[:60]} is not a resource type of R4", place[:200])
        if parent is not None and parent.value:
            raise _malformed("one resource is expected, not several", place)
        return _Frame(name, "body", name, False, place, {"resourceType": name})

    def _attributes(self, frame: _Frame, attributes: dict[str, str]) -> None:
        for name, value in attributes.items():
            value = with_long_values(value, self._values)
            if name == "value" and frame.kind == "primitive":
                frame.said = _primitive(frame.type, value, frame.place)
            elif name == "id" and frame.kind in ("primitive", "complex"):
                frame.value["id"] = value
            elif name == "url" and frame.type == "Extension":
                frame.value["url"] = value
            elif " " not in name:  # attributes of other namespaces (xsi:schemaLocation) are ignored
                raise _malformed(f"an attribute {name[:60]} is not expected", frame.place)

    def _end(self, name: str) -> None:
        self.events += 1
        if self._narrative:
            self._narrative -= 1
            if not self._plain:
                self._rewritten.append(f"</{name.removeprefix(_XHTML)}>")
            if not self._narrative:
                self._close_narrative()
            return
        frame = self._frames.pop()
        if not self._frames:
            self.result = frame.value
            return
        parent = self._frames[-1]
        if frame.kind == "body":
            parent.value = frame.value
        elif frame.kind == "primitive":
            self._settle_primitive(parent, frame)
        elif not frame.value:
            raise _malformed("an element must have a value or children", frame.place)
        elif frame.many:
            parent.value.setdefault(frame.name, []).append(frame.value)
        else:
            parent.value[frame.name] = frame.value

    def _settle_primitive(self, parent: _Frame, frame: _Frame) -> None:
        """Store a primitive and its sibling property `_name`; in a list, both lists have the same length."""
        if frame.said is None and not frame.value:
            raise _malformed("an element must have a value or children", frame.place)
        shadow = "_" + frame.name
        if not frame.many:
            if frame.said is not None:
                parent.value[frame.name] = frame.said
            if frame.value:
                parent.value[shadow] = frame.value
            return
        before = parent.counts[frame.name] - 1
        for name, item in ((frame.name, frame.said), (shadow, frame.value or None)):
            if item is not None and name not in parent.value:
                parent.value[name] = [None] * before
            if name in parent.value:
                parent.value[name].append(item)

    def _characters(self, text: str) -> None:
        self.events += 1
        if self._narrative:
            if not self._plain:
                self._rewritten.append(escape(text))
        elif text.strip():
            raise _malformed("text outside of an attribute is not expected", self._place)

    # -- the narrative

    def _open_narrative(self, name: str, attributes: dict[str, str]) -> None:
        parent = self._frames[-1] if self._frames else None
        if parent is None or parent.type != "Narrative" or name != f"{_XHTML}div" or "div" in parent.value:
            raise _malformed("XHTML is allowed only as the div of a narrative", self._place)
        self._narrative = 1
        self._begin = self.parser.CurrentByteIndex
        start = self._text[self._begin : self._text.find(b">", self._begin) + 1]
        self._plain = start.startswith(b"<div") and b"xmlns=" in start
        if not self._plain:
            self._rewritten = [f'<div xmlns="{_XHTML.strip()}"{_written(attributes)}>']

    def _inside(self, name: str, attributes: dict[str, str]) -> None:
        self._narrative += 1
        if self._narrative > 2 * _DEEPEST:
            raise _malformed("nested too deeply", self._place)
        if not name.startswith(_XHTML):
            raise _malformed("a narrative may contain only XHTML", self._place)
        if not self._plain:
            self._rewritten.append(f"<{name.removeprefix(_XHTML)}{_written(attributes)}>")

    def _close_narrative(self) -> None:
        parent = self._frames[-1]
        if self._plain:
            here = self.parser.CurrentByteIndex
            is_closed = self._text[here : here + 5] == b"</div"  # else it is <div .../>
            end = self._text.index(b">", here) + 1 if is_closed else self._text.index(b"/>", self._begin) + 2
            div = self._text[self._begin : end].decode()
        else:
            div = "".join(self._rewritten)
        parent.value["div"] = with_long_values(div, self._values)


def _written(attributes: dict[str, str]) -> str:
    return "".join(f" {name.rpartition(' ')[2]}={quoteattr(value)}" for name, value in attributes.items())


def _primitive(kind: str, text: str, place: str) -> Any:
    if kind == "boolean":
        if text not in ("true", "false"):
            raise _malformed("true or false is expected", place)
        return text == "true"
    if kind in _INTEGERS:
        if not _INTEGER.fullmatch(text):
            raise _malformed("an integer is expected", place)
        return int(text)
    if kind == "decimal":
        if not _DECIMAL.fullmatch(text):
            raise _malformed("a number is expected", place)
        try:
            return loads(f"[{text}]")[0]
        except Problem as problem:
            raise _malformed(problem.text, place) from None
    if text == "":
        raise _malformed("a value must not be empty", place)
    return text


def _malformed(text: str, place: str | None = None) -> Problem:
    return Problem(Category.MALFORMED, text, place)
