"""What R4 says of a type in words only, checked in Python: codings, attachments, narratives.

Sources: https://hl7.org/fhir/R4/datatypes.html#Attachment, #Coding, https://hl7.org/fhir/R4/narrative.html
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from ipf.fhir.fhirpath.fhir_functions import HTML_ELEMENTS, is_html_attribute
from ipf.fhir.terminology import Terminology
from ipf.fhir.validation.bindings import coding_check
from ipf.fhir.validation.findings import Check, Run


def type_rules(kind: str, terminology: Terminology) -> list[Check]:
    """The checks of values of this type beyond what its definition says."""
    if kind == "Coding":
        return [coding_check(terminology)]
    return [_RULES[kind]] if kind in _RULES else []


def _attachment(value: Any, extra: Any, place: str, run: Run) -> None:
    """`size` is the number of bytes of `data`."""
    data, size = value.get("data"), value.get("size")
    if type(data) is str and type(size) is int:
        text = "".join(data.split())
        found = len(text) // 4 * 3 - text[-2:].count("=")
        if found != size:
            run.error("structure", f"size says {size} bytes, data has {found}", place)


def _extension(value: Any, extra: Any, place: str, run: Run) -> None:
    """ext-1: extensions or a value, not both and not neither."""
    inner = bool(value.get("extension"))
    if inner == any(name.startswith(("value", "_value")) for name in value):
        run.error("invariant", "ext-1: an extension has extensions or a value, not both", place)


def text_rules(kind: str) -> list[Check]:
    """Rules for texts and urls that the policy may switch on."""
    if kind in ("string", "markdown"):
        return [_no_markup]
    return [_no_example] if kind in ("uri", "url", "canonical") else []


def _no_markup(value: Any, extra: Any, place: str, run: Run) -> None:
    if run.policy.markup and type(value) is str and _TAG.search(value):
        run.error("invalid", "the text looks like HTML", place)


def _no_example(value: Any, extra: Any, place: str, run: Run) -> None:
    if not run.policy.example_urls and type(value) is str and _EXAMPLE.search(value):
        run.error("invalid", f"an example url is not allowed here: {value[:100]}", place)


def _narrative(value: Any, extra: Any, place: str, run: Run) -> None:
    """txt-1: only the elements and attributes of HTML that R4 allows; txt-2: some content; links one can follow."""
    if type(value) is not str:
        return
    if "<!DOCTYPE" in value or "<!ENTITY" in value:
        run.error("invariant", "txt-1: the narrative must not have a DOCTYPE", place)
        return
    try:
        root = ElementTree.fromstring(value)
    except (ElementTree.ParseError, ValueError):
        run.error("invalid", "the narrative is no well-formed XHTML", place)
        return
    if root.tag != _XHTML + "div":
        run.error("invariant", "txt-1: the narrative must be one div of XHTML", place)
    content = False
    for element in root.iter():
        content = content or _has_content(element)
        _check_element(element, place, run)
    if not content:
        run.error("invariant", "txt-2: the narrative must have some content", place)


def _has_content(element: ElementTree.Element) -> bool:
    return bool((element.text or "").strip() or (element.tail or "").strip()) or element.tag == _XHTML + "img"


def _check_element(element: ElementTree.Element, place: str, run: Run) -> None:
    name = str(element.tag).removeprefix(_XHTML)
    if name not in HTML_ELEMENTS:
        run.error("invariant", f"txt-1: the narrative must not have the element '{name[:40]}'", place)
    for attribute in element.attrib:
        if not is_html_attribute(attribute):
            run.error("invariant", f"txt-1: the narrative must not have the attribute '{attribute[:40]}'", place)
    if run.policy.dead_links and element.attrib.get("href", "").startswith("urn:"):
        run.error("invalid", "a link of the narrative leads nowhere: urn:", place)


_XHTML = "{http://www.w3.org/1999/xhtml}"
_TAG = re.compile(r"<[A-Za-z/!][^<>]*>")
_EXAMPLE = re.compile(r"^https?://([^/]*\.)?(example\.(org|com|net)|acme\.com)(/|$|:)")
_RULES: dict[str, Check] = {"Attachment": _attachment, "Extension": _extension, "xhtml": _narrative}
