"""Rules that R4 states in prose only: codings, attachments, extensions, narratives.

Sources: https://hl7.org/fhir/R4/datatypes.html#Attachment, #Coding, https://hl7.org/fhir/R4/narrative.html
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree
from xml.parsers.expat import ExpatError

from ipf.errors import Problem
from ipf.fhir.fhirpath.functions.fhir import HTML_ELEMENTS, is_html_attribute
from ipf.fhir.model.xml_pieces import narrative_tree
from ipf.fhir.terminology import Terminology
from ipf.fhir.validation.checks.bindings import QUANTITIES, coding_check, unit_check
from ipf.fhir.validation.findings import Check, Run


def type_rules(kind: str, terminology: Terminology) -> list[Check]:
    """The checks of this type that its StructureDefinition does not state."""
    if kind == "Coding":
        return [coding_check(terminology)]
    if kind == "Quantity" or kind in QUANTITIES:
        return [unit_check]
    return [_RULES[kind]] if kind in _RULES else []


def _attachment(value: Any, extra: Any, location: str, run: Run) -> None:
    """`size` equals the number of bytes of `data`."""
    data, size = value.get("data"), value.get("size")
    if type(data) is str and type(size) is int:
        text = "".join(data.split())
        found = len(text) // 4 * 3 - text[-2:].count("=")
        if found != size:
            run.error("structure", f"size is {size}, but data has {found} bytes", location)


def _extension(value: Any, extra: Any, location: str, run: Run) -> None:
    """ext-1: either extensions or a value."""
    inner = bool(value.get("extension"))
    if inner == any(name.startswith(("value", "_value")) for name in value):
        run.error("invariant", "ext-1: an extension must have either extensions or a value", location)


def text_rules(kind: str) -> list[Check]:
    """The checks of texts and urls that a Policy enables."""
    if kind in ("string", "markdown"):
        return [_no_markup]
    return [_no_example] if kind in ("uri", "url", "canonical") else []


def _no_markup(value: Any, extra: Any, location: str, run: Run) -> None:
    if run.policy.markup and type(value) is str and _TAG.search(value):
        run.error("invalid", "the text looks like HTML", location)


def _no_example(value: Any, extra: Any, location: str, run: Run) -> None:
    if not run.policy.example_urls and type(value) is str and _EXAMPLE.search(value):
        run.error("invalid", f"an example url is not allowed: {value[:100]}", location)


def _narrative(value: Any, extra: Any, location: str, run: Run) -> None:
    """txt-1: only elements and attributes of HTML that R4 allows.  txt-2: not empty.  By policy: no urn: links."""
    if type(value) is not str:
        return
    if "<!DOCTYPE" in value or "<!ENTITY" in value:
        run.error("invariant", "txt-1: the narrative must not have a DOCTYPE", location)
        return
    try:
        root = narrative_tree(value)
    except Problem as refused:
        run.error("too-costly", refused.text, location)
        return
    except (ElementTree.ParseError, ExpatError, ValueError):
        run.error("invalid", "the narrative is not well-formed XHTML", location)
        return
    if root.tag != _XHTML + "div":
        run.error("invariant", "txt-1: the narrative must be a single XHTML div", location)
    content = False
    for element in root.iter():
        content = content or _has_content(element)
        _check_element(element, location, run)
    if not content:
        run.error("invariant", "txt-2: the narrative must not be empty", location)


def _has_content(element: ElementTree.Element) -> bool:
    return bool((element.text or "").strip() or (element.tail or "").strip()) or element.tag == _XHTML + "img"


def _check_element(element: ElementTree.Element, location: str, run: Run) -> None:
    name = str(element.tag).removeprefix(_XHTML)
    if name not in HTML_ELEMENTS:
        run.error("invariant", f"txt-1: the narrative must not have the element '{name[:40]}'", location)
    for attribute in element.attrib:
        if not is_html_attribute(attribute):
            run.error("invariant", f"txt-1: the narrative must not have the attribute '{attribute[:40]}'", location)
    if run.policy.dead_links and element.attrib.get("href", "").startswith("urn:"):
        run.error("invalid", "a link in the narrative is a urn:, which a browser cannot follow", location)


_XHTML = "{http://www.w3.org/1999/xhtml}"
_TAG = re.compile(r"<[A-Za-z/!][^<>]*>")
_EXAMPLE = re.compile(r"^https?://([^/]*\.)?(example\.(org|com|net)|acme\.com)(/|$|:)")
_RULES: dict[str, Check] = {"Attachment": _attachment, "Extension": _extension, "xhtml": _narrative}
