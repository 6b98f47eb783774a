"""OBR-26 and OBR-29 whose parent is in an earlier message: the stored result or order, else its number."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import Json, Version
from ipf.ports.identity import IdentityKey
from ipf.ports.queries.entries import Entry, Method, NumberedLink
from ipf.rest.write.numbered_links import NumberedLinks
from ipf.rest.write.unit import EntryResult, Outcome
from tests.flows.omitted_fields import Feed, Lines
from tests.rest.world import OnMemory, OnPostgres, Suite, World
from tests.steps import steps_of

PID = "PID|1||1001^^^B^MR||DOE^JANE"
SUSCEPTIBLE = "OBX|1|ST|18906-8^Cipro^LN||S||||||F"


def message(*segments: str, kind: str = "ORU^R01^ORU_R01", pid: str = PID) -> Lines:
    """A message of the laboratory."""
    head = f"MSH|^~\\&|LAB|GENERAL|||20260301||{kind}|1|P|2.5.1"
    return [line.split("|") for line in (head, pid, *segments)]


def culture(number: str = "ORGF1", *organisms: str, own: str = "") -> tuple[str, ...]:
    """A culture with its organisms, each with a sub-ID."""
    return (
        f"OBR|1|P1|{number}|600-7^Culture^LN",
        *(
            f"OBX|{place}|CWE|600-7^Bacteria^LN|{place}|1{place}^{name}^SCT||||||F"
            + ("|" * 10 + f"{own}{place}^LAB" if own else "")
            for place, name in enumerate(organisms, 1)
        ),
    )


def panel(sub_id: int, parent: str = "^ORGF1", code: str = "600-7") -> tuple[str, str]:
    """A susceptibility of one organism."""
    return f"OBR|1|P2|F2{sub_id}|50545-3^Susc^LN{'|' * 22}{code}&Bacteria&LN^{sub_id}^E. coli|||{parent}", SUSCEPTIBLE


class NothingStored:
    """A snapshot of an empty store."""

    def matching(self, key: object, query: object) -> tuple[()]:
        """No resource."""
        return ()


def completed(count: int) -> None:
    """A unit of so many orders, each of which names the one before it as its parent."""
    entries, outcomes = [], []
    for number in range(count):
        holder: Json = {}
        link = NumberedLink(holder, "ServiceRequest", IdentityKey("urn:o", "", str(number - 1)))
        order = {"resourceType": "ServiceRequest", "id": str(number), "subject": {"reference": "Patient/1"},
                 "identifier": [{"system": "urn:o", "value": str(number)}], "basedOn": [holder]}  # fmt: skip
        entries.append(Entry(Method.CREATE, "ServiceRequest", resource=order, numbered=(link,)))
        version = Version(number, "ServiceRequest", str(number), 1, datetime(2026, 1, 1, tzinfo=UTC), b"")
        outcomes.append(EntryResult(201, Outcome.CREATED, version))
    nothing: Any = NothingStored()
    NumberedLinks("default", nothing).complete(entries, outcomes)
    assert [one.resource["basedOn"][0].get("reference") for one in entries[1:] if one.resource] == [
        f"ServiceRequest/{number}" for number in range(count - 1)
    ]


class ParentSuite(Suite):
    """One person and her cultures."""

    world: World

    async def tell(self, *told: Lines) -> None:
        """Messages, one after the other."""
        feed = Feed()
        feed.world = self.world
        for one in told:
            await feed.tell(one)

    async def found(self, query: str) -> list[Json]:
        """Stored resources."""
        answer = await self.world.send("GET", f"{query}&_count=100")
        return [one["resource"] for one in loads(answer.body).get("entry", ())]

    async def derived(self) -> list[Any]:
        """What the susceptibilities are derived from: a resource, or the logical reference."""
        found: list[Any] = []
        for one in await self.found("Observation?code=18906-8"):
            (parent,) = one["derivedFrom"]
            if "reference" in parent:
                organism = await self.world.body(parent["reference"])
                found.append(organism["valueCodeableConcept"]["coding"][0]["display"])
            else:
                found.append({name: value for name, value in parent.items() if name != "identifier"})
        return found

    async def test_the_result_of_an_earlier_message(self) -> None:
        """By the order, the code and the sub-ID."""
        await self.tell(message(*culture("ORGF1", "E. coli", "Proteus")), message(*panel(2)))
        self.assertEqual(await self.derived(), ["Proteus"])

    async def test_a_parent_with_a_number_of_its_own(self) -> None:
        """OBX-21; in an earlier message and in the same one."""
        await self.tell(message(*culture("ORGF1", "E. coli", "Proteus", own="INST")), message(*panel(1)))
        self.assertEqual(await self.derived(), ["E. coli"])
        await self.tell(message(*culture("ORGF1", "E. coli", "Proteus", own="INST"), *panel(2)))
        self.assertEqual(sorted(await self.derived()), ["E. coli", "Proteus"])

    async def test_an_authority_on_one_side(self) -> None:
        """Senders leave it out in one place; that of the same authority goes first."""
        await self.tell(message(*culture("ORGF1", "E. coli", "Proteus")), message(*panel(2, "^ORGF1&LAB")))
        self.assertEqual(await self.derived(), ["Proteus"])
        await self.tell(message(*culture("ORGF1^LAB", "Serratia", "Serratia M")), message(*panel(2, "^ORGF1&LAB")))
        self.assertEqual(await self.derived(), ["Serratia M"])

    async def test_many_parents(self) -> None:
        """Their results are read at once, not with one plan of the unit each."""
        count = 20
        orders = [culture(f"ORGF{one}", "E. coli") for one in range(count)]
        await self.tell(message(*(line for lines in orders for line in lines)))
        runs: list[object] = []
        complete = NumberedLinks.complete

        def counted(links: NumberedLinks, entries: Any, outcomes: Any) -> None:
            runs.append(links)
            complete(links, entries, outcomes)

        self.patch(NumberedLinks, "complete", counted)
        panels = [(panel(1, f"^ORGF{one}")[0].replace("|F21|", f"|F{one}|"), SUSCEPTIBLE) for one in range(count)]
        await self.tell(message(*(line for lines in panels for line in lines)))
        self.assertLessEqual(len(runs), 2)
        self.assertEqual(await self.derived(), ["E. coli"] * count)

    def test_the_work_grows_with_the_message(self) -> None:
        """The unit's own orders are found by an index."""
        less, more = (steps_of(partial(completed, count)) for count in (50, 200))
        self.assertLess(more, 5 * less)

    async def test_what_does_not_fit_stays_a_number(self) -> None:
        """Another code, another sub-ID, another order, another patient, no number."""
        other = PID.replace("1001", "2002").replace("DOE", "ROE")
        await self.tell(message(*culture("ORGF1", "E. coli")), message(*culture("ORGF9", "Proteus"), pid=other))
        for told in (panel(1, code="999-9"), panel(7), panel(1, "^NONE"), panel(1, "^ORGF9"), panel(1, "")):
            await self.tell(message(*told))
            for one in await self.found("Observation?code=18906-8"):
                (parent,) = one["derivedFrom"]
                self.assertEqual((parent["type"], parent["display"]), ("Observation", "E. coli"), told)
                self.assertNotIn("reference", parent, told)
            await self.tell(message(*(told[0], told[1].replace("||S|", "||R|"))))

    async def test_a_parent_that_comes_later(self) -> None:
        """The number stands for it; the next message of the result finds it."""
        await self.tell(message(*panel(1)))
        (one,) = await self.found("Observation?code=18906-8")
        (parent,) = one["derivedFrom"]
        self.assertEqual(parent["identifier"]["value"], "ORGF1")
        self.assertNotIn("reference", parent)
        await self.tell(message(*culture("ORGF1", "E. coli")), message(*panel(1)))
        self.assertEqual(await self.derived(), ["E. coli"])

    async def test_the_order_of_a_result_that_is_stored(self) -> None:
        """OBR-29 of the result is added to it, also as a number; nothing else of it changes, no parent is replaced."""
        kind = "OML^O21^OML_O21"
        orders = [message("ORC|NW|P1", "OBR|1|P1||600-7^Culture^LN", kind=kind)]
        orders += [message(f"ORC|NW|{n}", f"OBR|1|{n}||GLU^Glucose^L{more}", kind=kind)
                   for n, more in (("P2", ""), ("P3", ""), ("P4", "|" * 25 + "P1"))]  # fmt: skip
        await self.tell(*orders)
        before = {name: (await self.found(f"ServiceRequest?identifier={name}"))[0] for name in ("P2", "P3", "P4")}
        for number, parent in (("P2", "P1"), ("P3", "P9"), ("P4", "P3")):
            obr = f"OBR|1|{number}|F{number}|GLU^Glucose^L{'|' * 25}{parent}"
            told = message(obr, "OBX|1|NM|GLU^Glucose^L||5|mg|||||F")
            await self.tell(told, told)
        (culture,) = await self.found("ServiceRequest?identifier=P1")
        for number, parent in (("P2", "P1"), ("P3", "P9"), ("P4", "P1")):
            (after,) = await self.found(f"ServiceRequest?identifier={number}")
            (link,) = after.pop("basedOn")
            self.assertEqual(link["identifier"]["value"], parent)
            found = None if parent == "P9" else f"ServiceRequest/{culture['id']}"
            self.assertEqual(link.get("reference"), found)
            self.assertEqual(after.pop("meta")["versionId"], "1" if number == "P4" else "2")
            kept = {name: one for name, one in before[number].items() if name not in ("meta", "basedOn")}
            self.assertEqual(after, kept)
        await self.tell(message("ORC|NW|P9", "OBR|1|P9||600-7^Culture^LN", kind=kind))
        await self.tell(message(f"OBR|1|P3|FP3|GLU^Glucose^L{'|' * 25}P9", "OBX|1|NM|GLU^Glucose^L||5|mg|||||F"))
        (after,), (late,) = (
            await self.found("ServiceRequest?identifier=P3"),
            await self.found("ServiceRequest?identifier=P9"),
        )
        self.assertEqual(after["basedOn"][0]["reference"], f"ServiceRequest/{late['id']}")

    async def test_an_order_of_an_earlier_message(self) -> None:
        """OBR-29 of an order: the stored order, else its number; of several orders of one number, the number."""
        kind = "OML^O21^OML_O21"
        parent, child = "ORC|NW|P1", "OBR|1|P2||GLU^Glucose^L" + "|" * 25 + "P1"
        await self.tell(message("ORC|NW|P2", child, kind=kind))
        (one,) = await self.found("ServiceRequest?identifier=P2")
        self.assertEqual((one["basedOn"][0]["identifier"]["value"], "reference" in one["basedOn"][0]), ("P1", False))
        await self.tell(
            message(parent, "OBR|1|P1||600-7^Culture^LN", kind=kind), message("ORC|XO|P2", child, kind=kind)
        )
        (one,) = await self.found("ServiceRequest?identifier=P2")
        stored = await self.world.body(one["basedOn"][0]["reference"])
        self.assertEqual(stored["code"]["coding"][0]["code"], "600-7")
        again = await self.found("ServiceRequest?identifier=P2")
        await self.tell(message("ORC|XO|P2", child, kind=kind))
        self.assertEqual(await self.found("ServiceRequest?identifier=P2"), again)


class ParentsOnMemoryTests(ParentSuite, OnMemory):
    """On the store in memory."""


class ParentsOnPostgresTests(ParentSuite, OnPostgres):
    """On PostgreSQL."""
