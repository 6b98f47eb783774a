"""The text of an OperationOutcome of another server."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.issues import MOST_CHARACTERS, issues_text
from ipf.fhir.model.json import dumps

EXCEPTION = {"severity": "error", "code": "exception", "diagnostics": "HAPI-0389: Failed to call access method"}
WARNING = {"severity": "warning", "code": "informational", "diagnostics": "slow"}

# (issues, text)
TABLE: list[tuple[Any, str]] = [
    ([EXCEPTION], "exception: HAPI-0389: Failed to call access method"),
    (
        [{**EXCEPTION, "expression": ["Patient.name"]}],
        "exception: HAPI-0389: Failed to call access method (at Patient.name)",
    ),
    ([{"code": "invalid", "location": ["/f:Patient/f:name"]}], "invalid (at /f:Patient/f:name)"),
    ([{"code": "invalid", "expression": [], "location": ["a", "b"]}], "invalid (at a, b)"),
    ([{"code": "invalid", "details": {"text": "no such code"}}], "invalid: no such code"),
    ([{"code": "invalid", "details": {"coding": [{"code": "MSG_X", "display": "Not known"}]}}], "invalid: Not known"),
    ([{"code": "invalid", "details": {"coding": [{"code": "MSG_X"}]}}], "invalid: MSG_X"),
    ([WARNING, EXCEPTION], "exception: HAPI-0389: Failed to call access method"),
    ([WARNING], "informational: slow"),
    ([{"severity": "error", "code": "a"}, {"severity": "fatal", "code": "b"}], "b; a"),
    ([{"code": "x", "diagnostics": "two\r\nlines\x00 \u2028end"}], "x: two lines end"),
    ([{"diagnostics": "only text"}], "only text"),
    ([{"code": 5, "diagnostics": {"a": 1}, "expression": [1, None]}], ""),
    ([{"code": "x", "details": "text", "expression": "Patient"}], "x"),
    (["text", None, 5], ""),
    ([], ""),
]


class IssuesTests(TestCase):
    def test_texts(self) -> None:
        for issues, text in TABLE:
            self.assertEqual(issues_text(dumps({"resourceType": "OperationOutcome", "issue": issues})), text, issues)

    def test_other_bodies(self) -> None:
        for body in (
            b"",
            b"<html>",
            b"[]",
            b"5",
            b"null",
            b'"a"',
            b'{"issue": 5}',
            b'{"issue": null}',
            b'{"issue": "a"}',
        ):
            self.assertEqual(issues_text(body), "", body)

    def test_it_is_short(self) -> None:
        many = [{**EXCEPTION, "diagnostics": f"{number} " + "x" * 500} for number in range(50)]
        text = issues_text(dumps({"issue": many}))
        self.assertEqual((len(text), text[-3:]), (MOST_CHARACTERS, "..."))
