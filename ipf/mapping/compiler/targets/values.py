"""Conversion of values to the type of their element, chosen at compile time.

Text of an HL7 v2 node becomes a date, a number or a boolean; text becomes the `reference` of a Reference; a Coding
becomes the `coding` of a CodeableConcept.  Any other mismatch is a mistake in the map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ipf.mapping.compiler.conversions import Convert, as_text
from ipf.mapping.compiler.kinds import STRING, Kind, Member, fhir
from ipf.mapping.compiler.models import Models
from ipf.mapping.compiler.transforms import REFERENCE_TEXT, converted, text_of
from ipf.mapping.compiler.values import NOTHING, Value, constant
from ipf.mapping.language.lexer import FmlError
from ipf.mapping.language.model import Target
from ipf.mapping.runtime.run import Frame, Get, Run

_JSON_KINDS = {str: STRING, bool: fhir("boolean"), int: fhir("integer"), Decimal: fhir("decimal")}
ALREADY: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "integer": (int,),
    "positiveInt": (int,),
    "unsignedInt": (int,),
    "decimal": (int, float),
}


_GENERAL = dict.fromkeys(("url", "canonical", "oid", "uuid"), "uri") | {
    "positiveInt": "integer",
    "unsignedInt": "integer",
}
"""The type that a primitive type specializes."""
QUANTITIES = frozenset(("Quantity", "Age", "Count", "Distance", "Duration", "MoneyQuantity", "SimpleQuantity"))
"""Quantity and its specializations, which have the same elements."""


@dataclass(frozen=True, slots=True)
class TypedValue:
    """A value for an element: `value`, or, with a `type_name`, its text converted to that type by `convert`."""

    value: Value
    type_name: str = ""
    convert: Convert | None = None
    text: Callable[[Frame], str | None] = as_text


@dataclass(frozen=True, slots=True)
class TypeConversion:
    """Conversion of one value for one element.  `fail(text)` makes the error with its place in the map."""

    models: Models
    conversions: Mapping[str, Convert]
    target: Target
    fail: Callable[[str], FmlError]

    def kind(self, member: Member | None, value: Value) -> Kind:
        """The type of the element for this value."""
        given = STRING if value.kind == REFERENCE_TEXT else value.kind
        if member is None or not member.kinds:
            return given
        if len(member.kinds) == 1:
            kind = member.kinds[0]
            return given if kind.name in ("Resource", "Element") and given.is_known else kind
        if given.model.startswith("fhir"):
            for kind in member.kinds:
                if kind.name in (given.name, _GENERAL.get(given.name)):
                    return kind
        literal = _JSON_KINDS.get(type(value.constant))
        if literal is not None and literal in member.kinds:
            return literal
        if value.kind == REFERENCE_TEXT and fhir("Reference") in member.kinds:
            return fhir("Reference")
        names = ", ".join(one.name for one in member.kinds[:8])
        raise self.fail(f"'{self.target.element}' may be {names}: say which, e.g. with cast(x, 'string')")

    def apply(self, member: Member | None, value: Value, kind: Kind) -> TypedValue:
        """The value as `kind`."""
        if member is None:
            return TypedValue(Value(own_json(value), kind))
        if self.models.is_primitive(kind):
            return self._primitive(value, kind)
        is_text = value.kind.is_text or self.models.is_primitive(value.kind) or value.kind == REFERENCE_TEXT
        if is_text and kind.name == "Reference":
            text = as_json(value)
            return TypedValue(Value(lambda frame: {"reference": found} if (found := text(frame)) else None, kind))
        if is_text:
            what = f"'{self.target.element}' is a {kind.name}"
            raise self.fail(f"{what}: call a group for it, or use a transform that makes one")
        if value.kind == fhir("Coding") and kind == fhir("CodeableConcept"):
            coding = value.get
            return TypedValue(Value(lambda frame: {"coding": [found]} if (found := coding(frame)) else None, kind))
        self._check_type(value, kind)
        return TypedValue(Value(own_json(value), kind))

    def _check_type(self, value: Value, kind: Kind) -> None:
        """A structure of another type is a mistake; inner structures are not checked."""
        if {value.kind.name, kind.name} <= QUANTITIES:
            return
        both_known = value.kind.model == kind.model == "fhir" and "." not in kind.name + value.kind.name
        if both_known and value.kind.name != kind.name and kind.name not in ("Resource", "Element"):
            raise self.fail(f"'{self.target.element}' is a {kind.name}, not a {value.kind.name}")

    def _primitive(self, value: Value, kind: Kind) -> TypedValue:
        convert = self.conversions.get(kind.name)
        if value.given is not None and value.kind == kind and convert is not None and _is_text(value.given):
            value = value.given
        is_same = value.kind == kind and (kind != STRING or value.constant is not NOTHING)
        if convert is None or is_same or value.kind == REFERENCE_TEXT:
            return TypedValue(value)
        if value.constant is not NOTHING:
            return TypedValue(self._literal(value, kind, convert))
        if value.kind.model == "fhir" and not self.models.is_primitive(value.kind):
            raise self.fail(f"'{self.target.element}' is a {kind.name}, not a {value.kind.name}")
        already = ALREADY.get(kind.name)
        if value.kind.is_text or value.kind == STRING or already is None:
            return TypedValue(value, kind.name, convert, text_of(value))
        return TypedValue(Value(_as_is_or_converted(value.get, converted(value, kind.name, convert), already), kind))

    def _literal(self, value: Value, kind: Kind, convert: Convert) -> Value:
        text = as_text(value.constant)
        result = convert(text) if text else None
        if text and result is None:
            raise self.fail(f"{value.constant!r} is no {kind.name}")
        return constant(result, kind)


def _is_text(value: Value) -> bool:
    return value.kind.is_text or value.kind == STRING or type(value.constant) is str


def _as_is_or_converted(plain: Get, convert: Get, already: tuple[type, ...]) -> Get:
    """JSON numbers and booleans stay, text is converted."""

    def get(frame: Frame) -> Any:
        found = plain(frame)
        if type(found) in already or (isinstance(found, Decimal) and float in already):
            return found
        return convert(frame)

    return get


def own_json(value: Value) -> Get:
    """The value as JSON that shares nothing with a variable or with the result of an expression."""
    get = as_json(value)
    if not value.is_variable and value.kind.is_known:
        return get  # a transform makes a new object each time

    def copy(frame: Frame) -> Any:
        found = get(frame)
        if type(found) is not dict and type(found) is not list:
            return found
        copied = copy_of(found, frame[0])
        if not value.is_variable or value.is_source:
            return copied
        frame[0].loose_references = True  # a copy of an unfinished element may hold references, and empty elements
        return _filled(copied) or None

    return copy


def copy_of(value: Any, run: Run) -> Any:
    """A structure without shared parts; scalars are immutable.  Each part counts as a step of the run."""
    if type(value) is dict:
        run.spend(len(value))
        return {name: copy_of(one, run) if type(one) in (dict, list) else one for name, one in value.items()}
    if type(value) is list:
        run.spend(len(value))
        return [copy_of(one, run) if type(one) in (dict, list) else one for one in value]
    return value


def _filled(value: Any) -> Any:
    """A structure without its empty elements."""
    if type(value) is dict:
        parts = {name: _filled(one) for name, one in value.items()}
        return {name: one for name, one in parts.items() if one not in ({}, [])}
    if type(value) is list:
        return [one for one in map(_filled, value) if one not in ({}, [])]
    return value


def as_json(value: Value) -> Get:
    """The value as JSON: an HL7 v2 node as its text."""
    get = value.get
    if value.kind.is_v2:
        return lambda frame: get(frame).text

    def plain(frame: Frame) -> Any:
        found = get(frame)
        if isinstance(found, (dict, list, str, bool, int, float, Decimal)):
            return found
        return as_text(found)

    return plain
