"""SQL text with values in it: the one place where a value becomes part of a statement.

psycopg2 binds values on the client, so a value is always written into the statement's text.  psycopg2 quotes every
value (`psycopg2.extensions.adapt`; texts by libpq's own escaping).  Every other module of the store passes values to
`Statement.call` or `literal` and never formats them itself.

libpq doubles backslashes until a connection has reported `standard_conforming_strings=on`, which `connect` sets on each
connection.  A text with backslashes is refused as long as it would be doubled.

A set of values travels as one text, joined, for `string_to_array` or an array type: adapting Python lists costs six to
eight times as much.  The two separators of `joined` are refused in every text value, so one value cannot become two.

Sources: https://www.psycopg.org/docs/extensions.html#sql-adaptation-protocol-objects,
https://www.postgresql.org/docs/current/libpq-exec.html#LIBPQ-EXEC-ESCAPE-STRING
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from psycopg2.extensions import QuotedString, adapt

from ipf.errors import Category, Problem, StoreUnreachable

Value = str | bytes | int | float | bool | Decimal | datetime | None

SEPARATOR = "\x1f"
NULL = "\x1e"
_PIECE = 256 * 1024  # characters that are escaped at once
_FORBIDDEN = re.compile("[\x00\x1e\x1f\ud800-\udfff]")


class Joined(str):
    """A text that `joined` or `array` made: it may hold the separators."""

    __slots__ = ()


def literal(value: Value) -> str:
    """`value` as an SQL literal.

    Problem MALFORMED for a text with NUL, a lone surrogate or one of the separators; StoreUnreachable for a text with a
    backslash before the first connection; TypeError and ValueError for values that must not reach the store.
    """
    if isinstance(value, str):
        if type(value) is not Joined and (SEPARATOR in value or NULL in value):
            raise _refused()
        return _quoted(value)
    if isinstance(value, bytes):
        return _quoted("\\x" + value.hex())
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError("a time without zone reached the store")
    if isinstance(value, Decimal) and not value.is_finite():
        return _quoted(str(value))  # psycopg2 writes every one of them as NaN
    if value is None or isinstance(value, int | float | Decimal | datetime):
        quoted: bytes = adapt(value).getquoted()
        return quoted.decode()
    raise TypeError(f"no SQL literal for {type(value).__name__}")


def joined(values: Iterable[Value]) -> Joined:
    """Many values as one text for `string_to_array(..., E'\\x1f', E'\\x1e')`; None stays NULL.

    A single empty text becomes no element at all: the statement writes `coalesce(column, '')` where that can happen.
    """
    items = list(values)
    try:
        text = SEPARATOR.join(items)  # type: ignore[arg-type]  # most columns are texts
    except TypeError:
        text = SEPARATOR.join([item if type(item) is str else _element(item) for item in items])
    if text.count(SEPARATOR) != max(len(items) - 1, 0) or (NULL in text and NULL in items):
        raise _refused()
    return Joined(text)


def array(texts: Iterable[str]) -> Joined:
    """Numbers or booleans, as PostgreSQL writes them, as the text of an array of their type."""
    return Joined("{" + ",".join(texts) + "}")


def bigints(numbers: Iterable[int]) -> str:
    """The SQL of an array of `bigint`."""
    return f"{literal(array(map(str, numbers)))}::bigint[]"


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
        arguments = f"({','.join([literal(value) for value in values])})" if values else ""
        return f"EXECUTE {self.name}{arguments}"

    def call_texts(self, *texts: str) -> str:
        """As `call`, for texts that may hold the record separator; Problem MALFORMED for NUL and unit separators."""
        if SEPARATOR in "".join(texts):
            raise _refused()
        return f"EXECUTE {self.name}({','.join([_quoted(text) for text in texts])})"


def printable(text: str | None, limit: int = 4000) -> str | None:
    """Free text made storable: characters that `literal` refuses become spaces, and the length is bounded."""
    return None if text is None else _FORBIDDEN.sub(" ", text[:limit])


def following(prefix: str) -> str | None:
    """The least text that is greater than all that begin with `prefix`; None when there is none."""
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1])
        if point < 0x10FFFF:
            greater = 0xE000 if point == 0xD7FF else _storable(point + 1)
            return prefix[: end - 1] + chr(greater)
    return None


def _storable(point: int) -> int:
    """`point`, or the next one that a literal may hold."""
    return 0x20 if point in (0x1E, 0x1F) else point


def script(*statements: str) -> str:
    """Several statements as one string: one round trip."""
    return ";\n".join(statement for statement in statements if statement)


def statements_of(*groups: Sequence[Statement]) -> tuple[Statement, ...]:
    """All statements of these groups; names are unique."""
    found = tuple(statement for group in groups for statement in group)
    if len({statement.name for statement in found}) != len(found):
        raise ValueError("two statements have the same name")
    return found


def _element(value: Value) -> str:
    if value is None:
        return NULL
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a time without zone reached the store")
        return value.isoformat()
    return str(value)


def _quoted(text: str) -> str:
    """In pieces: libpq escapes with the interpreter lock, and a document of 60 MB would take a second of it."""
    if len(text) <= _PIECE:
        return _escaped(text)
    pieces = [_escaped(text[start : start + _PIECE]) for start in range(0, len(text), _PIECE)]
    if not all(one[0] == one[-1] == "'" for one in pieces):  # in another form, such as E'...', they are not one literal
        raise StoreUnreachable("no connection has been made yet")
    return f"'{''.join([one[1:-1] for one in pieces])}'"


def _escaped(text: str) -> str:
    adapted = QuotedString(text)
    adapted.encoding = "utf8"
    try:
        quoted: str = adapted.getquoted().decode()
    except ValueError as refused:  # NUL, or a lone surrogate
        raise _refused() from refused
    if "\\" in text and quoted.count("\\") != text.count("\\"):
        raise StoreUnreachable("no connection has been made yet")
    return quoted


def _refused() -> Problem:
    text = "a text holds a NUL character, a separator character or a lone surrogate and cannot be stored"
    return Problem(Category.MALFORMED, text)
