"""The worst compositions end at a budget: counted in steps, not in time.

The generator makes value sets of thousands of parts, and sets of value sets that include each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.budget import Budget
from ipf.fhir.terminology import Terminology, valueset
from ipf.fhir.terminology.valueset import Membership, facts_of

Json = dict[str, Any]
CODES, OPEN = "http://x.test/codes", "urn:ietf:bcp:13"
SIZE, PARTS, DEEP = 2000, 5000, 45
SYSTEM: Json = {
    "resourceType": "CodeSystem", "url": CODES, "content": "complete",
    "concept": [{"code": f"c{number}", "display": f"Code {number}"} for number in range(SIZE)],
}  # fmt: skip


def value_set(include: list[Json], exclude: list[Json] | None = None) -> Json:
    return {"resourceType": "ValueSet", "compose": {"include": include, **({"exclude": exclude} if exclude else {})}}


def one_of(name: str, count: int) -> list[Json]:
    return [{"system": name, "concept": [{"code": f"c{number}"}]} for number in range(count)]


def layers(width: int, leaf: Json, exclude: list[Json] | None = None) -> dict[str, Json]:
    """Value sets in layers; each includes the next one `width` times."""
    found = {f"urn:l{n}": value_set([{"valueSet": [f"urn:l{n + 1}"]}] * width, exclude) for n in range(DEEP)}
    return {**found, f"urn:l{DEEP}": leaf}


ALL: Json = {"system": CODES}
FILTER: Json = {"system": CODES, "filter": [{"property": "code", "op": "regex", "value": "c.*9"}]}
OTHER: dict[str, Json] = {"urn:all": value_set([ALL]), "urn:open": value_set([{"system": OPEN}])}
REFUSED: dict[str, tuple[Json, dict[str, Json]]] = {
    "the system again and again": (value_set([ALL] * PARTS), {}),
    "filters": (value_set([FILTER] * PARTS), {}),
    "value sets": (value_set([{"valueSet": ["urn:all"]}] * PARTS), OTHER),
    "intersections": (value_set([{"valueSet": ["urn:all"] * PARTS}]), OTHER),
    "excluded value sets": (value_set([ALL], [{"valueSet": ["urn:all"]}] * PARTS), OTHER),
    "layers of codes": (value_set([{"valueSet": ["urn:l0"]}]), layers(40, OTHER["urn:all"])),
    "layers of an open system": (value_set([{"valueSet": ["urn:l0"]}]), layers(3, OTHER["urn:open"])),
    "layers with exclusions": (
        value_set([{"valueSet": ["urn:l0"]}]), {**OTHER, **layers(2, OTHER["urn:open"], [{"valueSet": ["urn:open"]}])},
    ),
}  # fmt: skip
ACCEPTED: dict[str, tuple[Json, dict[str, Json]]] = {
    "includes of one code": (value_set(one_of(CODES, PARTS)), {}),
    "an open system": (value_set([{"system": OPEN}] * PARTS), {}),
    "an open system within itself": (value_set([{"system": OPEN, "valueSet": ["urn:open"] * 2000}]), OTHER),
    "exclusions of one code": (value_set([ALL], one_of(CODES, PARTS)), {}),
    "exclusions of an open system": (value_set([{"system": OPEN}], one_of(OPEN, PARTS)), {}),
    "systems that nobody has": (value_set([{"system": f"urn:x{number}"} for number in range(PARTS)]), {}),
    "value sets that include each other": (
        value_set([{"valueSet": ["urn:r0"]}]),
        {f"urn:r{n}": value_set([{"valueSet": [f"urn:r{m}"]} for m in range(30) if m != n]) for n in range(30)},
    ),
}


class BudgetTests(TestCase):
    def setUp(self) -> None:
        self.budgets: list[Budget] = []

        def budget() -> Budget:
            made = Budget(valueset.MOST_STEPS, "its expansion")
            self.budgets.append(made)
            return made

        self.patch(valueset, "budget", budget)

    def members(self, composed: Json, others: dict[str, Json]) -> Membership:
        def find(kind: str, url: str) -> Json | None:
            return others.get(url) if kind == "ValueSet" else SYSTEM if url == CODES else None

        return Terminology(find).expansion(facts_of(composed))

    def cases(self, some: dict[str, tuple[Json, dict[str, Json]]]) -> Iterator[tuple[str, Membership]]:
        for name, (composed, others) in some.items():
            self.budgets.clear()
            yield name, self.members(composed, others)
            self.assertEqual(len(self.budgets), 1, f"{name}: one budget for all that it includes")

    def test_what_is_refused(self) -> None:
        for name, found in self.cases(REFUSED):
            self.assertTrue(found.is_costly, name)
            self.assertEqual((found.codes, found.unknown), ({}, {""}), name)
            self.assertIn("more than", *found.errors)
            self.assertIsNone(found.contains(CODES, "c1"), "it is not decided")

    def test_what_is_accepted(self) -> None:
        for name, found in self.cases(ACCEPTED):
            self.assertFalse(found.is_costly, (name, found.errors))
            self.assertLessEqual(found.parts, valueset.MOST_PARTS, name)
            found.contains(OPEN, "text/plain")
            found.contains(None, "c1")

    def test_many_parts_mean_the_same_as_one(self) -> None:
        for some, one in (
            (
                value_set(one_of(CODES, 1500)),
                value_set([{"system": CODES, "concept": [{"code": f"c{n}"} for n in range(1500)]}]),
            ),
            (
                value_set([ALL], one_of(CODES, 1500)),
                value_set([ALL], [{"system": CODES, "concept": [{"code": f"c{n}"} for n in range(1500)]}]),
            ),
        ):
            self.assertEqual(self.members(some, {}).codes, self.members(one, {}).codes)
        found = self.members(*ACCEPTED["exclusions of an open system"])
        self.assertEqual([found.contains(OPEN, code) for code in ("text/plain", "c1", "?")], [True, False, False])
