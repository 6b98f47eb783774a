"""Searches whose parameters multiply end at a budget, which is counted over the whole search."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.search.language import query, terms
from ipf.fhir.search.language.query import parse_query
from tests.rest.world import World

Pairs = list[tuple[str, str]]


def values(count: int) -> str:
    return ",".join(f"v{number}" for number in range(count))


CHAIN = ("target.subject.name", "a")
FILTER = ("_filter", " or ".join(["target.subject.name eq a"] * 5))
REFUSED: dict[str, tuple[str, Pairs]] = {
    "chains over all types": ("Provenance", [CHAIN] * 190),
    "values of a chain over all types": ("Provenance", [("target.subject.name", values(500))]),
    "chains and filters": ("Provenance", [CHAIN] * 10 + [FILTER] * 10),
    "comparisons of many filters": ("Observation", [("_filter", " or ".join(["code eq a"] * 140))] * 20),
    "reverse chains": ("Patient", [("_has:Provenance:target:target.subject.name", values(50))] * 4),
}  # fmt: skip
ACCEPTED: dict[str, tuple[str, Pairs]] = {
    "five thousand values": ("Observation", [("code", values(4999))]),
    "five thousand values of a chain": ("Observation", [("subject:Patient.identifier", values(4999))]),
    "two hundred parameters": ("Observation", [("code:not", values(25))] * 199),
    "a chain over all types": ("Provenance", [CHAIN]),
    "a long chain": ("Observation", [(f"{'derived-from.' * 8}status", "final")]),
    "one filter": ("Observation", [("_filter", " or ".join(["code eq a"] * 140))]),
}


class SearchBudgetTests(TestCase):
    def spent(self, resource_type: str, pairs: Pairs) -> int:
        """The steps of a search."""
        made = []

        def budget() -> terms.Budget:
            made.append(terms.Budget(10**9, "the search"))
            return made[-1]

        self.patch(query, "search_budget", budget)
        parser = query._QueryParser(resource_type, True, None, left=budget())
        for name, value in pairs:
            parser.add(name, value)
        return sum(one.steps - one.steps_left for one in made)

    def test_what_is_refused(self) -> None:
        for name, (resource_type, pairs) in REFUSED.items():
            problem = self.assertRaises(Problem, parse_query, resource_type, pairs)
            self.assertIs(problem.category, Category.COSTLY, name)
            self.assertIn("the search parameters takes more than 12000 steps", problem.text)

    def test_what_is_accepted(self) -> None:
        for name, (resource_type, pairs) in ACCEPTED.items():
            self.assertTrue(parse_query(resource_type, pairs).terms, name)
            self.assertLessEqual(self.spent(resource_type, pairs), terms.MOST_STEPS, name)

    def test_every_parameter_counts(self) -> None:
        """Twice the parameters take twice the steps, of every form."""
        for name, (resource_type, pairs) in {**REFUSED, **ACCEPTED}.items():
            one = self.spent(resource_type, pairs[:1])
            self.assertEqual(self.spent(resource_type, pairs[:1] * 2), 2 * one, name)
            self.assertGreater(one, 0, name)

    async def test_the_answer(self) -> None:
        for method, url in (
            ("GET", "Provenance?" + "&".join(["target.subject.name=a"] * 190)),
            ("DELETE", "Provenance?" + "&".join(["target.subject.name=a"] * 190)),
        ):
            answer = await World().send(method, url)
            self.assertEqual((answer.status, b"too-costly" in answer.body), (400, True), answer.body)
