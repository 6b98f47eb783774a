"""Removal of references to erased resources from a resource that stays, such as a Group of several patients.

A Reference to one of them becomes an element with the extension data-absent-reason, code `masked`: its text, display
and identifier are gone, and the element is still there where the structure needs one.  In any other text (a link of a
narrative, the criteria of a Subscription) the id becomes `erased`.  Names within texts are not found.  A Reference by
an identifier of an erased Patient alone is one, too.

Sources: https://hl7.org/fhir/R4/extension-data-absent-reason.html;
https://hl7.org/fhir/R4/references.html#logical
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from ipf.ports import Json

_MASKED = {"extension": [{"url": "http://hl7.org/fhir/StructureDefinition/data-absent-reason", "valueCode": "masked"}]}


class ErasedReferences:
    """References to erased resources, as they stand in others.  `erased`: Type/id; `identifiers`: system and value.

    A URL of another server is none; one of this server, `base_url`, is.
    """

    def __init__(self, erased: Collection[str], base_url: str, identifiers: Collection[tuple[str, str]] = ()) -> None:
        self._erased = frozenset(erased)
        self._identifiers = frozenset(identifiers)
        before = rf"(?:(?<![A-Za-z0-9/.-])|(?<={re.escape(base_url)}/))"
        self._pattern = re.compile(before + r"([A-Z][A-Za-z]+/[A-Za-z0-9.-]{1,64})(?![A-Za-z0-9.-])")

    def removed(self, resource: Json) -> Json:
        """A copy of the resource without them."""
        cleaned: Json = self._cleaned(resource)
        return cleaned

    def removed_from_text(self, text: str) -> str:
        """The text with `erased` instead of the ids."""
        return self._pattern.sub(self._replacement, text)

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, dict):
            if self._refers(value.get("reference")) or _identifier_of(value) in self._identifiers:
                return _MASKED
            return {name: self._cleaned(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._cleaned(item) for item in value]
        return self.removed_from_text(value) if isinstance(value, str) else value

    def _replacement(self, found: re.Match[str]) -> str:
        return f"{found[1].partition('/')[0]}/erased" if found[1] in self._erased else found[0]

    def _refers(self, text: Any) -> bool:
        return isinstance(text, str) and any(found[1] in self._erased for found in self._pattern.finditer(text))


def identifiers_of_references(value: Any) -> Iterator[tuple[str, str]]:
    """System and value of each identifier by which a Reference in a resource names somebody."""
    if isinstance(value, dict):
        found = _identifier_of(value)
        if found is not None:
            yield found
        for item in value.values():
            yield from identifiers_of_references(item)
    elif isinstance(value, list):
        for item in value:
            yield from identifiers_of_references(item)


def _identifier_of(element: dict[str, Any]) -> tuple[str, str] | None:
    """System and value of the identifier of a Reference to a Patient; None for any other element, or a resource."""
    identifier = element.get("identifier")
    if not isinstance(identifier, dict) or "resourceType" in element or element.get("type", "Patient") != "Patient":
        return None
    value = identifier.get("value")
    return (str(identifier.get("system", "")), value) if isinstance(value, str) else None
