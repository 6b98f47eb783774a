"""Many orders and results under one number: each is found again (a search for a number reads only the newest ones)."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import MATCH_LIMIT, Json
from ipf.ports.identity import IdentityConflict
from ipf.rest.write import candidates
from ipf.rest.write.identity_plan import IdentityPlan
from tests.flows.omitted_fields import Feed, Lines
from tests.rest.world import OnMemory, OnPostgres, Suite, World

MANY = MATCH_LIMIT + 10
HEAD = "MSH|^~\\&|LAB|H|||20260101||{}|1|P|2.5.1\rPID|1||{}^^^H^MR||A^B||19800101|M\r"
RESULT = "OBX|{0}|NM|{2}{0}^Test {2}{0}^L||{1}|mg|||||F||||||||||NUM1"


def orders() -> Lines:
    """Orders of one placer's and one filler's number."""
    found = [f"ORC|NW|P1|F1\rOBR|{n}|P1|F1|C{n}^Test {n}^L|||20260101" for n in range(MANY)]
    return _lines(HEAD.format("ORM^O01^ORM_O01", "P1") + "\r".join(found))


def results(person: str = "P1", value: int = 1, places: Any = range(MANY), test: str = "X") -> Lines:
    """Results of one order with one number of their own."""
    found = [RESULT.format(n, value, test) for n in places]
    return _lines(HEAD.format("ORU^R01^ORU_R01", person) + "OBR|1|P|F|C^T^L|||20260101\r" + "\r".join(found))


def vaccinations() -> Lines:
    """Vaccines under one order number."""
    found = [f"ORC|RE|P1|F1\rRXA|0|1|2026||V{n}^Vaccine {n}^CVX|1|mL" for n in range(MANY)]
    return _lines(HEAD.format("VXU^V04^VXU_V04", "P1") + "\r".join(found))


def _lines(text: str) -> Lines:
    return [line.split("|") for line in text.split("\r")]


class ManySuite(Suite):
    """One store for each test."""

    world: World

    async def tell(self, *told: Lines) -> None:
        """Messages, one after the other."""
        feed = Feed()
        feed.world = self.world
        for one in told:
            await feed.tell(one)

    async def found(self, query: str) -> list[Json]:
        """Stored resources."""
        answer = await self.world.send("GET", f"{query}_count=1000")
        return [one["resource"] for one in loads(answer.body).get("entry", ())]

    async def test_told_again(self) -> None:
        """Each is updated, none is made anew."""
        for kind, make in (("ServiceRequest", orders), ("Observation", results), ("Immunization", vaccinations)):
            await self.tell(make(), make(), make())
            self.assertEqual(len(await self.found(f"{kind}?")), MANY, kind)
            self.assertEqual({one["meta"]["versionId"] for one in await self.found(f"{kind}?")}, {"1"}, kind)

    async def test_numbers_of_one_message_share_what_is_read(self) -> None:
        """However many numbers it has: a sender does not decide how much is in memory at once."""
        both = results() + [[*line[:-1], "NUM2"] for line in results(test="Y") if line[0] == "OBX"]
        sizes: list[int] = []

        class Noted(candidates._ByContent):
            def __init__(self, found: list[Any]) -> None:
                sizes.append(len(found))
                super().__init__(found)

        self.patch(candidates, "_ByContent", Noted)
        await self.tell(both, both)
        self.assertEqual(set(sizes), {MANY})
        self.patch(candidates, "MOST_OF_A_UNIT", 2 * MATCH_LIMIT)
        sizes.clear()
        await self.tell(both)
        self.assertEqual(set(sizes), {MATCH_LIMIT})

    async def test_a_correction_of_the_oldest(self) -> None:
        """Also when further results have the number."""
        await self.tell(results(), results(test="Y"), results(value=7, places=[0]))
        (first,) = await self.found("Observation?code=X0&")
        self.assertEqual((first["valueQuantity"]["value"], first["meta"]["versionId"]), (7, "2"))
        self.assertEqual(len(await self.found("Observation?")), 2 * MANY)

    async def test_the_number_of_another_person(self) -> None:
        """It is a conflict, whatever the number of results."""
        await self.tell(results())
        with self.assertRaises(IdentityConflict):
            await self.tell(results("P2", places=[0]))

    async def test_the_searches_of_a_unit_are_read_at_once(self) -> None:
        """Not with one plan of the unit for each entry."""
        await self.tell(orders(), results())
        plans: list[object] = []
        begin = IdentityPlan.__init__

        def counted(plan: IdentityPlan, *given: Any) -> None:
            plans.append(plan)
            begin(plan, *given)

        self.patch(IdentityPlan, "__init__", counted)
        await self.tell(orders(), results())
        self.assertLessEqual(len(plans), 4)


class ManyOnMemoryTests(ManySuite, OnMemory):
    """On the store in memory."""


class ManyOnPostgresTests(ManySuite, OnPostgres):
    """On PostgreSQL."""
