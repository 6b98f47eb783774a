"""The type definitions for FHIRPath: the JSON property of a name, and the hierarchy of types.

A type is named as the definitions name it: `Patient`, `HumanName`, `code`, or the path of an inner structure such as
`Patient.contact`.  Unknown types and names are no error here: data of a logical model has none.
Source: https://hl7.org/fhir/R4/fhirpath.html#types, https://hl7.org/fhir/R4/datatypes.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from ipf.fhir.model.definitions import Definitions, definitions

SYSTEM_TYPES = frozenset(
    ("Any", "Boolean", "String", "Integer", "Long", "Decimal", "Date", "DateTime", "Time", "Quantity")
)
_BASES = {
    "code": "string",
    "id": "string",
    "markdown": "string",
    "url": "uri",
    "canonical": "uri",
    "uuid": "uri",
    "oid": "uri",
    "positiveInt": "integer",
    "unsignedInt": "integer",
    "Age": "Quantity",
    "Count": "Quantity",
    "Distance": "Quantity",
    "Duration": "Quantity",
    "MoneyQuantity": "Quantity",
    "SimpleQuantity": "Quantity",
    "Timing": "BackboneElement",
    "Dosage": "BackboneElement",
    "ElementDefinition": "BackboneElement",
    "BackboneElement": "Element",
    "DomainResource": "Resource",
}
_PLAIN_RESOURCES = frozenset(("Bundle", "Binary", "Parameters"))
QUANTITY_TYPES = frozenset(("Quantity", *(name for name, base in _BASES.items() if base == "Quantity")))
RESOURCE_ROOTS = frozenset(("Resource", "DomainResource"))


@dataclass(frozen=True, slots=True)
class Step:
    """How a name is read from the JSON of one type: from `key`, or (a choice) from the present one of `choices`.

    `type` is the type of what is found (None: not known); `choices` maps each JSON name to its type.
    """

    key: str
    type: str | None
    many: bool = False
    choices: Mapping[str, str] = field(default_factory=dict)


class Model:
    """The definitions for FHIRPath, with a cache of all results."""

    def __init__(self, source: Definitions) -> None:
        self._source = source
        self._steps: dict[tuple[str, str], Step | None] = {}
        self._children: dict[str | None, Mapping[str, str]] = {}
        self._known: dict[str, bool] = {}
        self.primitives = frozenset(source.primitive_types)

    def step(self, type_name: str, name: str) -> Step | None:
        """How to read element `name` of the type; None when the type has no such element.

        Also finds `valueQuantity`, the JSON property; see `is_json_name`.
        """
        key = (type_name, name)
        try:
            return self._steps[key]
        except KeyError:
            found = self._steps[key] = self._find(type_name, name)
            return found

    def children(self, type_name: str | None) -> Mapping[str, str]:
        """The type of each property that JSON of this type may have."""
        known = self._children.get(type_name)
        if known is None:
            elements = self._source.members(type_name).values() if type_name is not None else ()
            known = self._children[type_name] = {
                each.json_name(kind): kind
                for each in elements
                for kind in (each.types if each.choice else each.types[:1])
            }
        return known

    def is_json_name(self, type_name: str, name: str) -> bool:
        """Whether `name` is only JSON's name of a choice (`valueQuantity`), which FHIRPath does not know."""
        element = self._source.element(type_name, name)
        return element is not None and not element.choice and element.path.rpartition(".")[2] != name

    def is_known(self, type_name: str) -> bool:
        """Whether the definitions have this type."""
        known = self._known.get(type_name)
        if known is None:
            known = self._known[type_name] = (
                type_name in self.primitives
                or type_name in _BASES
                or type_name in ("Element", "Resource", "xhtml")
                or type_name in self._source.resource_types
                or self._source.element(type_name, "id") is not None
            )
        return known

    def is_primitive(self, type_name: str) -> bool:
        """Whether values of the type are JSON strings, numbers or booleans."""
        return type_name in self.primitives or type_name == "xhtml"

    def is_resource(self, type_name: str) -> bool:
        """Whether the type is a resource type (not abstract)."""
        return type_name in self._source.resource_types

    def base(self, type_name: str) -> str | None:
        """The type it specialises; None for the roots and for what is not known."""
        base = _BASES.get(type_name)
        if base is not None or type_name in ("Element", "Resource"):
            return base
        if "." in type_name:
            return "BackboneElement" if self.is_resource(type_name.partition(".")[0]) else "Element"
        if self.is_resource(type_name):
            return "Resource" if type_name in _PLAIN_RESOURCES else "DomainResource"
        return "Element" if self.is_known(type_name) else None

    def is_a(self, type_name: str, wanted: str) -> bool:
        """Whether the type is `wanted` or specialises it."""
        current: str | None = type_name
        while current is not None:
            if current == wanted:
                return True
            current = self.base(current)
        return False

    def _find(self, type_name: str, name: str) -> Step | None:
        element = self._source.element(type_name, name)
        if element is None:
            return None
        if element.choice:
            return Step(name, None, element.many, {element.json_name(each): each for each in element.types})
        return Step(name, element.types[0] if element.types else None, element.many)


@lru_cache(maxsize=1)
def model() -> Model:
    """The model of the R4 definitions."""
    return Model(definitions())
