"""What tests of searches share: a world with WORLD in it, and reading all pages of an answer."""

from __future__ import annotations

from ipf.fhir.model.json import loads
from ipf.ports import Answer
from tests.contracts.search import WORLD
from tests.rest.world import BASE, Suite, World


def entries(answer: Answer, mode: str = "match") -> list[str]:
    """`Type/id` of the entries of this mode."""
    bundle = loads(answer.body)
    assert bundle["resourceType"] == "Bundle", bundle
    found = [entry["resource"] for entry in bundle.get("entry", ()) if entry["search"]["mode"] == mode]
    return [f"{one['resourceType']}/{one['id']}" if mode != "outcome" else one["resourceType"] for one in found]


def flat(pages: list[list[str]]) -> list[str]:
    """All pages in one."""
    return [one for page in pages for one in page]


def link(answer: Answer, relation: str) -> str | None:
    """A link of the page, without the server's address."""
    links = {one["relation"]: one["url"] for one in loads(answer.body)["link"]}
    found: str | None = links.get(relation)
    return None if found is None else found.removeprefix(BASE).removeprefix("/")


class PagesSuite(Suite):
    """Fills the world, and reads pages."""

    world: World

    async def fill(self) -> None:
        """Store WORLD, by id."""
        for resource in WORLD:
            answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)
            self.assertEqual(answer.status, 201, answer.body)
            self.world.pass_time()

    async def pages(self, url: str) -> list[list[str]]:
        """Matches page by page, following the links; totals stay the same."""
        found, totals = [], set()
        following: str | None = url
        while following is not None:
            answer = await self.world.send("GET", following)
            self.assertEqual(answer.status, 200, answer.body)
            found.append(entries(answer))
            totals.add(loads(answer.body).get("total"))
            following = link(answer, "next")
        await self.check_way_back(answer, found)
        self.assertEqual(len(totals), 1, totals)
        return found

    async def check_way_back(self, last: Answer, pages: list[list[str]]) -> None:
        """`previous` leads through the same matches to the first page, which `first` of every page has."""
        answer, found = last, list(pages[-1])
        while (previous := link(answer, "previous")) is not None:
            answer = await self.world.send("GET", previous)
            found = entries(answer) + found
            self.assertEqual(loads(answer.body).get("total"), loads(last.body).get("total"))
        self.assertEqual(found, flat(pages))
        first = link(last, "first")
        self.assertEqual(first is None, len(pages) == 1)
        if first is not None:
            self.assertEqual(entries(await self.world.send("GET", first)), pages[0])
