"""Messages that another mapping service maps: what is checked here, and what an update keeps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ipf.config.paths import folder
from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.mapping.language.identity_table import IdentityTable, SnapshotRow
from ipf.mapping.library.maps import Library
from ipf.mapping.library.profiled import ProfiledMapper
from ipf.ports import DEFAULT_TENANT, Claimed, Json, Mapped
from ipf.rest.interactions.bundle_entries import entries_in
from ipf.rest.write.unit import Unit, UnitResult
from tests.corpus import samples
from tests.rest.world import CORRELATION_ID, OnMemory, OnPostgres, Suite, World

HEAD = "MSH|^~\\&|HIS|NORTH|IPF|X|20240101120000||{}|{}|P|2.5.1"
WHOLE = (
    "PID|1||1001^^^NORTH^MR||DOE^JANE||19800101|F|||1 Main^^Town||555-1|||M",
    "PV1|1|I|W^1^2^NORTH||||123^DOC^A|||MED|||||||||V1" + "|" * 25 + "20240101",
)


class Far:
    """A mapping service that answers the Bundle of the project's maps, or another one."""

    def __init__(self) -> None:
        self.answer: Json | None = None

    def has_map(self, message_type: str) -> bool:
        """It has all."""
        return True

    async def transform(self, message: Claimed) -> Mapped:
        """A Bundle without a record of fields."""
        return Mapped(self.answer or samples.library().transform(message).bundle, "elsewhere")


async def no_answers(message: Claimed) -> Any:
    """Operators answered nothing."""
    return None


class ElsewhereSuite(Suite):
    """Messages of one sender, through a mapping service."""

    world: World

    async def tell(self, kind: str, *segments: str, library: Library | None = None) -> UnitResult:
        """Convert and store one message."""
        self.far = Far() if not hasattr(self, "far") else self.far
        self.count = getattr(self, "count", 0) + 1
        mapper = ProfiledMapper(self.far, lambda: library or samples.library(), no_answers)
        raw = "\r".join((HEAD.format(kind, self.count), "EVN||20240101", *segments)).encode()
        name = "_".join(kind.split("^")[:2])
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        claimed = Claimed(1, 1, CORRELATION_ID, moment, "HIS", str(self.count), name, raw, "utf-8", 0)
        mapped = await mapper.transform(claimed)
        unit = Unit(DEFAULT_TENANT, entries_in(mapped), CORRELATION_ID, f"m/{self.count}")
        (found,) = await self.world.commit(unit)
        if not isinstance(found, UnitResult):
            raise found
        return found

    async def one(self, kind: str) -> Json:
        """The only resource of a type."""
        answer = await self.world.send("GET", f"{kind}?_count=100")
        (found,) = [one["resource"] for one in loads(answer.body).get("entry", ())]
        resource: Json = found
        return resource

    async def test_an_update_keeps_what_the_bundle_lacks(self) -> None:
        """And replaces what it has; numbers of other authorities stay."""
        await self.tell("ADT^A01^ADT_A01", WHOLE[0].replace("^MR", "^MR~77^^^GOV^NI"), WHOLE[1])
        before, visit = await self.one("Patient"), await self.one("Encounter")
        result = await self.tell(
            "ADT^A08^ADT_A01", "PID|1||1001^^^NORTH^MR||DOE^JANE||||||||555-2", "PV1|1|I" + "|" * 17 + "V1"
        )
        after = await self.one("Patient")
        for name in ("birthDate", "gender", "address", "maritalStatus"):
            self.assertEqual(after[name], before[name], name)
        self.assertEqual([one["value"] for one in after["telecom"]], ["555-2"])
        self.assertEqual({one["value"] for one in after["identifier"]}, {"1001", "77"})
        again = await self.one("Encounter")
        for name in ("period", "participant", "location", "serviceType"):
            self.assertEqual(again.get(name), visit.get(name), name)
        kept = {name for one in result.entries for name in one.kept}
        self.assertLessEqual({"birthDate", "gender", "address"}, kept)

    async def test_a_sender_of_snapshots(self) -> None:
        """It replaces all."""
        table = IdentityTable(snapshots=[SnapshotRow("HIS")])
        library = Library.load(folder("maps"), identity=table, compiled=False)
        await self.tell("ADT^A01^ADT_A01", *WHOLE, library=library)
        await self.tell("ADT^A08^ADT_A01", "PID|1||1001^^^NORTH^MR||DOE^JANE", WHOLE[1], library=library)
        self.assertNotIn("birthDate", await self.one("Patient"))

    async def test_nothing_of_the_subject(self) -> None:
        """Envelope alone, nothing, what is only mentioned."""
        header = {"resource": {"resourceType": "MessageHeader"}, "request": {"method": "POST", "url": "MessageHeader"}}
        practitioner = {
            "resource": {"resourceType": "Practitioner"},
            "request": {"method": "POST", "url": "Practitioner", "ifNoneExist": "identifier=|1"},
        }
        self.far = Far()
        for entries in ([], [header], [header, practitioner]):
            self.far.answer = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
            with self.assertRaises(Problem) as raised:
                await self.tell("ADT^A01^ADT_A01", *WHOLE)
            self.assertEqual(raised.exception.category, Category.REQUIRED)
            self.assertTrue(raised.exception.is_permanent)

    async def test_what_is_no_entry(self) -> None:
        """A Bundle of a broken service is a Problem that names the place, not an unexpected error."""
        self.far = Far()
        patient: Json = {"resource": {"resourceType": "Patient"}, "request": {"method": "POST", "url": "Patient"}}
        for entries in (None, "x", 7, [None], ["x"], [7], [[]], [{"resource": 7}], [patient, {"request": "x"}], [{}]):
            self.far.answer = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
            with self.assertRaises(Problem, msg=str(entries)):
                await self.tell("ADT^A01^ADT_A01", *WHOLE)

    async def test_another_person(self) -> None:
        """A number of another family name, birth date and sex is a conflict here too."""
        await self.tell("ADT^A01^ADT_A01", *WHOLE)
        other = "PID|1||1001^^^NORTH^MR||IMANI^RUTH||19990714|M"
        with self.assertRaises(Problem):
            await self.tell("ADT^A08^ADT_A01", other, WHOLE[1])
        self.assertEqual((await self.one("Patient"))["birthDate"], "1980-01-01")


class ElsewhereOnMemoryTests(ElsewhereSuite, OnMemory):
    """On the store in memory."""


class ElsewhereOnPostgresTests(ElsewhereSuite, OnPostgres):
    """On PostgreSQL."""
