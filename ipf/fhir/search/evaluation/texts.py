"""Tests that look at texts of the resource itself: `:text` and `:of-type`.

The texts of CodeableConcepts have index entries, which a store may use instead (`indexed_texts`).  Those of
identifiers, references and Codings would take another row for each; they are asked for so rarely that the resources
which pass the other terms of a search are looked at instead.

Source: https://hl7.org/fhir/R4/search.html#modifiers
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ipf.fhir.index.entries import normalise, text_code
from ipf.fhir.index.paths import ElementPath, values_at
from ipf.fhir.index.sources import sources
from ipf.ports.queries.predicates import CodedText, TextContains, TypedIdentifier


def has_text(test: CodedText, resource: dict[str, Any]) -> bool:
    """Whether a text or display of the parameter's values has a word that begins with the text searched for."""
    for path in _paths(test.resource_type, test.code):
        for value in values_at(resource, path.steps):
            if any(f" {test.text}" in f" {normalise(text)}" for text in _texts(path.type_path, value)):
                return True
    return False


def indexed_texts(test: CodedText) -> tuple[TextContains, ...]:
    """`:text` as alternative tests on index entries; none when not all values of the parameter are CodeableConcepts."""
    source = sources(test.resource_type).get(test.code)
    if source is None or not source.paths or any(path.type_path != "CodeableConcept" for path in source.paths):
        return ()
    return tuple(TextContains(text_code(code), f" {test.text}") for code in source.codes)


def has_typed_identifier(test: TypedIdentifier, resource: dict[str, Any]) -> bool:
    """Whether an Identifier has the value, and a type with the coding."""
    for path in _paths(test.resource_type, test.code):
        for value in values_at(resource, path.steps):
            if not isinstance(value, dict) or value.get("value") != test.value:
                continue
            for coding in _dicts(_member(value.get("type"), "coding")):
                if coding.get("code") == test.type_code and (not test.system or coding.get("system") == test.system):
                    return True
    return False


def _paths(resource_type: str, code: str) -> frozenset[ElementPath]:
    source = sources(resource_type).get(code)
    return frozenset() if source is None else source.paths


def _texts(type_path: str, value: Any) -> Iterator[str]:
    """The texts that belong to one value."""
    if not isinstance(value, dict):
        return
    concept = value.get("type") if type_path == "Identifier" else value
    found = [_member(concept, "text"), _member(concept, "display")]
    found += [one.get("display") for one in _dicts(_member(concept, "coding"))]
    yield from (one for one in found if isinstance(one, str))


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
