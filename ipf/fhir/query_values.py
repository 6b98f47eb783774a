"""The value of one search parameter in, a test out: the rules of FHIR search for each type of parameter.

A value arrives as it was sent, still with its backslashes; `split` cuts it at separators that are not escaped.  The
tests that leave are put on the parameter's sources (`index_sources.py`), in the very values that indexing writes.

Source: https://hl7.org/fhir/R4/search.html#string, #token, #reference, #uri, #date, #number, #quantity
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from ipf.errors import Category, Problem
from ipf.fhir import dates
from ipf.fhir.definitions import SearchParameter, definitions
from ipf.fhir.entries import clean, normalise, string_value, token_value
from ipf.fhir.index_sources import Source
from ipf.fhir.predicate import (
    NOTHING,
    AnyOf,
    Bounds,
    DateRange,
    Kind,
    LastUpdated,
    Not,
    Present,
    QuantityRange,
    Test,
    TextContains,
    TextEquals,
    TextPrefix,
)
from ipf.fhir.query_ranges import date_bounds, moment_bounds, number_bounds
from ipf.fhir.reference import indexed_form, parse_reference

_PREFIXED = re.compile(r"(eq|ne|gt|lt|ge|le|sa|eb|ap)?(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)
_ESCAPED = re.compile(r"\\([,|$\\])")
_KINDS: dict[str, Kind] = {"date": "date", "number": "quantity", "quantity": "quantity"}


@dataclass(frozen=True, slots=True)
class Asked:
    """One parameter of a search: `name` as written (for messages), its definition and its sources.

    `now`: what `ap` on a date is relative to; None where the time of asking means nothing (stored criteria).
    """

    name: str
    modifier: str
    parameter: SearchParameter
    source: Source
    now: datetime | None = None

    def refuse(self, why: str) -> Problem:
        """A Problem about this parameter's value."""
        return Problem(Category.VALUE, f"search parameter {self.name}: {why}", self.name)

    def unsupported(self) -> Problem:
        """A Problem about this parameter's modifier."""
        text = f"search parameter {self.name}: the modifier :{self.modifier} is not supported"
        return Problem(Category.NOT_SUPPORTED, text, self.name)


def build(asked: Asked, value: str) -> Test:
    """The test that a parameter and its value ask for.  Problem VALUE or NOT_SUPPORTED names the parameter."""
    if asked.modifier == "missing":
        return _missing(asked, value)
    alternatives = [one for one in split(value, ",") if one]
    if not alternatives:
        raise asked.refuse("it has no value")
    make = _MAKERS[asked.parameter.type]
    test = any_of([test for one in alternatives for test in make(asked, one)])
    return Not(test) if asked.modifier == "not" else test


def kind_of(parameter: SearchParameter) -> Kind:
    """Which of the three indexes has the values of a parameter."""
    return _KINDS.get(parameter.type, "text")


def split(value: str, separator: str) -> list[str]:
    """The parts between separators that no backslash stands before; escapes are left as they are."""
    if "\\" not in value:
        return value.split(separator)
    parts, start, position = [], 0, 0
    while position < len(value):
        if value[position] == "\\":
            position += 1
        elif value[position] == separator:
            parts.append(value[start:position])
            start = position + 1
        position += 1
    return [*parts, value[start:]]


def unescape(value: str) -> str:
    """A part without the backslashes before `,` `|` `$` and backslash."""
    return _ESCAPED.sub(r"\1", value) if "\\" in value else value


def any_of(tests: Sequence[Test]) -> Test:
    """One test for alternatives; equalities on one code become one."""
    if len(tests) == 1:
        return tests[0]
    values: dict[str, set[str]] = {}
    others: list[Test] = []
    for test in tests:
        if isinstance(test, TextEquals):
            values.setdefault(test.code, set()).update(test.values)
        else:
            others.append(test)
    merged: list[Test] = [TextEquals(code, tuple(sorted(found))) for code, found in sorted(values.items())]
    every = tuple(dict.fromkeys(merged + others))
    return every[0] if len(every) == 1 else AnyOf(every)


def last_updated(asked: Asked, value: str) -> Test:
    """The test that `_lastUpdated` asks for: the instant of the current version against ranges."""
    if asked.modifier:
        raise asked.unsupported()
    return any_of([LastUpdated(moment_bounds(*_read_date(asked, one))) for one in split(value, ",") if one])


# `:missing`, strings, URIs


def _missing(asked: Asked, value: str) -> Test:
    if value not in ("true", "false"):
        raise asked.refuse("the modifier :missing takes true or false")
    present = any_of([test for code in asked.source.codes for test in _present(asked, code)])
    return Not(present) if value == "true" else present


def _present(asked: Asked, code: str) -> list[Test]:
    source = asked.source
    if source.refers_to:
        return [TextPrefix(code, f"{source.refers_to}/"), TextContains(code, f"/{source.refers_to}/")]
    if source.system:
        return [TextEquals(code, (token_value("", source.system),))]
    return [Present(code, kind_of(asked.parameter))]


def _on_each_code(asked: Asked, make: Callable[[str], Test]) -> list[Test]:
    return [make(code) for code in asked.source.codes]


def _string(asked: Asked, value: str) -> list[Test]:
    text = unescape(value)
    normal = normalise(text)
    if not normal:
        raise asked.refuse("it has no value")
    if asked.modifier == "exact":
        return _on_each_code(asked, lambda code: TextEquals(code, (string_value(text),)))
    if asked.modifier == "contains":
        return _on_each_code(asked, lambda code: TextContains(code, normal))
    if asked.modifier:
        raise asked.unsupported()
    return _on_each_code(asked, lambda code: TextPrefix(code, normal))


def _uri(asked: Asked, value: str) -> list[Test]:
    text = clean(unescape(value))
    if not asked.modifier:
        return _on_each_code(asked, lambda code: TextEquals(code, (text,)))
    if asked.modifier not in ("above", "below"):
        raise asked.unsupported()
    if not text.startswith("http"):
        return [NOTHING]  # only URLs have a hierarchy
    if asked.modifier == "below":
        return _on_each_code(asked, lambda code: TextPrefix(code, text))
    return _on_each_code(asked, lambda code: TextEquals(code, tuple(sorted(_ancestors(text)))))


def _ancestors(url: str) -> set[str]:
    """The URL itself and what its path lies below, with and without a slash at the end."""
    scheme, separator, rest = url.partition("://")
    parts = rest.split("/")
    above = {scheme + separator + "/".join(parts[:length]) for length in range(1, len(parts))}
    return {url} | above | {one + "/" for one in above}


# Tokens


def _token(asked: Asked, value: str) -> list[Test]:
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
        return _on_each_code(asked, lambda index: TextEquals(index, (token_value(code, asked.source.system),)))
    value = token_value(code, "")
    if asked.source.has_no_systems:
        return _on_each_code(asked, lambda index: TextEquals(index, (value,)))
    return _on_each_code(asked, lambda index: TextPrefix(index, value))


def _system_and_code(asked: Asked, system: str, code: str) -> list[Test]:
    only = asked.source.system
    if only and system != only:
        return [NOTHING]
    if code and asked.source.has_no_systems:
        system = ""  # a primitive code is stored without the system that its binding implies
    return _on_each_code(asked, lambda index: TextEquals(index, (token_value(code, system),)))


# References


def _reference(asked: Asked, value: str) -> list[Test]:
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
    return _on_each_code(asked, lambda code: TextEquals(code, values)) if values else [NOTHING]


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


# Dates


def _date(asked: Asked, value: str) -> list[Test]:
    if asked.modifier:
        raise asked.unsupported()
    bounds = date_bounds(*_read_date(asked, value))
    return _on_each_code(asked, lambda code: DateRange(code, bounds))


def _read_date(asked: Asked, value: str) -> tuple[str, int, int]:
    """Prefix, and the range of the date; a plus sign that became a blank on the way is put back."""
    found = _PREFIXED.fullmatch(unescape(value))
    prefix, text = (found[1] or "eq", found[2]) if found else ("eq", value)
    span = dates.date_range(text.strip().replace(" ", "+"))
    if span is None:
        raise asked.refuse("it is no date: write for example 2024, 2024-05, 2024-05-31 or 2024-05-31T10:00:00Z")
    if prefix != "ap":
        return prefix, *span
    if asked.now is None:
        raise asked.refuse("the prefix ap has no meaning here, since it depends on the time of asking")
    margin = abs(dates.microseconds(asked.now) - span[0]) // 10
    return prefix, span[0] - margin, span[1] + margin


# Numbers and quantities


def _number(asked: Asked, value: str) -> list[Test]:
    if asked.modifier:
        raise asked.unsupported()
    bounds = _read_number(asked, unescape(value))
    return _on_each_code(asked, lambda code: QuantityRange(code, bounds))


def _quantity(asked: Asked, value: str) -> list[Test]:
    if asked.modifier:
        raise asked.unsupported()
    parts = [unescape(one) for one in split(value, "|")]
    if len(parts) not in (1, 3):
        raise asked.refuse("a quantity is written number, number|system|code or number||code")
    bounds = _read_number(asked, parts[0])
    system, unit = (clean(one) for one in parts[1:]) if len(parts) == 3 else ("", "")
    prefix = f"{system}\t{unit}\t" if system and unit else f"{system}\t" if system else ""
    part = f"\t{unit}\t" if unit and not system else ""
    return _on_each_code(asked, lambda code: QuantityRange(code, bounds, prefix, part))


def _read_number(asked: Asked, text: str) -> Bounds:
    found = _PREFIXED.fullmatch(text)
    prefix, digits = (found[1] or "eq", found[2]) if found else ("eq", text)
    if _NUMBER.fullmatch(digits) is None:
        raise asked.refuse("it is no number")
    return number_bounds(prefix, Decimal(digits))


_MAKERS: dict[str, Callable[[Asked, str], list[Test]]] = {
    "date": _date,
    "number": _number,
    "quantity": _quantity,
    "reference": _reference,
    "string": _string,
    "token": _token,
    "uri": _uri,
}
