"""The search cases of the reference folder, over the whole server: order, pages, totals and refusals included."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from ipf.fhir.model.json import loads
from tests.reference import REFERENCE, needs_reference
from tests.rest.interactions.pages import entries, link
from tests.rest.world import OnMemory, OnPostgres, Suite, World

CASES = REFERENCE / "search/search_cases.json"
# An ancestor of a fragment, and `:below=http` for every URL: another reading of what a URL's hierarchy is.
LEFT_OUT = {"vendor"}


class CaseSuite(Suite):
    """All suites of cases."""

    world: World

    async def test_cases(self) -> None:
        """Each suite on its own fixture, separated by a tag."""
        run = 0
        for number, suite in enumerate(json.loads(CASES.read_text())["suites"]):
            text = json.dumps(suite).replace("${tag}", f"tag-{number}")
            run += await self._suite(json.loads(text))
        self.assertEqual(run, 99)

    async def _suite(self, suite: dict[str, Any]) -> int:
        labels = {}
        for one in suite["fixture"]:
            answer = await self.world.send("POST", one["resource"]["resourceType"], one["resource"])
            self.assertEqual(answer.status, 201, answer.body)
            labels[f"{one['resource']['resourceType']}/{loads(answer.body)['id']}"] = one["label"]
            self.world.pass_time()
        cases = [case for case in suite["cases"] if not LEFT_OUT & set(case["flags"])]
        for case in cases:
            await self._case(case, labels)
        return len(cases)

    async def _case(self, case: dict[str, Any], labels: dict[str, str]) -> None:
        pairs = [part.partition("=") for part in case["query"].split("&")]
        query = "&".join(f"{name}={quote(value)}" for name, _, value in pairs)
        size = next((int(flag.partition(":")[2]) for flag in case["flags"] if flag.startswith("all_pages")), None)
        headers = {name.lower(): value for name, value in case.get("headers", {}).items()}
        following: str | None = f"{case['type']}?{query}"
        if case.get("method") == "POST_SEARCH":
            headers["content_type"] = "application/x-www-form-urlencoded"
            answer = await self.world.send("POST", f"{case['type']}/_search", query.encode(), **headers)
            found, following = entries(answer), None
        else:
            found = []
        while following is not None:
            answer = await self.world.send("GET", following, **headers)
            if "expect_status" in case:
                self.assertIn(answer.status, case["expect_status"], case["id"])
                return
            self.assertEqual(answer.status, 200, (case["id"], answer.body))
            if "expect_total" in case:
                self.assertEqual(loads(answer.body)["total"], case["expect_total"], case["id"])
                return
            found += entries(answer)
            self.assertLessEqual(len(entries(answer)), size or 1000, case["id"])
            following = link(answer, "next")
        answered = [labels[one] for one in found]
        if "ordered" not in case["flags"]:
            answered, case["expect"] = sorted(answered), sorted(case["expect"])
        self.assertEqual(answered, case["expect"], case["id"])


@needs_reference
class CaseTests(CaseSuite, OnMemory):
    """In memory."""


@needs_reference
class CaseOnPostgresTests(CaseSuite, OnPostgres):
    """SQL finds."""
