"""The items of FHIRPath collections: typed views of JSON, and plain values.

An item of a collection is one of: a `FhirNode` (an element of a resource: its JSON, its FHIR type and, of a primitive,
its sibling property `_name`), a plain value (str, bool, int, Decimal, a class of `values.py`), or a node of another
tree with `.children(name)` and `.text` (HL7 v2).  JSON is never copied or changed.
Sources: http://hl7.org/fhirpath/N1/#data-types, https://hl7.org/fhir/R4/json.html#primitive
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from ipf.fhir.fhirpath.items.model import QUANTITY_TYPES, RESOURCE_ROOTS, Model
from ipf.fhir.fhirpath.items.values import Date, DateTime, Quantity, Time, parse_date, parse_datetime, parse_time
from ipf.fhir.model.json import JsonDecimal

Items = list[Any]
NUMBERS = frozenset((int, Decimal, JsonDecimal))
SCALARS = NUMBERS | {str, bool}
_PLAIN = SCALARS | {Date, DateTime, Time, Quantity}
UCUM_SYSTEM = "http://unitsofmeasure.org"


class FhirNode:
    """One element: JSON `value` (None: it has only extensions), FHIR `type` (None: unknown), `extra` = its `_name`."""

    __slots__ = ("extra", "type", "value")

    def __init__(self, value: Any, type: str | None = None, extra: Any = None) -> None:
        self.value = value
        self.type = type
        self.extra = extra

    def get(self, name: str) -> None:
        """No element: among JSON objects of a known type it stands for a value that is no object."""

    def __contains__(self, name: str) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """The result of `type()`."""

    namespace: str
    name: str
    base: str = ""


def resource_type(value: dict[str, Any]) -> str | None:
    """The resourceType of a JSON object; None when it has none or it is not a type."""
    kind = value.get("resourceType")
    return kind if isinstance(kind, str) else None


def wrap(value: Any, type_name: str | None = None) -> Any:
    """Input data as an item: a JSON object becomes a node, typed by its resourceType when it has one."""
    if isinstance(value, dict):
        return FhirNode(value, resource_type(value) or type_name)
    if type_name is not None and isinstance(value, (str, bool, int, float, Decimal)):
        return FhirNode(value, type_name)
    return Decimal(repr(value)) if type(value) is float else value


def wrap_all(value: Any, type_name: str | None = None) -> Items:
    """Input data as a collection: one value, a list of values, or None for an empty collection."""
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        return [wrap(each, type_name) for each in value if each is not None]
    return [wrap(value, type_name)]


def wrapped(items: Items, kind: str | None) -> Items:
    """Items of one type, each with its type."""
    if kind is None:
        return items
    if kind in RESOURCE_ROOTS:
        return [FhirNode(one, resource_type(one) or kind) if type(one) is dict else one for one in items]
    found: Items = []
    for one in items:
        found.append(one if type(one) is FhirNode else FhirNode(one, kind))
    return found


def unwrap(items: Items) -> Items:
    """Items as JSON values; primitives that have only extensions are omitted."""
    for item in items:
        if type(item) is FhirNode:
            return [
                one.value if type(one) is FhirNode else one
                for one in items
                if type(one) is not FhirNode or one.value is not None
            ]
    return items


def is_foreign(item: Any) -> bool:
    """Whether the item is a node of another tree, such as an HL7 v2 message."""
    return hasattr(item, "children") and type(item) is not FhirNode


def plain(item: Any) -> Any:
    """The value of an item for the operators: dates and quantities as their classes; None when it has no value.

    A structure stays a FhirNode.
    """
    kind = type(item)
    if kind in _PLAIN:
        return item
    if kind is FhirNode:
        return _plain_node(item)
    return item.text if is_foreign(item) else item


def _plain_node(node: FhirNode) -> Any:
    value = node.value
    if type(value) is dict:
        return (to_quantity(value) or node) if node.type in QUANTITY_TYPES else node
    if type(value) is list:
        return node  # not FHIR, but input may contain it
    decode = _DECODE.get(node.type)
    if decode is not None:
        return decode(value)
    return Decimal(repr(value)) if type(value) is float else value


def value_reader(kind: str | None) -> Callable[[Any], Any] | None:
    """What gives the value of an item from JSON of a known type; None when JSON is the value."""
    if kind is None or kind in _JSON_IS_VALUE:
        return None
    if kind[0].islower():
        return _DECODE.get(kind)
    if kind in QUANTITY_TYPES:
        return lambda value: (to_quantity(value) if type(value) is dict else None) or FhirNode(value, kind)
    return lambda value: FhirNode(value, kind)


def _moment(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: (parse(value) if type(value) is str else None) or value


def _decimal(value: Any) -> Any:
    return Decimal(repr(value)) if type(value) is int or type(value) is float else value


_JSON_IS_VALUE = frozenset(
    (
        *("string", "code", "id", "markdown", "uri", "url", "canonical", "uuid", "oid", "base64Binary", "xhtml"),
        *("boolean", "integer", "positiveInt", "unsignedInt"),
    )
)
_DECODE: dict[str | None, Callable[[Any], Any]] = {
    "date": _moment(parse_date),
    "dateTime": _moment(parse_datetime),
    "instant": _moment(parse_datetime),
    "time": _moment(parse_time),
    "decimal": _decimal,
}
_CALENDAR = {"a": "year", "mo": "month", "d": "day", "h": "hour", "min": "minute", "s": "second"}


def to_quantity(value: dict[str, Any]) -> Quantity | None:
    """A FHIR Quantity as a value; None when it has no number, or a comparator that makes it a range.

    A code of another system may be spelled as one of UCUM: its unit is `system|code`, comparable with itself only.
    Durations in UCUM units become calendar durations, as https://hl7.org/fhir/R4/fhirpath.html#quantity says.
    """
    number = value.get("value")
    if isinstance(number, bool) or not isinstance(number, (int, float, Decimal)) or value.get("comparator"):
        return None
    system, code = value.get("system"), value.get("code")
    if system == UCUM_SYSTEM and type(code) is str and code in _CALENDAR:
        return Quantity(decimal_of(number), _CALENDAR[code], calendar=True)
    unit = str(code or value.get("unit") or "1")
    return Quantity(decimal_of(number), unit if system in (UCUM_SYSTEM, None) else f"{system}|{unit}")


def decimal_of(number: int | float | Decimal) -> Decimal:
    """A JSON number with its digits."""
    return number if isinstance(number, Decimal) else Decimal(repr(number))


def to_decimal(text: str) -> Decimal | None:
    """A decimal literal, None for anything else (also for NaN and Infinity)."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() else None


def member(items: Items, name: str, model: Model) -> Items:
    """`items.name`."""
    found: Items = []
    for item in items:
        if type(item) is FhirNode:
            _member_of_node(found, item, name, model)
        elif isinstance(item, TypeInfo):
            if name in ("name", "namespace"):
                found.append(getattr(item, name))
        elif isinstance(item, Quantity):
            if name in ("value", "unit", "code"):
                found.append(item.value if name == "value" else item.unit)
        elif is_foreign(item):
            found.extend(item.children(name))
    return found


def _member_of_node(found: Items, node: FhirNode, name: str, model: Model) -> None:
    value = node.value
    if type(value) is not dict or (node.type is not None and node.type[0].islower()):  # a primitive
        if name == "value" and type(value) in SCALARS and node.type is not None and node.type[0].islower():
            found.append(FhirNode(value, node.type))
        if type(node.extra) is not dict or name not in ("extension", "id"):
            return
        value = node.extra
    if node.type is None or "resourceType" in value:
        _member_of_unknown(found, node, name, model)
        return
    step = model.step(node.type, name)
    if step is None:
        _append(found, value.get(name), value.get("_" + name), None)
    elif step.choices:
        append_choice(found, value, step.choices)
    else:
        _append(found, value.get(name), value.get("_" + name), step.type)


def _member_of_unknown(found: Items, node: FhirNode, name: str, model: Model) -> None:
    """A resource is read by its resourceType; an object of unknown type by the shape of its JSON."""
    value = node.value if type(node.value) is dict else node.extra
    kind = resource_type(value) if node.type is None or node.type in RESOURCE_ROOTS else node.type
    step = model.step(kind, name) if kind is not None else None
    if step is not None and step.choices:
        append_choice(found, value, step.choices)
    elif step is not None:
        _append(found, value.get(name), value.get("_" + name), step.type)
    elif name in value or "_" + name in value:
        _append(found, value.get(name), value.get("_" + name), None)
    elif kind is None:
        _append_guess(found, value, name, model)


def _append_guess(found: Items, value: dict[str, Any], name: str, model: Model) -> None:
    """`value` of an object of unknown type that has `valueQuantity`."""
    for key in value:
        suffix = key[len(name) :]
        if suffix and key.startswith(name) and suffix[0].isupper():
            lower = suffix[0].lower() + suffix[1:]
            kind = lower if model.is_primitive(lower) else suffix
            if model.is_known(kind):
                _append(found, value[key], value.get("_" + key), kind)
                return


def append_choice(found: Items, value: dict[str, Any], choices: Mapping[str, str]) -> None:
    """The properties of an element with a choice of types, with their types."""
    for key in value:
        if key in choices:
            kind, one = choices[key], value[key]
            if kind < "a" and type(one) is dict:
                found.append(FhirNode(one, kind))
            else:
                _append(found, one, value.get("_" + key), kind)
        elif key < "a" and key[:1] == "_" and key[1:] in choices and key[1:] not in value:
            _append(found, None, value[key], choices[key[1:]])


def append_typed(found: Items, raw: Any, extra: Any, kind: str) -> None:
    """Values of a known type, of which only those that are not simply JSON of this type become nodes."""
    nodes: Items = []
    _append(nodes, raw, extra, kind)
    for node in nodes:
        simple = node.extra is None and (type(node.value) in SCALARS if kind[0].islower() else type(node.value) is dict)
        found.append(node.value if simple else node)


def _append(found: Items, raw: Any, extra: Any, kind: str | None) -> None:
    if extra is not None and kind is not None and kind[0].isupper():
        extra = None  # only primitives have such a sibling
    if raw is None and extra is None:
        return
    if type(raw) is list or type(extra) is list:
        _append_list(found, raw or [], extra or [], kind)
    else:
        found.append(_node(raw, kind, extra))


def _append_list(found: Items, raw: Any, extra: Any, kind: str | None) -> None:
    raw = raw if type(raw) is list else [raw]
    extra = extra if type(extra) is list else [extra]
    for i in range(max(len(raw), len(extra))):
        value = raw[i] if i < len(raw) else None
        sibling = extra[i] if i < len(extra) else None
        if value is not None or sibling is not None:
            found.append(_node(value, kind, sibling))


def _node(value: Any, kind: str | None, extra: Any) -> FhirNode:
    if (kind is None or kind in RESOURCE_ROOTS) and type(value) is dict:
        kind = resource_type(value) or kind
    return FhirNode(value, kind, extra)


def all_children(items: Items, model: Model) -> Items:
    """`children()`: every child of every item."""
    found: Items = []
    for item in items:
        if type(item) is FhirNode:
            if type(item.value) is dict:
                _append_children(found, item.value, model.children(item.type))
            elif type(item.extra) is dict:
                _append_children(found, item.extra, model.children(item.type))
        elif is_foreign(item):
            for number in range(1, len(getattr(item, "parts", ())) + 1):  # HL7 v2: empty elements have no node
                found.extend(item.children(str(number)))
    return found


def _append_children(found: Items, value: dict[str, Any], kinds: Mapping[str, str]) -> None:
    start = len(found)
    for key, child in value.items():
        kind, form = kinds.get(key), type(child)
        if key < "a":  # `_name`: extensions of a primitive
            del found[start:]
            _append_properties(found, value, kinds)
            return
        if form is str and kind is not None:
            found.append(FhirNode(child, kind))
        elif kind is None or kind in RESOURCE_ROOTS:
            if key != "resourceType":
                _append(found, child, None, kind)
        elif form is dict or form in SCALARS:
            found.append(FhirNode(child, kind))
        elif form is list:
            for one in child:
                if one is not None:
                    found.append(FhirNode(one, kind))


def _append_properties(found: Items, value: dict[str, Any], kinds: Mapping[str, str]) -> None:
    for key, child in value.items():
        if key[:1] == "_":
            if key[1:] not in value:
                _append(found, None, child, kinds.get(key[1:]))
        elif key != "resourceType":
            _append(found, child, value.get("_" + key), kinds.get(key))


def type_of(item: Any, model: Model) -> TypeInfo | None:
    """The type of an item; None for a node of another tree."""
    if type(item) is FhirNode:
        return _type_of_node(item, model)
    for kind, name in _SYSTEM_NAMES:
        if isinstance(item, kind):
            return TypeInfo("System", name, "System.Any")
    return None


def _type_of_node(node: FhirNode, model: Model) -> TypeInfo:
    name = node.type
    if name is None:
        name = next((fhir for kind, fhir in _JSON_NAMES if isinstance(node.value, kind)), "Element")
    base = model.base(name) or ""
    if "." in name:
        name, base = base, "Element"
    return TypeInfo("FHIR", name, f"FHIR.{base}" if base else "System.Any")


_SYSTEM_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "Boolean"),
    (str, "String"),
    (int, "Integer"),
    (Decimal, "Decimal"),
    (Date, "Date"),
    (DateTime, "DateTime"),
    (Time, "Time"),
    (Quantity, "Quantity"),
)
_JSON_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (str, "string"),
    (int, "integer"),
    (float, "decimal"),
    (Decimal, "decimal"),
)


def is_type(item: Any, namespace: str, name: str, model: Model, *, exact_primitive: bool = False) -> bool:
    """Whether the item is of the type (`namespace` "" = either).  `exact_primitive`: a code is then no string."""
    if type(item) is FhirNode:
        untyped = item.type is None and type(item.value) not in (dict, list) and namespace != "FHIR"
        if untyped and is_type(plain(item), "System", name, model):
            return True  # JSON of no known type has the types of both namespaces
        if namespace == "System":
            return False
        kind = item.type if item.type is not None else _type_of_node(item, model).name
        if exact_primitive and model.is_primitive(kind):
            return kind == name
        return model.is_a(kind, name)
    if namespace == "FHIR":
        return False
    info = type_of(item, model)
    return info is not None and name in (info.name, "Any")
