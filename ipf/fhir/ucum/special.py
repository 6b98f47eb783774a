"""The functions of special units: degrees Celsius, pH, bel, prism dioptre and others on scales without ratios.

Each pair turns a number of the special unit into a number of the unit that its definition names, and back.  What is
linear is exact; logarithms have 28 digits, angles those of a float.  For `%[slope]` the table names degrees beside
its function `100tan(1 rad)`; the angle is in radians here, so that 100 % is 45 degrees.
Source: https://ucum.org/ucum (section 21, "Special units on non-ratio scales", and its tables)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

Call = Callable[[Fraction], Fraction]
_LARGEST = 400  # digits before the point of a power: what is beyond is no measurement


@dataclass(frozen=True, slots=True)
class Function:
    """`to` the defining unit, and `back`.  Both raise ArithmeticError or ValueError for a number outside of the domain.
    `rises`: a larger number is more of the defining unit."""

    to: Call
    back: Call
    rises: bool = True


def decimal(number: Fraction) -> Decimal:
    """As a decimal, with the digits of the decimal context."""
    return Decimal(number.numerator) / number.denominator


def _shift(offset: str) -> Function:
    exact = Fraction(offset)
    return Function(lambda v: v + exact, lambda v: v - exact)


def _power(base: Decimal, divisor: int = 1, scale: str = "1") -> Function:
    """base ** (v / divisor) times scale."""
    times, logarithm = Fraction(scale), base.ln()

    def to(value: Fraction) -> Fraction:
        exponent = decimal(value / divisor)
        if abs(exponent * logarithm) > _LARGEST:
            raise OverflowError("the level is too large")
        return Fraction(base**exponent) * times

    def back(value: Fraction) -> Fraction:
        ratio = decimal(value / times)
        found = ratio.log10() if base == 10 else ratio.ln() / logarithm
        return Fraction(found) * divisor

    return Function(to, back)


def _negative(function: Function) -> Function:
    """The function of the negative number: potencies and pH fall as the number rises."""
    return Function(lambda v: function.to(-v), lambda v: -function.back(v), rises=False)


_TANGENT = Function(
    lambda v: Fraction(repr(math.atan(v / 100))),
    lambda v: Fraction(repr(math.tan(v))) * 100,
)
_TEN = Decimal(10)

FUNCTIONS: dict[str, Function] = {
    "Cel": _shift("273.15"),
    "degF": _shift("459.67"),
    "degRe": _shift("218.52"),
    "pH": _negative(_power(_TEN)),
    "ln": _power(Decimal(1).exp()),
    "lg": _power(_TEN),
    "lgTimes2": _power(_TEN, 2),
    "ld": _power(Decimal(2)),
    "hpX": _negative(_power(_TEN)),
    "hpC": _negative(_power(Decimal(100))),
    "hpM": _negative(_power(Decimal(1000))),
    "hpQ": _negative(_power(Decimal(50000))),
    "tanTimes100": _TANGENT,
    "100tan": _TANGENT,
    "sqrt": Function(lambda v: v * v, lambda v: Fraction(decimal(v).sqrt())),
}
"""By the name that the table gives."""
DEFINED_IN = {"100tan": "rad"}
"""The unit of a function where it is not that of the table."""
