"""Names and printed symbols of units, put together from those of prefixes and atoms.

`mg/dL` is "milligram per deciliter", `m2` "square meter", `10*3/uL` "thousand per microliter"; an annotation is
added in brackets.
Source: https://ucum.org/ucum (its columns "name" and "print")
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ipf.fhir.ucum.parser import Component, Symbol, Term, UnitError, parse

_POWERS = {2: "square", 3: "cubic"}
_TENS = {2: "hundred", 3: "thousand", 4: "10 thousand", 5: "100 thousand", 6: "million", 9: "billion", 12: "trillion"}
_TEN_POWERS = ("10*", "10^")


@lru_cache(maxsize=2048)
def name(code: str) -> str | None:
    """The name of a unit in words; None when the code is not UCUM's."""
    try:
        return _joined(parse(code), _name_of, " ", " per ")
    except UnitError:
        return None


@lru_cache(maxsize=2048)
def symbol(code: str) -> str | None:
    """The unit as it is printed: `°C` for `Cel`, `mm Hg` for `mm[Hg]`; None when the code is not UCUM's."""
    try:
        return _joined(parse(code), _symbol_of, "·", "/")
    except UnitError:
        return None


def _joined(term: Term, text_of: Callable[[Component], str], times: str, per: str) -> str:
    parts = []
    for place, one in enumerate(term.components):
        mark = per.lstrip() if one.divides and place == 0 else per if one.divides else times if place else ""
        parts.append(mark + text_of(one))
    return "".join(parts)


def _name_of(component: Component) -> str:
    content, remark = component.content, component.annotation.replace("_", " ")
    if content is None:
        return remark or "1"
    if isinstance(content, int):
        found = str(content)
    elif isinstance(content, Term):
        found = f"({_joined(content, _name_of, ' ', ' per ')})"
    else:
        found = _name_of_symbol(content)
    return f"{found} [{remark}]" if remark else found


def _name_of_symbol(found: Symbol) -> str:
    if found.atom.code in _TEN_POWERS:
        return _TENS.get(found.exponent, f"10 to the power of {found.exponent}")
    single = (found.prefix.name if found.prefix is not None else "") + found.atom.names[0]
    if found.exponent == 1:
        return single
    power = _POWERS.get(found.exponent)
    return f"{power} {single}" if power is not None else f"{single} to the power of {found.exponent}"


def _symbol_of(component: Component) -> str:
    content = component.content
    if content is None:
        return component.annotation.replace("_", " ") or "1"
    if isinstance(content, int):
        return str(content)
    if isinstance(content, Term):
        return f"({_joined(content, _symbol_of, '·', '/')})"
    prefix = content.prefix.symbol if content.prefix is not None else ""
    return (
        prefix + (content.atom.symbol or content.atom.code) + (str(content.exponent) if content.exponent != 1 else "")
    )
