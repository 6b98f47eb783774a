"""What a unit measures: an exact factor times powers of base units; and conversion between units of one dimension.

The base units are m, s, g, rad, K, C and cd.  An arbitrary unit such as `[iU]` is a dimension of its own: no other unit
converts to it.  A special unit (`Cel`, `[pH]`, `B[SPL]`) has a function as well; in a product or with an exponent it
measures nothing that could be converted.
Source: https://ucum.org/ucum (sections 3, 4 and 21)
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from ipf.fhir.ucum.parser import Component, Symbol, Term, UnitError, parse
from ipf.fhir.ucum.special import DEFINED_IN, FUNCTIONS, Function, decimal
from ipf.fhir.ucum.table import Atom

Dimensions = tuple[tuple[str, int], ...]
"""(base unit, exponent), sorted; no exponent is zero."""
_MOST_BITS = 8000
_MOST_DIGITS = 1000


@dataclass(frozen=True, slots=True)
class Measure:
    """v of a unit is v * factor base units, or function.to(v * multiple) * factor for a special unit."""

    factor: Fraction
    dimensions: Dimensions
    function: Function | None = None
    multiple: Fraction = Fraction(1)

    def to_base(self, value: Decimal) -> Fraction | None:
        """A number of this unit in base units; None when it is too large, or outside of the function's domain."""
        number = exact(value)
        if number is None or self.function is None:
            return None if number is None else number * self.factor
        try:
            return self.function.to(number * self.multiple) * self.factor
        except (ArithmeticError, ValueError):
            return None

    def from_base(self, value: Fraction) -> Decimal | None:
        """The inverse of `to_base`."""
        try:
            if self.function is None:
                return decimal(value / self.factor)
            return decimal(self.function.back(value / self.factor) / self.multiple)
        except (ArithmeticError, ValueError):
            return None


_ONE = Measure(Fraction(1), ())


@lru_cache(maxsize=4096)
def measure(code: str) -> Measure | None:
    """What a code measures; None when it is no UCUM code, or a special unit stands in a product."""
    try:
        return _of_term(parse(code))
    except UnitError:
        return None


def convert(value: Decimal, unit: str, other: str) -> Decimal | None:
    """A number of `unit` in the unit `other`; None when one is unknown or the dimensions differ."""
    given, wanted = measure(unit), measure(other)
    if given is None or wanted is None or given.dimensions != wanted.dimensions:
        return None
    if given.function is not None and given.function is wanted.function and given.factor == wanted.factor:
        number = exact(value)
        return None if number is None else decimal(number * given.multiple / wanted.multiple)
    base = given.to_base(value)
    return None if base is None else wanted.from_base(base)


def canonical_form(code: str) -> str | None:
    """Factor and base units: `133322 g.m-1.s-2`.  None when the code measures nothing that could be converted."""
    found = measure(code)
    if found is None or found.function is not None:
        return None
    return f"{decimal(found.factor).normalize():f} {base_units(found.dimensions)}"


def base_units(dimensions: Dimensions) -> str:
    """As a code: `g.m-1.s-2`; `1` without a dimension."""
    return ".".join(name if power == 1 else f"{name}{power}" for name, power in dimensions) or "1"


def product(left: Measure, right: Measure, sign: int = 1) -> Measure | None:
    """The product (sign 1) or quotient (sign -1); None for a special unit and for numbers beyond any use."""
    if left.function is not None or right.function is not None:
        return None
    powers = dict(left.dimensions)
    for name, power in right.dimensions:
        powers[name] = powers.get(name, 0) + sign * power
    dimensions = tuple(sorted((name, power) for name, power in powers.items() if power))
    return _bounded(left.factor * right.factor if sign > 0 else left.factor / right.factor, dimensions)


def _of_term(term: Term) -> Measure | None:
    first, *others = term.components
    total = _of_component(first)
    if first.divides and total is not None:
        total = product(_ONE, total, -1)
    for one in others:
        part = _of_component(one)
        total = None if total is None or part is None else product(total, part, -1 if one.divides else 1)
    return total


def _of_component(component: Component) -> Measure | None:
    content = component.content
    if content is None:
        return _ONE
    if isinstance(content, int):
        return Measure(Fraction(content), ())
    return _of_term(content) if isinstance(content, Term) else _of_symbol(content)


def _of_symbol(symbol: Symbol) -> Measure | None:
    found = _of_atom(symbol.atom)
    if found is None:
        return None
    prefix = symbol.prefix.factor if symbol.prefix is not None else Fraction(1)
    if found.function is not None:
        alone = symbol.exponent == 1
        return Measure(found.factor, found.dimensions, found.function, prefix) if alone else None
    dimensions = tuple((name, power * symbol.exponent) for name, power in found.dimensions)
    return _bounded((found.factor * prefix) ** symbol.exponent, dimensions)


@lru_cache(maxsize=512)
def _of_atom(atom: Atom) -> Measure | None:
    function = FUNCTIONS.get(atom.function)
    unit = DEFINED_IN.get(atom.function, atom.unit)
    if not unit or (atom.arbitrary and unit == "1"):
        return Measure(Fraction(1), ((atom.code, 1),))
    if atom.function and function is None:
        return None
    base = measure(unit)
    return None if base is None else Measure(atom.factor * base.factor, base.dimensions, function)


def _bounded(factor: Fraction, dimensions: Dimensions) -> Measure | None:
    bits = max(factor.numerator.bit_length(), factor.denominator.bit_length())
    return Measure(factor, dimensions) if bits <= _MOST_BITS else None


def exact(value: Decimal) -> Fraction | None:
    """As a fraction; None for a number beyond any measurement, whose fraction would fill the memory."""
    if not value.is_finite() or abs(value.adjusted()) > _MOST_DIGITS or len(value.as_tuple().digits) > _MOST_DIGITS:
        return None if value else Fraction(0)
    return Fraction(value)
