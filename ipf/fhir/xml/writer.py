"""The XML writer: parsed JSON in, XML text out, from the definition tables.

Each JSON member is a child element in the order of its definition.  A primitive is an attribute `value`, `id` of an
element and `url` of an extension are attributes, and `resourceType` is the name of the element.  Writing and reading
again gives the same JSON: decimals keep their digits, the narrative its text.

The reader refuses a DOCTYPE (so there are no entities to expand), encodings other than UTF-8, elements that R4 does not
define, and nesting beyond 100 levels, with Problem MALFORMED.

Sources: https://hl7.org/fhir/R4/xml.html, https://hl7.org/fhir/R4/narrative.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.entities import html5
from typing import Any
from xml.parsers import expat

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.xml_pieces import feed_narrative
from ipf.fhir.xml.members import Member, is_attribute, members_of
from ipf.fhir.xml.reader import from_xml
from ipf.ports import Json

__all__ = ["from_xml", "to_xml"]

_FHIR = "http://hl7.org/fhir"
_XHTML = "http://www.w3.org/1999/xhtml"
_XML_ENTITIES = frozenset({"amp", "lt", "gt", "quot", "apos"})
_NAMED = re.compile(r"&([A-Za-z][A-Za-z0-9]*);")
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SPECIAL = re.compile('[&<>"\t\n\r]')
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}


def to_xml(resource: Json) -> bytes:
    """A resource (parsed JSON that has the structure of its type) as XML in UTF-8.

    Problem NOT_ACCEPTABLE when it contains elements that R4 does not define, which have no XML form.
    """
    parts: list[str] = ['<?xml version="1.0" encoding="UTF-8"?>\n']
    _write_resource(resource, parts.append, f' xmlns="{_FHIR}"')
    return "".join(parts).encode()


def _write_resource(resource: Json, add: Callable[[str], None], namespace: str = "") -> None:
    name = resource.get("resourceType")
    known = definitions()
    if not isinstance(name, str) or not (name in known.resource_types or name in known.sent_types):
        raise _unsayable("a resource whose type is not of R4")
    add(f"<{name}{namespace}>")
    _write_members({key: value for key, value in resource.items() if key != "resourceType"}, name, add)
    add(f"</{name}>")


def _write_members(value: Json, path: str, add: Callable[[str], None]) -> None:
    left = len(value)
    for member in members_of(path):
        name = member.json_name
        shadow = value.get("_" + name)
        if name not in value and shadow is None:
            continue
        left -= (name in value) + (("_" + name) in value)
        for item, extra in _pairs(value.get(name), shadow):
            _write(name, member, item, extra, add)
    left -= sum(is_attribute(path, name) for name in ("id", "url") if name in value)
    if left:
        raise _unsayable(f"an element of {path} that R4 does not define")


def _pairs(value: Any, shadow: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(value, list) and not isinstance(shadow, list):
        yield value, shadow
        return
    values, shadows = value or [], shadow or []
    for place in range(max(len(values), len(shadows))):
        yield (values[place] if place < len(values) else None, shadows[place] if place < len(shadows) else None)


def _write(name: str, member: Member, item: Any, extra: Any, add: Callable[[str], None]) -> None:
    if member.kind == "primitive":
        _write_primitive(name, item, extra, add)
    elif member.kind == "complex":
        if item is None:
            return
        add(f"<{name}{_attributes(item, member.type)}>")
        _write_members(item, member.type, add)
        add(f"</{name}>")
    elif member.kind == "resource":
        add(f"<{name}>")
        _write_resource(item, add)
        add(f"</{name}>")
    elif item is not None:
        add(_narrative(item))


def _write_primitive(name: str, value: Any, extra: Any, add: Callable[[str], None]) -> None:
    if value is None and not extra:
        return
    extra = extra or {}
    said = "" if value is None else f' value="{_text(value)}"'
    add(f"<{name}{_attributes(extra, 'Element')}{said}")
    if "extension" in extra:
        add(">")
        _write_members(extra, "Element", add)
        add(f"</{name}>")
    else:
        add("/>")


def _attributes(value: Json, path: str) -> str:
    text = f' id="{_text(value["id"])}"' if "id" in value else ""
    return f'{text} url="{_text(value["url"])}"' if path == "Extension" and "url" in value else text


def _text(value: Any) -> str:
    if value is True or value is False:
        return "true" if value else "false"
    text = value if isinstance(value, str) else str(getattr(value, "literal", value))
    if _UNWRITABLE.search(text):
        text = _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], text)


def _narrative(text: str) -> str:
    """The `div` unchanged; HTML entities become characters, and text that is not XML is escaped."""
    text = _NAMED.sub(_as_character, _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text))
    if _is_div(text):
        return text
    return f'<div xmlns="{_XHTML}">{_text(text)}</div>'


def _as_character(found: re.Match[str]) -> str:
    if found[1] in _XML_ENTITIES:
        return found[0]
    return html5.get(found[1] + ";", f"&amp;{found[1]};")


def _is_div(text: str) -> bool:
    seen: list[str] = []
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = lambda name, _: seen.append(name) if not seen else None
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        feed_narrative(parser, text)
    except (expat.ExpatError, Problem):
        return False
    return text.startswith("<div") and seen == [f"{_XHTML} div"]


def _unsayable(text: str) -> Problem:
    return Problem(Category.NOT_ACCEPTABLE, f"the response has no XML form: it contains {text}")


def _refuse_doctype(*_: Any) -> None:
    raise Problem(Category.MALFORMED, "a DOCTYPE is not accepted")
