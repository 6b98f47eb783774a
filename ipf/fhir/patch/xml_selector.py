"""Selectors of XML Patch: the text of `sel` in, an XPath expression out.

Only the selectors of RFC 5261 are read, and in predicates also relative paths, since FHIR has its values in attributes:
`f:Patient/f:name[f:use/@value='old']/f:given[2]`.  Each step looks at the children of one element, so that no selector
costs more than the document is large.

Names without a prefix are of the default namespace of the patch, and where it has none, of FHIR.

Source: RFC 5261 sections 4.1 and 4.2.2
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ipf.errors import Category, Problem

FHIR = "http://hl7.org/fhir"
XHTML = "http://www.w3.org/1999/xhtml"
_MOST = 2000  # characters of a selector
_DEFAULT = "default-"  # the prefix that names without one get; no XML name ends in it by custom

_NAME = r"(?:[^\W\d][\w.-]*:)?(?:[^\W\d][\w.-]*|\*)"
_LITERAL = r"(?:'[^']*'|\"[^\"]*\")"
_PATH = rf"(?:{_NAME}(?:/{_NAME})*(?:/@{_NAME})?|@{_NAME}|\.|text\(\))"
_PREDICATE = rf"\[\s*(?:\d{{1,6}}|last\(\)|{_PATH}\s*=\s*{_LITERAL})\s*\]"
_NODE = rf"(?:text\(\)|comment\(\)|processing-instruction\(\s*{_LITERAL}?\s*\))"
_SELECTOR = re.compile(
    rf"/?{_NAME}(?:{_PREDICATE})*(?:/{_NAME}(?:{_PREDICATE})*)*(?:/@{_NAME}|/{_NODE}(?:\[\d{{1,6}}\])?)?"
)
_TOKEN = re.compile(
    rf"(?P<text>{_LITERAL})|(?P<kept>@{_NAME}|(?:text|comment|last|processing-instruction)\()|(?P<name>{_NAME})"
)


@dataclass(frozen=True, slots=True)
class Selector:
    """`expression`: absolute XPath; `namespaces`: of its prefixes."""

    expression: str
    namespaces: Mapping[str, str]


def selector(text: str, declared: Mapping[str | None, str], place: str) -> Selector:
    """The selector of `sel`; `declared`: namespaces of the patch at this place.  Problem MALFORMED."""
    if len(text) > _MOST or not _SELECTOR.fullmatch(text.strip()):
        raise Problem(Category.MALFORMED, "sel is no selector of RFC 5261, such as f:Patient/f:name[1]/f:family", place)
    namespaces = {"f": FHIR, "fhir": FHIR, "h": XHTML, "xhtml": XHTML}
    namespaces |= {prefix: uri for prefix, uri in declared.items() if prefix is not None}
    namespaces[_DEFAULT] = declared.get(None) or FHIR

    def named(found: re.Match[str]) -> str:
        name = found["name"]
        return found[0] if name is None or ":" in name or name == "*" else f"{_DEFAULT}:{name}"

    expression = _TOKEN.sub(named, text.strip())
    return Selector(f"/{expression.removeprefix('/')}", namespaces)
