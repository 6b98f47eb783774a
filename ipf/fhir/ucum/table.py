"""The table of UCUM: 24 prefixes and 312 atoms, from `fhir/ucum/ucum-essence.xml`, which is UCUM's own file unchanged.

Reading it takes 12 ms, once, at the first use.  Codes are case sensitive.
Source: https://github.com/ucum-org/ucum/blob/main/ucum-essence.xml (version 2.2)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from xml.etree import ElementTree

from ipf.config.paths import folder

_NAMESPACE = "{http://unitsofmeasure.org/ucum-essence}"


@dataclass(frozen=True, slots=True)
class Prefix:
    """A factor before a metric atom: `m`, milli, 1/1000."""

    code: str
    name: str
    symbol: str
    factor: Fraction


@dataclass(frozen=True, slots=True)
class Atom:
    """A unit with a code of its own.  It is `factor` times `unit`; a base unit has no `unit`.  `function` names the
    function of a special unit, to whose result `factor` and `unit` belong.  `upper` is the code in capitals.
    """

    code: str
    upper: str
    names: tuple[str, ...]
    symbol: str
    property: str
    metric: bool
    arbitrary: bool
    factor: Fraction
    unit: str
    function: str


@dataclass(frozen=True, slots=True)
class Table:
    """Prefixes and atoms by their codes."""

    version: str
    prefixes: dict[str, Prefix]
    atoms: dict[str, Atom]


@lru_cache(maxsize=1)
def table() -> Table:
    """The table, read at the first call.  FileNotFoundError when the installation is incomplete."""
    root = ElementTree.parse(folder("fhir") / "ucum" / "ucum-essence.xml").getroot()
    prefixes = [_prefix(one) for one in root.iter(f"{_NAMESPACE}prefix")]
    units = [one for kind in ("base-unit", "unit") for one in root.iter(_NAMESPACE + kind)]
    atoms = [_atom(one) for one in units]
    return Table(root.get("version", ""), {one.code: one for one in prefixes}, {one.code: one for one in atoms})


def _prefix(row: ElementTree.Element) -> Prefix:
    value = row.find(f"{_NAMESPACE}value")
    factor = Fraction(value.get("value", "1")) if value is not None else Fraction(1)
    return Prefix(row.get("Code", ""), _texts(row, "name")[0], _texts(row, "printSymbol")[0], factor)


def _atom(row: ElementTree.Element) -> Atom:
    value = row.find(f"{_NAMESPACE}value")
    function = value.find(f"{_NAMESPACE}function") if value is not None else None
    defined = function if function is not None else value
    return Atom(
        code=row.get("Code", ""),
        upper=row.get("CODE", ""),
        names=_texts(row, "name"),
        symbol=next(iter(_texts(row, "printSymbol")), ""),
        property=next(iter(_texts(row, "property")), ""),
        metric=value is None or row.get("isMetric") == "yes",
        arbitrary=row.get("isArbitrary") == "yes",
        factor=Fraction(defined.get("value", "1")) if defined is not None else Fraction(1),
        unit=defined.get("Unit", "") if defined is not None else "",
        function=function.get("name", "") if function is not None else "",
    )


def _texts(row: ElementTree.Element, name: str) -> tuple[str, ...]:
    found = (" ".join("".join(one.itertext()).split()) for one in row.iter(_NAMESPACE + name))
    return tuple(text for text in found if text)
