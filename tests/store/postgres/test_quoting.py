"""Literals and joined values: the server reads the values that went in."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg2
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg2.extensions import make_dsn, parse_dsn
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.store.postgres import quoting
from ipf.store.postgres.connect import connect
from ipf.store.postgres.quoting import Statement, Value, array, joined, literal, printable, script, statements_of
from tests import postgres

VALUES = (
    (None, "NULL"), (True, "true"), (5, "5"), (-5, " -5"), (1.5, "1.5"), (Decimal("1.00"), "1.00"),
    (Decimal("-Infinity"), "'-Infinity'"), (float("inf"), "'Infinity'::float"), ("it's", "'it''s'"),
    (datetime(2024, 1, 2, tzinfo=UTC), "'2024-01-02T00:00:00+00:00'::timestamptz"),
)  # fmt: skip
REFUSED = ("a\x00", "a\x1fb", "\x1e", "\ud800")
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x1e\x1f")) | st.text("'\"\\%$1;-\n{}E")
TIMES = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.timezones())
NUMBERS = st.decimals(-(10**30), 10**30, places=9, allow_nan=False) | st.sampled_from(
    [Decimal(name) for name in ("NaN", "Infinity", "-Infinity", "1E+400", "-1E-400")]
)
BACKSLASHES = "\\ \\' \\x00 \\\\"
INTEGERS = st.integers(-(2**63), 2**63 - 1)


class QuotingTest(TestCase):
    """Without a server."""

    def test_literals(self) -> None:
        """One of each type."""
        for value, expected in VALUES:
            self.assertEqual(literal(value), expected)
        self.assertRaises(TypeError, literal, ["list"])
        self.assertRaises(ValueError, literal, datetime(2024, 1, 2))
        self.assertRaises(ValueError, joined, [datetime(2024, 1, 2)])

    def test_refused(self) -> None:
        """NUL, lone surrogates and the separators never get into a statement."""
        statement = Statement("s", "text, text", "SELECT 1")
        for text in REFUSED:
            self.assertIs(self.assertRaises(Problem, literal, text).category, Category.MALFORMED)
            self.assertRaises(Problem, lambda text=text: literal(joined(["a", text])))
            literal(printable(text))
        for text in REFUSED[:2]:
            self.assertRaises(Problem, statement.call_texts, text, "b")
        for texts in (["\x1f"], ["a", "b\x1f"]):
            self.assertRaises(Problem, joined, texts)
        self.assertEqual(printable("a\x00\x1e\x1fb" + "x" * 9, 6), "a   bx")
        self.assertIsNone(printable(None))

    @given(st.text("ab'é\U0001f600") | TEXT.filter(lambda text: "\\" not in text))
    @example("''")
    def test_long_texts_are_escaped_in_pieces(self, text: str) -> None:
        """With the same result, wherever a piece ends."""
        self.addCleanup(setattr, quoting, "_PIECE", quoting._PIECE)
        whole = quoting._escaped(text)
        for size in (1, 2, 3, 7):
            quoting._PIECE = size
            self.assertEqual(literal(text), whole)

    def test_what_is_refused_is_refused_in_any_piece(self) -> None:
        self.patch(quoting, "_PIECE", 4)
        for wrong in REFUSED:
            for text in (f"{wrong}abcdefgh", f"abcdefgh{wrong}", f"abcd{wrong}efgh"):
                self.assertIs(self.assertRaises(Problem, literal, text).category, Category.MALFORMED)

    def test_statements(self) -> None:
        """PREPARE, EXECUTE, names and scripts."""
        statement = Statement("f", "text, integer", "SELECT $1, $2")
        self.assertEqual(statement.prepare(), "PREPARE f(text, integer) AS SELECT $1, $2")
        self.assertEqual(statement.call("a'b", 1), "EXECUTE f('a''b',1)")
        self.assertEqual(statement.call(joined(["a'", None, 2]), None), "EXECUTE f('a''\x1f\x1e\x1f2',NULL)")
        self.assertEqual(statement.call(array(["1", "-2"]), array([])), "EXECUTE f('{1,-2}','{}')")
        self.assertEqual(statement.call_texts("it's", "b\x1e"), "EXECUTE f('it''s','b\x1e')")
        self.assertEqual(Statement("g", "", "SELECT 1").call(), "EXECUTE g")
        self.assertEqual(script("", "A", "", "B"), "A;\nB")
        self.assertRaises(ValueError, statements_of, [statement], [statement])


class RoundTripTest(TestCase):
    """Values of every type through `EXECUTE` on a real server, in a session as `connect` sets it up."""

    async def setUp(self) -> None:
        self.connection = psycopg2.connect(await postgres.fresh_url(None))
        self.addCleanup(self.connection.close)
        self.connection.autocommit = True
        self.cursor = self.connection.cursor()
        self.cursor.execute("SET standard_conforming_strings = on; SET client_encoding = UTF8; SET TimeZone = 'UTC'")

    def echo(self, statement: Statement, value: Value) -> Any:
        """The value as the server reads it."""
        self.cursor.execute(statement.call(value))
        ((found,),) = self.cursor.fetchall()
        return bytes(found) if isinstance(found, memoryview) else found

    def check(self, kind: str, values: st.SearchStrategy[Any]) -> None:
        """Send values of an SQL type and compare the answers."""
        statement = Statement(f"echo_{kind.split()[0]}", kind, "SELECT $1")
        self.cursor.execute(statement.prepare())

        @given(values)
        def compare(value: Value) -> None:
            found, expected = self.echo(statement, value), value
            if isinstance(expected, datetime):  # times that a change of the clock repeats never equal others
                expected = expected.astimezone(UTC)
            self.assertTrue(found == expected or (found != found and expected != expected), (found, expected))

        compare()
        self.assertIsNone(self.echo(statement, None))

    def test_texts(self) -> None:
        """Also alone, and joined."""
        self.check("text", TEXT)

        @given(TEXT)
        @example("\\' OR 1=1 --")
        def alone(text: str) -> None:
            self.cursor.execute(f"SELECT {literal(text)}")
            self.assertEqual(self.cursor.fetchall(), [(text,)])

        @given(st.lists(TEXT | st.none()).filter(lambda texts: texts != [""]))
        def together(texts: list[str | None]) -> None:
            self.cursor.execute(f"SELECT string_to_array({literal(joined(texts))}, E'\\x1f', E'\\x1e')")
            self.assertEqual(self.cursor.fetchall(), [(texts,)])

        alone()
        together()

    def test_other_types(self) -> None:
        self.check("bytea", st.binary())
        self.check("boolean", st.booleans())
        self.check("bigint", INTEGERS)
        self.check("numeric", NUMBERS)
        self.check("double precision", st.floats())
        self.check("timestamptz", TIMES)

    def test_arrays(self) -> None:
        statement = Statement("echo_numbers", "bigint[]", "SELECT $1")
        self.cursor.execute(statement.prepare())

        @given(st.lists(INTEGERS))
        def compare(numbers: list[int]) -> None:
            self.assertEqual(self.echo(statement, array(map(str, numbers))), numbers)

        compare()


class SessionTest(TestCase):
    """`connect` makes sure that the session reads literals as they are written."""

    async def test_backslashes(self) -> None:
        """Also where the database says otherwise."""
        url = await postgres.fresh_url(None)
        name = parse_dsn(url)["dbname"]
        first = await connect(url, reactor=reactor)
        await first.run(f"ALTER DATABASE {first.quoted_identifier(name)} SET standard_conforming_strings = off")
        first.close()
        connection = await connect(url, reactor=reactor)
        self.addCleanup(connection.close)
        self.assertEqual(await connection.run(f"SELECT {literal(BACKSLASHES)}"), [(BACKSLASHES,)])

    async def test_encoding(self) -> None:
        """Another encoding is refused."""
        url = make_dsn(await postgres.fresh_url(None), client_encoding="LATIN1")
        refused = await self.assertFailure(Deferred.fromCoroutine(connect(url, reactor=reactor)), StoreUnreachable)
        self.assertIn("client_encoding=UTF8", refused.detail)

    async def test_identifiers(self) -> None:
        connection = await connect(await postgres.fresh_url(None), reactor=reactor)
        self.addCleanup(connection.close)
        for name in ('a"b', "a'b; --", "Ünï"):
            self.assertEqual(
                await connection.run(f"SELECT * FROM (SELECT 1 AS {connection.quoted_identifier(name)}) AS t"), [(1,)]
            )
        self.assertEqual(connection.quoted_identifier('a"b'), '"a""b"')
