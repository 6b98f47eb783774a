"""Expression constraints: their rules, and what is refused with its place."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.fhir.terminology.ecl import DEEPEST, LONGEST, EclError, ecl_rule
from ipf.fhir.terminology.rules import holds
from ipf.ports.fhir.terminology import (
    Above,
    Among,
    AnyRule,
    Below,
    EveryRule,
    Facts,
    HasProperty,
    HasValue,
    NoRule,
    Rule,
)

A, B, C, D, SITE = "100000001", "100000002", "100000003", "100000004", "363698007"


def only(code: str) -> Rule:
    """One concept."""
    return Among(frozenset((code,)))


class Ecl(TestCase):
    """Tables of expressions."""

    def test_selected(self) -> None:
        """Rows of (expression, concepts).  D is below B and C, these are below A; D has B as site; E is inactive."""
        inactive = "100000005"
        facts = [
            Facts(A, ancestors=frozenset({A})),
            Facts(
                B, parents=frozenset({A}), ancestors=frozenset({A, B}), properties=frozenset({("refset", "700043003")})
            ),
            Facts(C, parents=frozenset({A}), ancestors=frozenset({A, C})),
            Facts(D, parents=frozenset({B, C}), ancestors=frozenset({A, B, C, D}), properties=frozenset({(SITE, B)})),
            Facts(inactive, is_active=False, ancestors=frozenset({inactive})),
        ]
        rows = [
            (A, {A}),
            (f" {A} |A, or (B)|", {A}),
            (f"<<{A}", {A, B, C, D}),
            (f"< {A}|A|", {B, C, D}),
            (f"<! {A}", {B, C}),
            (f"<<! {A}", {A, B, C}),
            ("*", {A, B, C, D}),
            ("<< *", {A, B, C, D}),
            ("^ 700043003", {B}),
            (f"<< {B} AND << {C}", {D}),
            (f"<< {B}, << {C}", {D}),
            (f"{A} or {B} OR {C}", {A, B, C}),
            (f"<< {A} MINUS << {B}", {A, C}),
            (f"<< {A} MINUS ({B} OR {D})", {A, C}),
            (f"(<< {B} OR {C}) AND (<< {C})", {C, D}),
            (f"<< ({B} OR {C})", {B, C, D}),
            (f"<< (<< {B} OR {C})", {B, C, D}),
            (f"<< {A}: {SITE} = {B}", {D}),
            (f"<< {A}: {SITE} |site| = *", {D}),
            (f"<< {A}: {{ {SITE} = {B} }}", {D}),
            (f"<< {A}: {SITE} = {C} OR {SITE} = {B}", {D}),
            (f"<< {A}: ({SITE} = {C} OR {SITE} = {B}), {SITE} = *", {D}),
            (f"<< {A}: {SITE} = {C}", set()),
            (f"<< {A} MINUS (<< {A}: {SITE} = *)", {A, B, C}),
            (inactive, {inactive}),
        ]
        for text, expected in rows:
            rule = ecl_rule(text)
            self.assertEqual({one.code for one in facts if holds(rule, one)}, expected, text)

    def test_rules(self) -> None:
        """Rows of (expression, rule) that need more than the facts of one concept."""
        rows: list[tuple[str, Rule]] = [
            (f">> {A}", Above(A)),
            (f"> {A}", EveryRule((Above(A), NoRule(only(A))))),
            (f"* : {SITE} = << {A}", HasValue(SITE, Below(A))),
            (f"* : {SITE} != {A}", HasValue(SITE, NoRule(only(A)))),
            (f"* : {SITE} = ({A} OR << {B})", HasValue(SITE, AnyRule((only(A), Below(B))))),
            (f"* : {SITE} = {A}", HasProperty(SITE, frozenset((A,)))),
        ]
        for text, expected in rows:
            rule = ecl_rule(text)
            part = rule.rules[1] if isinstance(rule, EveryRule) and text.startswith("*") else rule
            self.assertEqual(part, expected, text)

    def test_refused(self) -> None:
        """Rows of (expression, the place and the reason)."""
        rows = [
            ("", "character 1: expected a concept id"),
            ("   ", "expected a concept id"),
            ("<<", "character 3: expected a concept id"),
            ("404", "character 1: expected a concept id, *, ^ or (, found 4"),
            (f"{A} {B}", "character 11: expected AND, OR, MINUS or the end"),
            (f"{A} |A", "found |"),
            (f"{A} AND {B} OR {C}", "different operators need brackets"),
            (f"{A} MINUS {B} MINUS {C}", "expected AND, OR, MINUS or the end, found MINUS"),
            (f"({A}", "expected ), found the end"),
            (f"{A})", "found )"),
            ("^ (x)", "the id of a reference set"),
            (f"< (<< {A} AND {B})", "character 3: < is supported on concepts and on lists of concepts"),
            ("< *", "is supported on concepts"),
            (f"* : {SITE}", "expected =, found the end"),
            (f"* : [1..3] {SITE} = *", "character 5: cardinalities are not supported"),
            (f"* : R {SITE} = {A}", "reversed attributes"),
            (f"* : {{ {SITE} = {A}, {SITE} = {B} }}", "without their groups"),
            (f"* : {SITE} = #5", "numbers as values"),
            (f'* : {SITE} = "x"', "texts as values"),
            (f"* : 116680003 = {A}", "use < and <<"),
            (f"* : << {SITE} = {A}", "the concept id of an attribute"),
            (f"<< {A} . {SITE}", "dotted attributes"),
            (f'<< {A} {{{{ term = "x" }}}}', "filters are not supported"),
            ("(" * (DEEPEST + 1) + A + ")" * (DEEPEST + 1), "brackets are more than"),
            ("*" * (LONGEST + 1), "at most 10000 characters"),
            ("(" * 2000, "at most 1000 parts"),
        ]
        for text, reason in rows:
            with self.assertRaises(EclError, msg=text) as refused:
                ecl_rule(text)
            self.assertIn(reason, str(refused.exception), text)
