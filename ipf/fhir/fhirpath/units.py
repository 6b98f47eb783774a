"""UCUM units: parsing of codes, conversion to base units, and calendar durations.

Covers the grammar of UCUM codes (prefixes, exponents, products, quotients, brackets, annotations) over the table of
atoms below: SI, the customary and clinical units, arbitrary units such as `[iU]` (each a dimension of its own), Celsius
and Fahrenheit.  Logarithmic and homeopathic units are not convertible: such a quantity equals only one with the same
code.

The library for UCUM (ucumvert 0.3 with pint 0.25) takes 0.57 s and 25 MB to load and 0.7 ms to parse a unit.
Source: https://ucum.org/ucum (tables 1 to 23); http://hl7.org/fhirpath/N1/#time-valued-quantities.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

from ipf.fhir.fhirpath.values import Quantity

Dimensions = tuple[tuple[str, int], ...]
Scale = tuple[Decimal, Dimensions]

_PREFIXES = {
    name: Decimal(10) ** power
    for name, power in (
        *(("Y", 24), ("Z", 21), ("E", 18), ("P", 15), ("T", 12), ("G", 9), ("M", 6), ("k", 3), ("h", 2), ("da", 1)),
        *(("d", -1), ("c", -2), ("m", -3), ("u", -6), ("n", -9), ("p", -12), ("f", -15), ("a", -18), ("z", -21)),
        ("y", -24),
    )
} | {"Ki": Decimal(1024), "Mi": Decimal(1024) ** 2, "Gi": Decimal(1024) ** 3, "Ti": Decimal(1024) ** 4}

_METRIC = """
m | s | g | rad | K | C | cd | mol 6.0221367e23 1 | sr 1 rad2 | Hz 1 s-1 | N 1 kg.m/s2 | Pa 1 N/m2 | J 1 N.m
W 1 J/s | A 1 C/s | V 1 J/C | F 1 C/V | Ohm 1 V/A | S 1 Ohm-1 | Wb 1 V.s | T 1 Wb/m2 | H 1 Wb/A | lm 1 cd.sr
lx 1 lm/m2 | Bq 1 s-1 | Gy 1 J/kg | Sv 1 J/kg | L 1 dm3 | l 1 dm3 | ar 100 m2 | t 1000 kg | bar 1e5 Pa
u 1.6605402e-24 g | eV 1.60217733e-19 J | cal 4.184 J | m[H2O] 9.80665e3 Pa | m[Hg] 133.3220e3 Pa | eq 1 mol
osm 1 mol | kat 1 mol/s | U 1 umol/min | [iU] | [IU] 1 [iU] | st 1 m3 | dyn 1e-5 N | erg 1e-7 J | P 0.1 Pa.s
G 1e-4 T | Ci 3.7e10 Bq | R 2.58e-4 C/kg | RAD 0.01 Gy | REM 1 RAD | bit 1 1 | By 8 bit | Bd 1 s-1 | tex 1 g/km
g% 1 g/dl | mho 1 S | pc 3.085678e16 m
"""
_PLAIN = """
10* 10 1 | 10^ 10 1 | [pi] 3.1415926535897932384626433 1 | % 0.01 1 | [ppth] 1e-3 1 | [ppm] 1e-6 1
[ppb] 1e-9 1 | min 60 s | h 60 min | d 24 h | wk 7 d | a_j 365.25 d | a 1 a_j | mo_j 30.4375 d | mo 1 mo_j
a_t 365.24219 d | a_g 365.2425 d | mo_s 29.53059 d | mo_g 30.436875 d | gon 0.9 deg | deg 2 [pi].rad/360
' 1 deg/60 | '' 1 '/60 | [in_i] 2.54 cm | [ft_i] 12 [in_i] | [yd_i] 3 [ft_i] | [mi_i] 5280 [ft_i]
[nmi_i] 1852 m | [kn_i] 1 [nmi_i]/h | [mil_i] 1e-3 [in_i] | [fth_i] 6 [ft_i] | [sin_i] 1 [in_i]2
[sft_i] 1 [ft_i]2 | [cin_i] 1 [in_i]3 | [cft_i] 1 [ft_i]3 | [in_us] 100 m/3937 | [ft_us] 12 [in_us]
[lb_av] 7000 [gr] | [gr] 64.79891 mg | [oz_av] 437.5 [gr] | [dr_av] 27.34375 [gr] | [ston_av] 2000 [lb_av]
[lton_av] 2240 [lb_av] | [stone_av] 14 [lb_av] | [lb_tr] 5760 [gr] | [oz_tr] 480 [gr] | [lb_ap] 5760 [gr]
[oz_ap] 480 [gr] | [lbf_av] 4.4482216152605 N | [psi] 1 [lbf_av]/[in_i]2 | atm 101325 Pa | [gal_us] 231 [in_i]3
[qt_us] 57.75 [in_i]3 | [pt_us] 28.875 [in_i]3 | [foz_us] 1.8046875 [in_i]3 | [cup_us] 14.4375 [in_i]3
[tbs_us] 0.90234375 [in_i]3 | [tsp_us] 0.30078125 [in_i]3 | [fdr_us] 0.2255859375 [in_i]3 | [gal_br] 4.54609 l
[pt_br] 568.26125 ml | [foz_br] 28.4130625 ml | [cup_m] 240 ml | [tsp_m] 5 ml | [tbs_m] 15 ml | [foz_m] 30 ml
[in_i'H2O] 249.08891 Pa | [in_i'Hg] 3386.3788 Pa | [acr_us] 4046.872609874252 m2 | [Cal] 1 kcal
[Btu] 1055.05585262 J | [HP] 745.69987158227 W | Ao 1e-10 m | AU 149597.870691e6 m | [c] 299792458 m/s
[g] 9.80665 m/s2 | [arb'U] | [USP'U] | [anti'Xa'U] | [CFU] | [PFU] | [Amb'a'1'U] | [EID_50] | [CCID_50]
[TCID_50] | [HPF] | [LPF] | [drp] 0.05 ml | [Ch] 1 mm/3 | [Lf] | [GPL'U] | [MPL'U] | [APL'U] | [beth'U]
[mclg'U] | [tb'U] | [knk'U] | [ka'U] | [dye'U] | [smgy'U] | [bdsk'U] | [todd'U] | [BAU] | [AU] | [D'ag'U]
[FFU] | [LD50'U] | [hnsf'U]
"""
_CELSIUS = "Cel"
_FAHRENHEIT = "[degF]"
_COMPONENT = re.compile(r"((?:\[[^\]\s]*\]|10[*^]|[A-Za-z_%'\"])+(?:\[[^\]\s]*\])?)([+-]?\d+)?|(\d+)")
_ANNOTATION = re.compile(r"\{[^{}]*\}")
_DEFINITE = {"week": "wk", "day": "d", "hour": "h", "minute": "min", "second": "s", "millisecond": "ms"}
CALENDAR_OF = {"wk": "week", "d": "day", "h": "hour", "min": "minute", "s": "second", "ms": "millisecond"}
_MAX_CODE = 200
_MAX_EXPONENT = 60


def _table(text: str) -> dict[str, tuple[Decimal, str]]:
    """Atom -> (factor, unit it is defined by); a base unit is defined by ''."""
    rows = (entry.split() for entry in text.replace("\n", "|").split("|") if entry.strip())
    return {row[0]: (Decimal(row[1]), row[2]) if len(row) == 3 else (Decimal(1), "") for row in rows}


_METRIC_ATOMS = _table(_METRIC)
_ATOMS = _table(_PLAIN) | _METRIC_ATOMS


@lru_cache(maxsize=4096)
def scale(code: str) -> Scale | None:
    """A UCUM code as a factor times base units; None when it is not valid."""
    if len(code) > _MAX_CODE or any(mark.isspace() for mark in code):
        return None
    text = _ANNOTATION.sub("", code)
    if not text:
        return (Decimal(1), ()) if code else None
    unit_parser = _UnitParser(text)
    found = unit_parser.term(0)
    return found if found is not None and unit_parser.position == len(text) else None


class _UnitParser:
    """Recursive descent over one code."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def term(self, depth: int) -> Scale | None:
        """Components joined by `.` and `/`, from left to right."""
        total: Scale | None = (Decimal(1), ())
        sign = 1
        if self.text[self.position : self.position + 1] != "/":
            total = self.component(depth)
        while total is not None and self.text[self.position : self.position + 1] in (".", "/"):
            sign = 1 if self.text[self.position] == "." else -1
            self.position += 1
            factor = self.component(depth)
            total = None if factor is None else combine(total, factor, sign)
        return total

    def component(self, depth: int) -> Scale | None:
        """A bracket, a number or a simple unit with an exponent."""
        if self.text[self.position : self.position + 1] == "(":
            if depth > 10:
                return None
            self.position += 1
            inner = self.term(depth + 1)
            if self.text[self.position : self.position + 1] != ")":
                return None
            self.position += 1
            return inner
        match = _COMPONENT.match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        if match[3]:
            return (Decimal(match[3]), ()) if int(match[3]) else None
        exponent = int(match[2] or 1)
        atom = _atom(match[1])
        return None if atom is None or abs(exponent) > _MAX_EXPONENT else _power(atom, exponent)


def combine(left: Scale, right: Scale, sign: int = 1) -> Scale:
    """The product (sign 1) or quotient (sign -1)."""
    powers = dict(left[1])
    for name, power in right[1]:
        powers[name] = powers.get(name, 0) + sign * power
    dimensions = tuple(sorted((name, power) for name, power in powers.items() if power))
    return (left[0] * right[0] if sign > 0 else left[0] / right[0]), dimensions


def canonical(quantity: Quantity) -> tuple[Decimal, Dimensions] | None:
    """The value in base units; None for an unknown unit.  Calendar years and months are no definite durations."""
    unit = quantity.unit
    if quantity.calendar:
        if unit not in _DEFINITE:
            months = quantity.value * (12 if unit == "year" else 1)
            return months, (("calendar month", 1),)
        unit = _DEFINITE[unit]
    if unit in (_CELSIUS, _FAHRENHEIT):
        value = quantity.value
        return (value + Decimal("273.15") if unit == _CELSIUS else (value + Decimal("459.67")) * 5 / 9), (("K", 1),)
    found = scale(unit)
    return None if found is None else (quantity.value * found[0], found[1])


def convert(quantity: Quantity, unit: str) -> Quantity | None:
    """The same quantity in another UCUM unit; None when the dimensions differ."""
    value, target = canonical(quantity), scale(unit)
    if value is None or target is None or value[1] != target[1]:
        return None
    return Quantity(value[0] / target[0], unit)


def comparable(left: Quantity, right: Quantity) -> bool:
    """Whether the two have the same dimensions."""
    a, b = canonical(left), canonical(right)
    if a is None or b is None:
        return left.unit == right.unit and left.calendar == right.calendar
    return a[1] == b[1]


def product(left: Quantity, right: Quantity, sign: int) -> Quantity | None:
    """The product (sign 1) or quotient (sign -1) of two quantities, with the combined unit."""
    a = _DEFINITE.get(left.unit, left.unit) if left.calendar else left.unit
    b = _DEFINITE.get(right.unit, right.unit) if right.calendar else right.unit
    first, second = scale(a), scale(b)
    if first is None or second is None:
        return None
    value = left.value * right.value if sign > 0 else left.value / right.value
    if b == "1":
        return Quantity(value, a)
    _, dimensions = combine(first, second, sign)
    if not dimensions:
        return Quantity(value * (first[0] * second[0] if sign > 0 else first[0] / second[0]), "1")
    mark = "." if sign > 0 else "/"
    return Quantity(value, f"{_bracketed(a)}{mark}{_bracketed(b)}" if a != "1" or sign < 0 else b)


def _bracketed(code: str) -> str:
    return f"({code})" if "." in code or "/" in code else code


def _power(unit: Scale, exponent: int) -> Scale:
    dimensions = tuple((name, power * exponent) for name, power in unit[1]) if exponent else ()
    return unit[0] ** exponent, dimensions


@lru_cache(maxsize=1024)
def _atom(symbol: str) -> Scale | None:
    """An atom, alone or after a prefix."""
    factor = Decimal(1)
    if symbol not in _ATOMS:
        split = next((n for n in (2, 1) if symbol[:n] in _PREFIXES and symbol[n:] in _METRIC_ATOMS), None)
        if split is None:
            return None
        factor, symbol = _PREFIXES[symbol[:split]], symbol[split:]
    value, definition = _ATOMS[symbol]
    if not definition:
        return factor, ((symbol, 1),)
    base = (Decimal(1), ()) if definition == "1" else scale(definition)
    return None if base is None else (factor * value * base[0], base[1])
