"""Resources as a role without patient data sees them: elements that may be shown stay, all others become MASK.

Shown are codes, references, quantities, flags and dates; of a birth and a death the year.  Texts, names, identifiers,
addresses, phone numbers, pictures and extensions are masked in every resource: an element that is not named here is
masked.  No IO.

Source: https://hl7.org/fhir/R4/resourcelist.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ipf.console.masking.hl7 import MASK

_TEXTS = frozenset((
    "resourceType", "id", "reference", "type", "versionId", "profile", "system", "code", "unit", "comparator", "status",
    "intent", "priority", "mode", "use", "gender", "method", "url", "fullUrl", "relation", "etag", "contentType",
    "language", "criteria", "endpoint", "payload", "severity", "clinicalStatus", "verificationStatus", "criticality",
    "recurrenceNumber", "kind", "required", "direction", "division", "schema_version", "version", "definition",
))  # fmt: skip
"""Elements whose texts are shown."""
_HIDDEN = frozenset((
    "name", "identifier", "telecom", "address", "contact", "photo", "text", "extension", "modifierExtension", "div",
    "position", "multipleBirthInteger", "note", "data", "attachment", "content", "contained_text",
))  # fmt: skip
"""Elements that are masked with all that is in them."""
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d(T[\d:.+\-Z]*)?)?)?")
_DATED = re.compile(r"(?:.*(?:Date|DateTime|Time|Instant|On)|start|end|issued|recorded|created|date|when|sent|received|"
                    r"occurred|lastUpdated|lastModified|timestamp|authored|time)")  # fmt: skip
_OF_BIRTH = re.compile(r"birth.*|deceased.*", re.IGNORECASE)


def mask_resource(value: Any, name: str = "", parent: str = "") -> Any:
    """A resource, a Bundle or a part of one, masked.  `name`: of the element; `parent`: of the one around it."""
    if name in _HIDDEN:
        return _hidden(value)
    if isinstance(value, dict):
        return {key: _member(value, key, one, name) for key, one in value.items() if not _is_left_out(value, key)}
    if isinstance(value, list):
        return [mask_resource(one, name, parent) for one in value]
    return _leaf(value, name, parent)


def _is_left_out(value: Mapping[str, Any], key: str) -> bool:
    """The text of a CodeableConcept: its codings say it."""
    return key == "text" and bool(value.get("coding"))


def _member(around: Mapping[str, Any], key: str, value: Any, name: str) -> Any:
    if key == "display" and isinstance(around.get("code"), str):
        return value  # of a coding
    if key.startswith("_"):
        return _hidden(value)
    return mask_resource(value, key, name)


def _leaf(value: Any, name: str, parent: str) -> Any:
    if not isinstance(value, str):
        return value  # numbers of quantities, flags, null
    if _DATE.fullmatch(value) and _OF_BIRTH.fullmatch(name):
        return value[:4]
    if name == "url" and parent == "request":
        path, sign, query = value.partition("?")  # a conditional request names identifiers
        return path + sign + (MASK if query else "")
    if name in _TEXTS or (_DATED.fullmatch(name) and _DATE.fullmatch(value)):
        return value
    return MASK


def _hidden(value: Any) -> Any:
    """The same shape without any content."""
    if isinstance(value, dict):
        return {key: one if key in ("url", "use", "system") and isinstance(one, str) else _hidden(one)
                for key, one in value.items()}  # fmt: skip
    if isinstance(value, list):
        return [_hidden(one) for one in value]
    return MASK if value is not None else None
