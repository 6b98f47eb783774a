"""JSON in and out, without losing a digit.

FHIR decimals carry their precision in their digits (`1.10` is not `1.1`), and a stored resource must come back as it
was sent.  So numbers with a fraction or an exponent become `JsonDecimal`, a Decimal that remembers how it was written,
and are written the same way again.  Ambiguous or lossy text is refused: repeated members, NaN, Infinity, lone
surrogates, invalid UTF-8, numbers out of range, nesting beyond about 250 levels.

Most text is compact and without decimals, and takes a fast path: when orjson reproduces the text byte for byte, nothing
was lost (no repeated member, no rounded number).  All other text takes the exact path.

A parser in C holds the interpreter lock until it returns: a text with very many values stops the reactor for a second,
also from another thread.  Such a text is read by the parser in Python of the standard library, which gives the lock
back every few milliseconds, and takes two to six times as long; callers read large texts in a thread.

Sources: https://hl7.org/fhir/R4/json.html, https://hl7.org/fhir/R4/datatypes.html#decimal, RFC 8259
"""

from __future__ import annotations

import json
import json.scanner
import re
from collections.abc import Iterable
from decimal import Decimal, DecimalException
from functools import cache
from typing import Any

import orjson

from ipf.errors import Category, Problem
from ipf.ports.threads import without_full_collections

__all__ = ["JsonDecimal", "dumps", "indented", "loads"]

_LARGEST_EXPONENT = 1000
_MOST_DIGITS = 1000  # of one number; R4 requires 18, and PostgreSQL's numeric ends at 16,383 after the point
MOST_VALUES = 1_000_000
"""Commas, brackets and braces of one text: each value takes up to 250 bytes of memory."""
_READ_AT_ONCE = 100_000  # of these, by a parser in C: up to 30 ms
_MARKS = (b",", b"[", b"{")
_MOST_ESCAPES = 5_000_000  # in all texts together: half a second, and 40 ms of it without pause
_PIECE = 1024 * 1024  # is counted at once
_SAFE_INTEGER_LENGTH = 18  # digits that always fit in 64 bits
# In compact JSON a number follows `":`, `[` or `,`: three expressions, each with a fixed beginning, are searched four
# times faster than one with alternatives.  A hit inside a string (`"a,1.5"`) only costs the exact path.
_DECIMALS = tuple(re.compile(start + rb"-?\d+[.eE]").search for start in (rb'":', rb"\[", b","))
_RANGE = f"at most {_MOST_DIGITS} characters, and exponents up to {_LARGEST_EXPONENT}"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class _OutOfRange(Exception):
    """A number that is too large, too small or too long.  `literal`: as it is written."""

    def __init__(self, literal: str) -> None:
        super().__init__()
        self.literal = literal


class JsonDecimal(Decimal):
    """A number as it was written: `literal` is the text, the value is that of Decimal."""

    __slots__ = ("literal",)
    literal: str

    def __new__(cls, literal: str) -> JsonDecimal:
        self = super().__new__(cls, literal)
        self.literal = literal
        return self

    def __reduce__(self) -> tuple[type[JsonDecimal], tuple[str]]:
        return JsonDecimal, (self.literal,)

    def __copy__(self) -> JsonDecimal:
        return self

    def __deepcopy__(self, memo: Any) -> JsonDecimal:
        return self


def loads(text: bytes | str, most_values: int = MOST_VALUES) -> Any:
    """The value of a JSON text.  Objects are dicts in order of their members, decimals are JsonDecimal.

    Raises Problem MALFORMED, with line and column or the name of the repeated member; TOO_LARGE above `most_values`.
    """
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if len(data) > min(_READ_AT_ONCE, most_values):
        marks = _count(data, _MARKS, most_values, "commas, brackets and braces")
        if len(data) > _MOST_ESCAPES:
            _count(data, (b"\\",), _MOST_ESCAPES, "escaped characters")
        if marks > _READ_AT_ONCE:
            with without_full_collections():
                return _load_carefully(data, _gradual_decoder())
    try:
        value = orjson.loads(data)
        if orjson.dumps(value) == data and not _may_hold_decimal(data):
            return value
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass  # the exact path reports the error
    return _load_carefully(data, _decoder)


def _count(data: bytes, marks: Iterable[bytes], most: int, what: str) -> int:
    """How often the marks occur, counted in pieces.  Problem TOO_LARGE as soon as it is more than `most`."""
    found = 0
    for start in range(0, len(data), _PIECE):
        found += sum(data.count(mark, start, start + _PIECE) for mark in marks)
        if found > most:
            raise Problem(Category.TOO_LARGE, f"the JSON has more than {most} {what}")
    return found


def dumps(value: Any) -> bytes:
    """Compact JSON in UTF-8; decimals as they were read, or with all their digits.

    Raises TypeError (orjson.JSONEncodeError) for what has no JSON form.
    """
    return orjson.dumps(value, _encode)


def indented(value: Any) -> bytes:
    """As `dumps`, indented by two spaces."""
    return orjson.dumps(value, _encode, orjson.OPT_INDENT_2)


def _may_hold_decimal(compact: bytes) -> bool:
    """Whether a number in compact JSON may have a fraction or an exponent (True also for some strings)."""
    return any(search(compact) for search in _DECIMALS)


def _load_carefully(data: bytes, decoder: json.JSONDecoder) -> Any:
    try:
        value = decoder.decode(data.removeprefix(_BYTE_ORDER_MARK).decode())
        dumps(value)  # refuses values that cannot be serialized: lone surrogates, excessive nesting
    except UnicodeDecodeError as error:
        raise _malformed(f"the text is not UTF-8 at byte {error.start}") from None
    except _OutOfRange as error:
        raise _malformed(f"a number is out of range{_place_of(error.literal, data)}: {_RANGE}") from None
    except json.JSONDecodeError as error:
        raise _malformed(f"not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise _malformed("nested too deeply") from None
    except orjson.JSONEncodeError as error:
        raise _malformed("nested too deeply" if "ecursion" in str(error) else "a text is not valid Unicode") from None
    return value


def _encode(value: Any) -> orjson.Fragment:
    if isinstance(value, JsonDecimal):
        return orjson.Fragment(value.literal)
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(format(value, "f") if abs(value.adjusted()) < 30 else str(value))
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        seen: set[str] = set()
        twice = next(name for name, _ in members if name in seen or seen.add(name))  # type: ignore[func-returns-value]  # add returns None on purpose
        raise _malformed(f"the member {twice!r} appears twice in one object")
    return found


def _decimal(literal: str) -> JsonDecimal:
    if len(literal) > _MOST_DIGITS:
        raise _OutOfRange(literal)
    try:
        number = JsonDecimal(literal)
    except DecimalException:
        raise _OutOfRange(literal) from None
    if abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise _OutOfRange(literal)
    return number


def _integer(literal: str) -> int | JsonDecimal:
    if len(literal) <= _SAFE_INTEGER_LENGTH and literal != "-0":
        return int(literal)
    return _decimal(literal)


def _constant(name: str) -> Any:
    raise _malformed(f"{name} is not a JSON number")


def _place_of(literal: str, data: bytes) -> str:
    """The line and column of the first number that is written like this."""
    before, found, _ = data.partition(literal.encode())
    line, column = before.count(b"\n") + 1, len(before.rpartition(b"\n")[2].decode(errors="replace")) + 1
    return f" at line {line} column {column}" if found else ""


def _malformed(text: str) -> Problem:
    return Problem(Category.MALFORMED, text)


_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_decimal, parse_int=_integer, parse_constant=_constant
)


@cache
def _gradual_decoder() -> json.JSONDecoder:
    """A decoder whose arrays and objects are read in Python."""
    made: Any = json.JSONDecoder(
        object_pairs_hook=_object, parse_float=_decimal, parse_int=_integer, parse_constant=_constant
    )
    made.parse_array, made.parse_object = json.decoder.JSONArray, json.decoder.JSONObject  # type: ignore[attr-defined]  # not in typeshed
    made.scan_once = json.scanner.py_make_scanner(made)  # type: ignore[attr-defined]  # as above
    return made  # type: ignore[no-any-return]
