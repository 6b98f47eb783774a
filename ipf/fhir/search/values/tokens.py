"""Values of token and reference parameters in, tests out.

Source: https://hl7.org/fhir/R4/search.html#token, #reference
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

from ipf.fhir.index.entries import clean, normalise, token_value
from ipf.fhir.index.sources import Source
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.reference import local_reference, parse_reference
from ipf.fhir.search.values.hierarchies import in_hierarchy
from ipf.fhir.search.values.parameter import RequestedParameter, on_each_code, split, unescape
from ipf.ports.queries.predicates import (
    NOTHING,
    CodedText,
    CodeIn,
    Test,
    TextEquals,
    TextPrefix,
    TextSuffix,
    TypedIdentifier,
)

# Tokens


def token(requested: RequestedParameter, value: str) -> list[Test]:
    """`code`, `system|code`, `|code` or `system|`, and what the modifiers make of a value."""
    special = _MODIFIERS.get(requested.modifier)
    if special is not None:
        return special(requested, value)
    if requested.modifier not in ("", "not"):
        raise requested.unsupported()
    parts = [unescape(one) for one in split(value, "|")]
    if len(parts) > 2 or not any(parts):
        raise requested.refuse("a token is written code, system|code, |code or system|")
    if len(parts) == 1:
        return _code_alone(requested, parts[0])
    system, code = parts
    return _system_and_code(requested, system, code)


def _code_alone(requested: RequestedParameter, code: str) -> list[Test]:
    if requested.source.system:
        return on_each_code(requested, lambda index: TextEquals(index, (token_value(code, requested.source.system),)))
    value = token_value(code, "")
    if requested.source.has_no_systems:
        return on_each_code(requested, lambda index: TextEquals(index, (value,)))
    return on_each_code(requested, lambda index: TextPrefix(index, value))


def _system_and_code(requested: RequestedParameter, system: str, code: str) -> list[Test]:
    only = requested.source.system
    if only and system != only:
        return [NOTHING]
    if code and requested.source.has_no_systems:
        system = ""  # a primitive code is stored without the system that its binding implies
    if system and not code:
        return on_each_code(requested, lambda index: TextSuffix(index, f"\t{clean(system)}"))
    return on_each_code(requested, lambda index: TextEquals(index, (token_value(code, system),)))


def _in_set(requested: RequestedParameter, value: str) -> list[Test]:
    return [CodeIn(requested.source.codes, "in", unescape(value), not requested.source.has_no_systems)]


def _subsumed(requested: RequestedParameter, value: str) -> list[Test]:
    if "|" not in value:
        raise requested.refuse(f"with the modifier :{requested.modifier} it is written system|code")
    relation: Literal["above", "below"] = "above" if requested.modifier == "above" else "below"
    return [CodeIn(requested.source.codes, relation, unescape(value), not requested.source.has_no_systems)]


def _text(requested: RequestedParameter, value: str) -> list[Test]:
    text = normalise(unescape(value))
    if not text:
        raise requested.refuse("it has no value")
    if not any(path.type_path in _WITH_TEXT for path in requested.source.paths):
        raise requested.refuse("there are no texts in its values")
    return [CodedText(requested.resource_type, requested.parameter.code, text)]


def _of_type(requested: RequestedParameter, value: str) -> list[Test]:
    parts = [unescape(one) for one in split(value, "|")]
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise requested.refuse("with the modifier :of-type it is written system|code|value")
    if not any(path.type_path == "Identifier" for path in requested.source.paths):
        raise requested.refuse("the modifier :of-type is for identifiers")
    return [TypedIdentifier(requested.resource_type, requested.parameter.code, *parts)]


_WITH_TEXT = frozenset({"CodeableConcept", "Coding", "Identifier", "Reference"})
_MODIFIERS: dict[str, Callable[[RequestedParameter, str], list[Test]]] = {
    "in": _in_set,
    "not-in": _in_set,
    "above": _subsumed,
    "below": _subsumed,
    "text": _text,
    "of-type": _of_type,
}


# References


def reference(requested: RequestedParameter, value: str) -> list[Test]:
    """An id, `Type/id` or a URL; with `:identifier` a token.

    The URL of a resource of this server finds relative references to it as well.
    """
    if requested.modifier == "identifier":
        return token(replace(requested, modifier="", source=Source(requested.source.codes)), value)
    if requested.modifier == "text":
        return _text(requested, value)
    if requested.modifier in ("above", "below"):
        return in_hierarchy(requested, unescape(value))
    text = unescape(value)
    wanted = _wanted_types(requested)
    if "://" in text or text.startswith("urn:"):
        forms = _absolute_forms(text, wanted if requested.modifier or requested.source.refers_to else None)
        own = local_reference(text, requested.base_url)
        if own is not None and own.resource_type in wanted:
            forms.append(f"{own.resource_type}/{own.id}")
    elif "/" in text:
        literal = parse_reference(text)
        if literal is None:
            raise requested.refuse("it is no reference: write an id, Type/id or a URL")
        forms = [str(literal)] if literal.resource_type in wanted else []
    else:
        forms = [f"{one}/{text}" for one in wanted]
    values = tuple(sorted({clean(one) for one in forms}))
    return on_each_code(requested, lambda code: TextEquals(code, values)) if values else [NOTHING]


def _wanted_types(requested: RequestedParameter) -> Iterable[str]:
    """The types that the reference may point at."""
    targets = requested.parameter.targets or definitions().resource_types
    if requested.source.refers_to:
        targets = (requested.source.refers_to,)
    if not requested.modifier:
        return targets
    if requested.modifier not in definitions().resource_types:
        raise requested.unsupported()
    if requested.modifier not in targets:
        raise requested.refuse(f"it never refers to {requested.modifier}")
    return (requested.modifier,)


def _absolute_forms(text: str, wanted: Iterable[str] | None) -> list[str]:
    literal = parse_reference(text)
    if wanted is not None and literal is not None and literal.resource_type not in wanted:
        return []
    return [text if literal is None else str(literal)]
