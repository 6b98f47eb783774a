"""Literals and joined values: what goes in is what PostgreSQL reads."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.store.postgres.quoting import Statement, array, identifier, joined, literal, printable, script, statements_of
from tests import postgres

VALUES = (
    (None, "NULL"), (True, "true"), (-5, "(-5)"), (1.5, "(1.5)"), (Decimal("1.00"), "(1.00)"),
    (Decimal("-Infinity"), "'-Infinity'"), (float("inf"), "'inf'"), ("it's \\", "'it''s \\'"),
    (b"\x00\xff", "'\\x00ff'"),
    (datetime(2024, 1, 2, tzinfo=UTC), "'2024-01-02T00:00:00+00:00'"),
)  # fmt: skip


class QuotingTest(TestCase):
    """Pure."""

    def test_literals(self) -> None:
        """One of each type."""
        for value, expected in VALUES:
            self.assertEqual(literal(value), expected)
        self.assertRaises(TypeError, literal, ["list"])
        self.assertRaises(ValueError, literal, datetime(2024, 1, 2))

    def test_refused(self) -> None:
        """NUL and the separators never get into a statement."""
        for text in ("a\x00", "a\x1fb", "\x1e"):
            self.assertIs(self.assertRaises(Problem, literal, text).category, Category.MALFORMED)
        for texts in (["a\x00"], ["a\x1fb"], ["\x1e"], ["a", "b\x1f"], ["\x1f"]):
            self.assertRaises(Problem, joined, texts)
        self.assertEqual(printable("a\x00\x1e\x1fb" + "x" * 9, 6), "a   bx")
        self.assertIsNone(printable(None))

    def test_texts_together(self) -> None:
        """As one by one, and held to the same rule; a record separator is no separator here."""
        statement = Statement("s", "text, text", "SELECT 1")
        self.assertEqual(statement.call_texts("it's", "b\x1e"), "EXECUTE s('it''s','b\x1e')")
        self.assertEqual(statement.call_texts("", ""), "EXECUTE s('','')")
        for text in ("a\x1fb", "\x00"):
            self.assertRaises(Problem, statement.call_texts, text, "b")

    def test_statements(self) -> None:
        """PREPARE, EXECUTE, names and scripts."""
        statement = Statement("f", "text, integer", "SELECT $1, $2")
        self.assertEqual(statement.prepare(), "PREPARE f(text, integer) AS SELECT $1, $2")
        self.assertEqual(statement.call("a'b", 1), "EXECUTE f('a''b',(1))")
        self.assertEqual(statement.call(joined(["a'", None, 2]), None), "EXECUTE f('a''\x1f\x1e\x1f2',NULL)")
        self.assertEqual(statement.call(array(["1", "-2"]), array([])), "EXECUTE f('{1,-2}','{}')")
        self.assertEqual(Statement("g", "", "SELECT 1").call(), "EXECUTE g")
        self.assertEqual(identifier('a"b'), '"a""b"')
        self.assertEqual(script("", "A", "", "B"), "A;\nB")
        self.assertRaises(ValueError, statements_of, [statement], [statement])

    async def test_round_trip(self) -> None:
        """The server reads the same values."""
        database = await postgres.database(self, "ipf", size=1)
        for text in ("it's", "\\x00", "$1 %s {} \\' --", "ünï \U0001f600", "", "\r\n\t\x01"):
            self.assertEqual(await database.one(f"SELECT {literal(text)}"), (text,))
            both = f"SELECT string_to_array({quoted([text, text])}, E'\\x1f')"
            self.assertEqual(await database.one(both), ([text, text],))


def quoted(values: list[str]) -> str:
    """A joined text as a literal."""
    return Statement("x", "text", "").call(joined(values)).removeprefix("EXECUTE x(").removesuffix(")")
