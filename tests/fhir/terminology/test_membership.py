"""Expansion of value sets: includes, filters, imports, exclusions, undecidable membership."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.codesystem import CodeSystem, facts_of
from ipf.fhir.terminology.translate import translate
from ipf.fhir.terminology.valueset import MOST_TESTS

CS, SNOMED, VS = "http://x.test/cs", "http://snomed.info/sct", "http://hl7.org/fhir/ValueSet/"
SYSTEM = {
    "resourceType": "CodeSystem",
    "url": CS,
    "content": "complete",
    "concept": [
        {"code": "a", "concept": [{"code": "a1", "concept": [{"code": "a11"}]}, {"code": "a2"}]},
        {"code": "b", "property": [{"code": "kind", "valueCode": "odd"}]},
    ],
}


def terminology(**sets: Any) -> Terminology:
    """A Terminology with the code system, and value sets by the last part of their url."""

    def find(kind: str, url: str) -> Any:
        if kind == "CodeSystem":
            return SYSTEM if url == CS else None
        compose = sets.get(url.rpartition("/")[2])
        return None if compose is None else {"resourceType": "ValueSet", "url": url, "compose": compose}

    return Terminology(find)


def include(*filters: tuple[str, str, str], system: str = CS, **more: Any) -> dict[str, Any]:
    """One include."""
    rows = [{"property": name, "op": op, "value": value} for name, op, value in filters]
    return {"system": system, **({"filter": rows} if rows else {}), **more}


class Membership(TestCase):
    """Rows of (composition, codes of the system that are in it)."""

    def test_compositions(self) -> None:
        every = {"a", "a1", "a11", "a2", "b"}
        rows: list[tuple[dict[str, Any], set[str]]] = [
            ({"include": [include()]}, every),
            ({"include": [include(concept=[{"code": "b"}])]}, {"b"}),
            ({"include": [include(("concept", "is-a", "a1"))]}, {"a1", "a11"}),
            ({"include": [include(("concept", "descendent-of", "a"))]}, {"a1", "a11", "a2"}),
            ({"include": [include(("concept", "is-not-a", "a1"))]}, {"a", "a2", "b"}),
            ({"include": [include(("parent", "=", "a"))]}, {"a1", "a2"}),
            ({"include": [include(("kind", "=", "odd"))]}, {"b"}),
            ({"include": [include(("code", "regex", "a.?"))]}, {"a", "a1", "a2"}),
            ({"include": [include(("concept", "is-a", "a"), ("code", "regex", ".."))]}, {"a1", "a2"}),
            ({"include": [include()], "exclude": [include(("concept", "is-a", "a"))]}, {"b"}),
            ({"include": [{"valueSet": ["http://x.test/other"]}]}, {"a1", "b"}),
            ({"include": [include(("concept", "is-a", "a"), valueSet=["http://x.test/other"])]}, {"a1"}),
        ]
        other = {"include": [include(concept=[{"code": "a1"}, {"code": "b"}])]}
        for compose, expected in rows:
            known = terminology(it=compose, other=other)
            found = {code for code in every if known.contains("http://x.test/it", CS, code)}
            self.assertEqual(found, expected, compose)

    def test_what_is_missing_is_named(self) -> None:
        """A filter without a value is no filter for everything; the members cannot be told."""
        rows: list[tuple[dict[str, Any], str]] = [
            ({"filter": [{"property": "code", "op": "="}]}, "ValueSet.compose.include[1].filter[0] has no value"),
            ({"filter": [{"value": "a"}]}, "ValueSet.compose.include[1].filter[0] has no property and no op"),
            ({"concept": [{"code": "a"}, {}]}, "ValueSet.compose.include[1].concept[1] has no code"),
        ]
        for more, expected in rows:
            known = terminology(it={"include": [include(concept=[{"code": "b"}]), {"system": CS, **more}]})
            members = known.members("http://x.test/it")
            assert members is not None
            self.assertEqual(members.errors, {expected})
            self.assertEqual([members.contains(CS, code) for code in ("b", "a")], [True, None])

    def test_code_systems_in_chains_and_circles(self) -> None:
        """Each concept is visited once: a chain of 20,000 is no 200,000,000 steps."""
        chain = [{"code": str(n), "property": [{"code": "parent", "valueCode": str(n - 1)}]} for n in range(20_000)]
        chain[0]["property"] = [{"code": "parent", "valueCode": "19999"}]
        system = CodeSystem(CS, facts_of({"content": "complete", "concept": [*chain, {"display": "no code"}]}))
        self.assertEqual(len(system.below("7")), 20_000)
        self.assertEqual(len(system.above("7")), 20_000)

    def test_filters_that_cost_too_much(self) -> None:
        rows = [("code", "regex", "([A-Za-z]+)+0")] * (MOST_TESTS // 5 + 1)
        members = terminology(it={"include": [include(*rows)]}).members("http://x.test/it")
        assert members is not None
        self.assertEqual(members.errors, {"its filters would test more than 1000000 codes"})

    def test_value_sets_in_chains(self) -> None:
        """A chain deeper than DEEPEST cannot be decided; what is refused in it is found by itself."""
        many: dict[str, Any] = {f"v{n}": {"include": [{"valueSet": [f"http://x.test/v{n + 1}"]}]} for n in range(2000)}
        known = terminology(**many, v2000={"include": [include()]})
        self.assertIsNone(known.contains("http://x.test/v0", CS, "a"))
        members = known.members("http://x.test/v0")
        assert members is not None
        self.assertEqual(members.errors, {"value sets include each other more than 50 deep"})
        self.assertTrue(known.contains("http://x.test/v1990", CS, "a"))

    def test_undecidable_membership(self) -> None:
        known = terminology(
            clinical={"include": [include(("concept", "is-a", "1"), system=SNOMED), include()]},
            itself={"include": [{"valueSet": ["http://x.test/itself"]}]},
            strange={"include": [include(("kind", "generalizes", "x"))]},
        )
        rows = [
            ("clinical", SNOMED, "2", None),
            ("clinical", CS, "a", True),
            ("clinical", CS, "z", False),
            ("clinical", None, "z", None),
            ("itself", CS, "a", None),
            ("strange", CS, "a", None),
            ("missing", CS, "a", None),
        ]
        for name, system, code, expected in rows:
            self.assertIs(known.contains(f"http://x.test/{name}", system, code), expected, (name, code))

    def test_invalid_patterns_are_named(self) -> None:
        rows = {
            "(a+": "missing )",
            "(?=a)a": "look-ahead",
            "a{1000}{1000}": "repetition",
            "a" * 1001: "1000 characters",
        }
        for pattern, reason in rows.items():
            known = terminology(it={"include": [include(("code", "regex", pattern))]})
            members = known.members("http://x.test/it")
            assert members is not None
            self.assertIsNone(members.contains(CS, "a"))
            [error] = members.errors
            self.assertIn(reason, error)
            self.assertIn(CS, error)

    def test_open_systems(self) -> None:
        known = Terminology()
        rows = [
            ("mimetypes", "text/plain; charset=utf-8", True),
            ("mimetypes", "text", False),
            ("currencies", "EUR", True),
            ("currencies", "ZZZ", False),
            ("timezones", "Europe/Vienna", True),
            ("timezones", "Europe/Nowhere", False),
            ("all-languages", "de-CH", True),
            ("all-languages", "de_CH", False),
            ("ucum-units", "mg/dL", True),
            ("ucum-units", "m g", False),
            ("ucum-units", "mmHg", False),
            ("all-distance-units", "[in_i]", True),
            ("all-distance-units", "kg", False),
            ("all-time-units", "wk", True),
        ]
        for name, code, expected in rows:
            self.assertIs(known.contains(VS + name, None, code), expected, (name, code))

    def test_codes_of_systems(self) -> None:
        known = terminology()
        self.assertIs(known.has(CS, "a11"), True)
        self.assertIs(known.has(CS, "z"), False)
        self.assertIsNone(known.has(SNOMED, "1"))
        self.assertEqual(known.system(CS).above("a11"), {"a1", "a"})  # type: ignore[union-attr]
        self.assertIs(known.subsumes(CS, "a", "a11"), True)
        self.assertIs(known.subsumes(CS, "b", "a11"), False)


class Translation(TestCase):
    """ConceptMaps."""

    def test_rows(self) -> None:
        element = {"code": "a", "target": [{"code": "x", "equivalence": "wider"}, {"equivalence": "unmatched"}]}
        group = {"source": CS, "target": "t", "element": [element], "unmapped": {"mode": "fixed", "code": "other"}}
        maps = [{"url": "m", "group": [group]}]
        rows: list[tuple[tuple[Any, ...], list[tuple[str, str]]]] = [
            ((CS, "a"), [("x", "wider"), ("", "unmatched")]),
            ((None, "a", "t"), [("x", "wider"), ("", "unmatched")]),
            ((CS, "a", "u"), []),
            (("other", "a"), []),
            ((CS, "b"), [("other", "inexact")]),
            (("t", "x", None, True), [("a", "narrower")]),
        ]
        for query, expected in rows:
            self.assertEqual([(one.code, one.equivalence) for one in translate(maps, *query)], expected, query)
