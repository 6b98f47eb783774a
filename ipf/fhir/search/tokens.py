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
from ipf.fhir.model.reference import indexed_form, parse_reference
from ipf.fhir.search.parameter import Asked, on_each_code, split, unescape
from ipf.ports.predicates import NOTHING, CodedText, CodeIn, Test, TextEquals, TextPrefix, TextSuffix, TypedIdentifier

# Tokens


def token(asked: Asked, value: str) -> list[Test]:
    """`code`, `system|code`, `|code` or `system|`, and what the modifiers make of a value."""
    special = _MODIFIERS.get(asked.modifier)
    if special is not None:
        return special(asked, value)
    if asked.modifier not in ("", "not"):
        raise asked.unsupported()
    parts = [unescape(one) for one in split(value, "|")]
    if len(parts) > 2 or not any(parts):
        raise asked.refuse("a token is written code, system|code, |code or system|")
    if len(parts) == 1:
        return _code_alone(asked, parts[0])
    system, code = parts
    return _system_and_code(asked, system, code)


def _code_alone(asked: Asked, code: str) -> list[Test]:
    if asked.source.system:
        return on_each_code(asked, lambda index: TextEquals(index, (token_value(code, asked.source.system),)))
    value = token_value(code, "")
    if asked.source.has_no_systems:
        return on_each_code(asked, lambda index: TextEquals(index, (value,)))
    return on_each_code(asked, lambda index: TextPrefix(index, value))


def _system_and_code(asked: Asked, system: str, code: str) -> list[Test]:
    only = asked.source.system
    if only and system != only:
        return [NOTHING]
    if code and asked.source.has_no_systems:
        system = ""  # a primitive code is stored without the system that its binding implies
    if system and not code:
        return on_each_code(asked, lambda index: TextSuffix(index, f"\t{clean(system)}"))
    return on_each_code(asked, lambda index: TextEquals(index, (token_value(code, system),)))


def _in_set(asked: Asked, value: str) -> list[Test]:
    return [CodeIn(asked.source.codes, "in", unescape(value), not asked.source.has_no_systems)]


def _subsumed(asked: Asked, value: str) -> list[Test]:
    if "|" not in value:
        raise asked.refuse(f"with the modifier :{asked.modifier} it is written system|code")
    relation: Literal["above", "below"] = "above" if asked.modifier == "above" else "below"
    return [CodeIn(asked.source.codes, relation, unescape(value), not asked.source.has_no_systems)]


def _text(asked: Asked, value: str) -> list[Test]:
    text = normalise(unescape(value))
    if not text:
        raise asked.refuse("it has no value")
    if not any(path.type_path in _WITH_TEXT for path in asked.source.paths):
        raise asked.refuse("there are no texts in its values")
    return [CodedText(asked.resource_type, asked.parameter.code, text)]


def _of_type(asked: Asked, value: str) -> list[Test]:
    parts = [unescape(one) for one in split(value, "|")]
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise asked.refuse("with the modifier :of-type it is written system|code|value")
    if not any(path.type_path == "Identifier" for path in asked.source.paths):
        raise asked.refuse("the modifier :of-type is for identifiers")
    return [TypedIdentifier(asked.resource_type, asked.parameter.code, *parts)]


_WITH_TEXT = frozenset({"CodeableConcept", "Coding", "Identifier", "Reference"})
_MODIFIERS: dict[str, Callable[[Asked, str], list[Test]]] = {
    "in": _in_set,
    "not-in": _in_set,
    "above": _subsumed,
    "below": _subsumed,
    "text": _text,
    "of-type": _of_type,
}


# References


def reference(asked: Asked, value: str) -> list[Test]:
    """An id, `Type/id` or a URL; with `:identifier` a token."""
    if asked.modifier == "identifier":
        return token(replace(asked, modifier="", source=Source(asked.source.codes)), value)
    if asked.modifier == "text":
        return _text(asked, value)
    text = unescape(value)
    wanted = _wanted_types(asked)
    if "://" in text or text.startswith("urn:"):
        forms = _absolute_forms(text, wanted if asked.modifier or asked.source.refers_to else None)
    elif "/" in text:
        literal = parse_reference(text)
        if literal is None:
            raise asked.refuse("it is no reference: write an id, Type/id or a URL")
        forms = [str(literal)] if literal.resource_type in wanted else []
    else:
        forms = [f"{one}/{text}" for one in wanted]
    values = tuple(sorted({clean(one) for one in forms}))
    return on_each_code(asked, lambda code: TextEquals(code, values)) if values else [NOTHING]


def _wanted_types(asked: Asked) -> Iterable[str]:
    """The types that the reference may point at."""
    targets = asked.parameter.targets or definitions().resource_types
    if asked.source.refers_to:
        targets = (asked.source.refers_to,)
    if not asked.modifier:
        return targets
    if asked.modifier not in definitions().resource_types:
        raise asked.unsupported()
    if asked.modifier not in targets:
        raise asked.refuse(f"it never refers to {asked.modifier}")
    return (asked.modifier,)


def _absolute_forms(text: str, wanted: Iterable[str] | None) -> list[str]:
    literal = parse_reference(text)
    if wanted is not None and literal is not None and literal.resource_type not in wanted:
        return []
    form = indexed_form(text)
    return [] if form is None else [form]
