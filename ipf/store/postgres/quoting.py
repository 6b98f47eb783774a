"""Values in, SQL literals out: the one place where a value becomes part of a statement.

psycopg2 has no server-side parameters, so a value is always written into the statement's text.  Every other module of
the store passes values to `Statement.call` or `literal` and never formats them itself.

Rules: `standard_conforming_strings` is on (each session sets it), so in a literal only the single quote is special.
NUL cannot be stored as text.  The two separators of `joined` (unit separator, record separator) are refused in every
text value, so that a value can never pretend to be two.

Sets of values travel as ONE text, joined, and are taken apart by `string_to_array`: adapting Python lists costs six to
eight times as much.  Source: https://www.postgresql.org/docs/current/sql-syntax-lexical.html (string constants).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache

from ipf.errors import Category, Problem

Value = str | bytes | int | float | bool | Decimal | datetime | None

SEPARATOR = "\x1f"
_BETWEEN = "','"
NULL = "\x1e"
_FORBIDDEN = re.compile("[\x00\x1e\x1f]")


def literal(value: Value) -> str:
    """`value` as an SQL literal.  Problem MALFORMED when a text holds NUL or one of the separators."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return _quoted(_checked(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    if isinstance(value, datetime):
        return f"'{_instant(value)}'"
    if isinstance(value, int | float | Decimal):
        return f"'{value}'" if str(value)[-1:].isalpha() else f"({value})"
    raise TypeError(f"no SQL literal for {type(value).__name__}")


def json_literal(text: str) -> str:
    """JSON as `orjson` writes it, which escapes every control character, as an SQL literal: nothing is looked for."""
    return _quoted(text)


def joined(values: Iterable[Value]) -> Joined:
    """Many values as one text for `string_to_array(..., E'\\x1f', E'\\x1e')`; None stays NULL.

    A single empty text becomes no element at all: the statement writes `coalesce(column, '')` where that can happen.
    """
    items = list(values)
    try:
        text = SEPARATOR.join(items)  # type: ignore[arg-type]  # most columns are texts: then nothing is asked of each
    except TypeError:
        text = SEPARATOR.join([item if type(item) is str else _element(item) for item in items])
    if text.count(SEPARATOR) != max(len(items) - 1, 0) or "\x00" in text or (NULL in text and NULL in items):
        raise _refused()
    return Joined(text)


def array(texts: Iterable[str]) -> Joined:
    """Numbers or booleans, as PostgreSQL writes them, as the literal of an array of their type."""
    return Joined("{" + ",".join(texts) + "}")


class Joined(str):
    """A text made by `joined` or `array`: checked already, quoted as it is."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that every session prepares when it connects.  `types` are its parameters' types, in order."""

    name: str
    types: str
    sql: str

    def prepare(self) -> str:
        """The PREPARE statement."""
        return f"PREPARE {self.name}{f'({self.types})' if self.types else ''} AS {self.sql}"

    def call(self, *values: Value) -> str:
        """The EXECUTE statement with these values."""
        arguments = ",".join([argument(value) for value in values])
        return f"EXECUTE {self.name}({arguments})" if values else f"EXECUTE {self.name}"

    def call_texts(self, *texts: str) -> str:
        """The same where all values are texts: looked at and quoted together, and held to the rule of `joined`."""
        text = SEPARATOR.join(texts)
        if text.count(SEPARATOR) != len(texts) - 1 or "\x00" in text:
            raise _refused()
        return f"EXECUTE {self.name}({_quoted(text).replace(SEPARATOR, _BETWEEN)})"


def identifier(name: str) -> str:
    """`name` as a quoted identifier (database and channel names)."""
    return '"' + _checked(name).replace('"', '""') + '"'


def printable(text: str | None, limit: int = 4000) -> str | None:
    """Free text made storable: control characters that `literal` would refuse become spaces, length is bounded."""
    return None if text is None else _FORBIDDEN.sub(" ", text[:limit])


def script(*statements: str) -> str:
    """Several statements as one string: one round trip."""
    return ";\n".join(statement for statement in statements if statement)


def statements_of(*groups: Sequence[Statement]) -> tuple[Statement, ...]:
    """All statements of these groups; names are unique."""
    found = tuple(statement for group in groups for statement in group)
    if len({statement.name for statement in found}) != len(found):
        raise ValueError("two statements have the same name")
    return found


def argument(value: Value) -> str:
    """`value` as it is written in a statement; what `joined` made has been checked already."""
    return _quoted(value) if isinstance(value, Joined) else literal(value)


def _element(value: Value) -> str:
    if value is None:
        return NULL
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return _instant(value) if isinstance(value, datetime) else str(value)


@lru_cache(maxsize=256)
def _instant(value: datetime) -> str:
    if value.tzinfo is None:
        raise ValueError("a time without zone reached the store")
    return value.isoformat()


def _checked(text: str) -> str:
    if "\x00" in text or "\x1e" in text or "\x1f" in text:
        raise _refused()
    return text


def _quoted(text: str) -> str:
    return "'" + (text.replace("'", "''") if "'" in text else text) + "'"  # to look is four times as fast


def _refused() -> Problem:
    return Problem(Category.MALFORMED, "a text holds a NUL or separator character and cannot be stored")
