"""IN1 segments are the whole list of insurances: a Coverage that is left out ends (HL7 v2.9 section 2.10.4)."""

from __future__ import annotations

import random
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from ipf.config.paths import folder
from ipf.fhir.model.json import loads
from ipf.hl7.message import Message
from ipf.mapping.language.identity_table import IdentityTable, SnapshotRow
from ipf.mapping.library.maps import Library
from ipf.mapping.library.service import result_json
from ipf.ports import Json
from ipf.rest.identity.segment_sets import MOST_MEMBERS
from ipf.rest.write.set_plan import SetPlan
from ipf.rest.write.unit import UnitResult
from tests.corpus import samples
from tests.flows.omitted_fields import Feed, Lines
from tests.rest.world import OnMemory, OnPostgres, Suite, World

PID = "PID|1||1001^^^NORTH^MR||DOE^JANE||19800101|F"
PV1 = "PV1|1|I" + "|" * 17 + "V1"
A01, A08, A28 = "ADT^A01^ADT_A01", "ADT^A08^ADT_A01", "ADT^A28^ADT_A05"
DFT, BAR = "DFT^P03^DFT_P03", "BAR^P05^BAR_P05"
COMPLETE = IdentityTable(snapshots=[SnapshotRow("HIS")])


def in1(plan: str, number: int = 1, **fields: str) -> str:
    """An insurance of a plan."""
    return "|".join(["IN1", str(number), f"{plan}^Plan {plan}", "C1", "ACME", *fields.values()])


def message(kind: str, *segments: str, sender: str = "HIS") -> Lines:
    """A message of a sender about one person and visit."""
    head = f"MSH|^~\\&|{sender}|NORTH|IPF|X|20240101120000||{kind}|1|P|2.5.1"
    return [line.split("|") for line in (head, "EVN||20240101", PID, PV1, *segments)]


def billed(kind: str, account: str, visit: str, *segments: str, sender: str = "HIS") -> Lines:
    """A message about an account or charges."""
    charge = ("FT1|1|T1||20240101||CG|C1",) if kind == DFT else ()
    told = message(kind, *charge, *segments, sender=sender)
    told[2] += [""] * (18 - len(told[2])) + [account]
    told[3][19] = visit
    return told


class SetSuite(Suite):
    """One person and her insurances."""

    world: World
    seeds: int

    async def tell(self, *told: Lines, library: Library | None = None) -> UnitResult:
        """Messages, one after the other; the result of the last."""
        feed = Feed(library)
        feed.world = self.world
        for one in told:
            result = await feed.tell(one)
        return result

    async def found(self, kind: str, condition: str = "") -> list[Json]:
        """The stored resources of a type."""
        answer = await self.world.send("GET", f"{kind}?{condition}_count=100")
        return [one["resource"] for one in loads(answer.body).get("entry", ())]

    async def plans(self) -> dict[str, str]:
        """The status by plan."""
        made = await self.found("Coverage")
        names = {_plan(one): one["status"] for one in made}
        self.assertEqual(len(names), len(made))
        return names

    async def statuses(self, kind: str) -> dict[str, str]:
        """The clinical status by code."""
        return {
            one["code"]["coding"][0]["code"]: one.get("clinicalStatus", {}).get("coding", [{"code": ""}])[0]["code"]
            for one in await self.found(kind)
        }

    async def test_an_insurance_that_is_left_out_is_cancelled(self) -> None:
        """It keeps its content, and is active again when it is told again."""
        await self.tell(message(A01, in1("A"), in1("B", 2)))
        (before,) = [one for one in await self.found("Coverage") if _plan(one) == "B"]
        result = await self.tell(message(A08, in1("A")))
        self.assertEqual(await self.plans(), {"A": "active", "B": "cancelled"})
        (after,) = [one for one in await self.found("Coverage") if _plan(one) == "B"]
        self.assertEqual(_content(after), _content(before) | {"status": "cancelled"})
        (ended,) = result.ended
        self.assertEqual((ended.left_out, ended.version and ended.version.id), ("IN1", after["id"]))
        self.assertEqual((await self.tell(message(A08, in1("A")))).ended, ())
        await self.tell(message(A08, in1("B", 1)))
        self.assertEqual(await self.plans(), {"A": "cancelled", "B": "active"})

    async def test_a_message_without_insurance_changes_nothing(self) -> None:
        """Whatever it is about; an empty segment neither."""
        await self.tell(message(A01, in1("A"), in1("B", 2)))
        for kind, *more in ((A08,), (A28,), (A08, "IN1|1"), (A08, "AL1|1||PEN^Penicillin^L")):
            await self.tell(message(kind, *more))
            self.assertEqual(await self.plans(), {"A": "active", "B": "active"}, (kind, more))

    async def test_many_that_are_left_out(self) -> None:
        """They are read at once, not with one plan of the unit each; a set remembers the last ones."""
        plans = [f"P{number}" for number in range(MOST_MEMBERS + 5)]
        await self.tell(message(A01, *(in1(name, place) for place, name in enumerate(plans, 1))))
        runs: list[object] = []
        run = SetPlan.run

        def counted(plan: SetPlan, entries: Any, outcomes: Any) -> Any:
            runs.append(plan)
            return run(plan, entries, outcomes)

        self.patch(SetPlan, "run", counted)
        await self.tell(message(A01, in1("P7")))
        self.assertLessEqual(len(runs), 2)
        answer = await self.world.send("GET", "Coverage?status=active&_summary=count")
        self.assertEqual(loads(answer.body)["total"], 6)  # P0 to P4, which the set did not remember, and P7

    async def test_null_ends_all(self) -> None:
        """`IN1|1|""`; it makes no Coverage."""
        await self.tell(message(A01, in1("A"), in1("B", 2)), message(A08, 'IN1|1|""'))
        self.assertEqual(await self.plans(), {"A": "cancelled", "B": "cancelled"})

    async def test_null_beside_a_plan(self) -> None:
        """The set is the plan."""
        await self.tell(message(A01, in1("A"), in1("B", 2)), message(A08, in1("A"), 'IN1|2|""'))
        self.assertEqual(await self.plans(), {"A": "active", "B": "cancelled"})

    async def test_other_senders(self) -> None:
        """What another sender told stays, also when both told it."""
        await self.tell(message(A01, in1("A"), in1("B", 2)), message(A08, in1("A"), in1("C", 2), sender="CLINIC"))
        await self.tell(message(A08, in1("B")))
        self.assertEqual(await self.plans(), {"A": "active", "B": "active", "C": "active"})
        await self.tell(message(A08, in1("C"), sender="CLINIC"))
        self.assertEqual(await self.plans(), {"A": "cancelled", "B": "active", "C": "active"})
        await self.tell(message(A08, 'IN1|1|""', sender="THIRD"))
        self.assertEqual(await self.plans(), {"A": "cancelled", "B": "active", "C": "active"})

    async def test_another_patient(self) -> None:
        """A set is of one person."""
        other = [PID.replace("1001", "2002").replace("DOE", "ROE").split("|"), PV1.replace("V1", "V2").split("|")]
        await self.tell(message(A01, in1("A")))
        told = message(A01, in1("B"))
        told[2:4] = other
        await self.tell(told)
        self.assertEqual(await self.plans(), {"A": "active", "B": "active"})

    async def test_charges_and_accounts_state_their_own(self) -> None:
        """What pays for an account or a visit; the next message about the person states all."""
        charge = "FT1|1|T1||20240101||CG|C1"
        await self.tell(message(A01, in1("A")), message(DFT, charge, in1("B"), in1("D", 2)))
        self.assertEqual(await self.plans(), {"A": "active", "B": "active", "D": "active"})
        await self.tell(message(BAR, in1("C"), in1("A", 2)), message(BAR))
        self.assertEqual(await self.plans(), {"A": "active", "B": "cancelled", "C": "active", "D": "cancelled"})
        await self.tell(message(BAR, in1("C")))
        self.assertEqual((await self.plans())["A"], "active")  # it is among those that the A01 has stated
        await self.tell(message(BAR, 'IN1|1|""'))
        self.assertEqual(await self.plans(), {"A": "active", "B": "cancelled", "C": "cancelled", "D": "cancelled"})
        await self.tell(message(BAR, in1("C")), message(A08, in1("D")))
        self.assertEqual(await self.plans(), {"A": "cancelled", "B": "cancelled", "C": "cancelled", "D": "active"})

    async def test_accounts_and_visits_apart(self) -> None:
        """PID-18, else PV1-19; of another sender, account or visit nothing ends; without both an insurance is added."""
        for kind in (BAR, DFT):
            told = [
                billed(kind, "ACC1", "V1", in1("A"), in1("B", 2)),
                billed(kind, "ACC2", "V1", in1("C")),
                billed(kind, "", "V1", in1("D")),
                billed(kind, "", "V2", in1("E")),
                billed(kind, "", "", in1("F")),
                billed(kind, "", "", in1("G")),
                billed(kind, "ACC1", "V1", in1("H"), sender="CLINIC"),
                billed(kind, "ACC1", "V2", in1("A")),
                billed(kind, "", "V2", in1("C")),
            ]
            await self.tell(*told)
            ended = {name for name, status in (await self.plans()).items() if status == "cancelled"}
            self.assertEqual((ended, len(await self.plans())), ({"B", "E"}, 8), kind)
            await self.tell(message(A08, 'IN1|1|""'))

    async def test_orders_add(self) -> None:
        """They say which insurance they use."""
        order = ["ORC|NW|P1", "OBR|1|P1||C1"]
        lines = message("ORM^O01^ORM_O01", in1("B"), *order)
        await self.tell(message(A01, in1("A")), lines)
        self.assertEqual({"A"} <= (await self.plans()).keys(), True)
        self.assertEqual(set((await self.plans()).values()), {"active"})

    async def test_a_merge_takes_the_sets_along(self) -> None:
        """What the sender no longer states of the survivor ends, and after the undoing each has its own again."""
        other = [PID.replace("1001", "2002").split("|"), PV1.replace("V1", "V2").split("|")]
        second = message(A01, in1("B"), in1("C", 2))
        second[2:4] = other
        await self.tell(message(A01, in1("A")), second)
        both = {one["identifier"][0]["value"]: one["id"] for one in await self.found("Patient")}
        source, target = both["2002"], both["1001"]
        await self.merge("merge", source, target)
        await self.tell(message(A08, in1("A"), in1("B", 2)))
        held = {(_plan(one), one["beneficiary"]["reference"]): one["status"] for one in await self.found("Coverage")}
        self.assertEqual(held["C", f"Patient/{target}"], "cancelled")
        self.assertEqual(held["A", f"Patient/{target}"], "active")
        await self.merge("unmerge", source, target)
        third = message(A08, in1("C"))
        third[2:4] = other
        await self.tell(third, message(A08, in1("A")))
        held = {(_plan(one), one["beneficiary"]["reference"]): one["status"] for one in await self.found("Coverage")}
        self.assertEqual(held["C", f"Patient/{source}"], "active")
        self.assertEqual(held["B", f"Patient/{source}"], "cancelled")
        self.assertEqual(held["A", f"Patient/{target}"], "active")

    async def merge(self, what: str, source: str, target: str) -> None:
        """$merge or $unmerge."""
        patients = {"source-patient": source} | ({"target-patient": target} if what == "merge" else {})
        parameter = [{"name": name, "valueReference": {"reference": f"Patient/{id}"}} for name, id in patients.items()]
        body = {"resourceType": "Parameters", "parameter": parameter}
        path = "Patient/$merge" if what == "merge" else f"Patient/{target}/$unmerge"
        answer = await self.world.send("POST", path, body)
        self.assertEqual(answer.status, 200, answer.body)

    async def test_what_a_client_wrote(self) -> None:
        """A Coverage of a client stays; one that a client ended in another way is left."""
        await self.tell(message(A01, in1("A"), in1("B", 2)))
        (coverage,) = [one for one in await self.found("Coverage") if _plan(one) == "B"]
        own = {**coverage, "identifier": [{"value": "own"}]}
        del own["id"]
        await self.world.send("POST", "Coverage", own)
        await self.world.send("PUT", f"Coverage/{coverage['id']}", {**coverage, "status": "draft"})
        await self.tell(message(A08, in1("A")))
        self.assertEqual(sorted(one["status"] for one in await self.found("Coverage")), ["active", "active", "draft"])

    async def test_a_replay(self) -> None:
        """An older message that is converted again says its set again; equal messages write nothing."""
        first, second = message(A01, in1("A"), in1("B", 2)), message(A08, in1("B"), in1("C", 2))
        await self.tell(first, second, first)
        self.assertEqual(await self.plans(), {"A": "active", "B": "active", "C": "cancelled"})
        await self.tell(second)
        patient, versions = await self.found("Patient"), [one["meta"] for one in await self.found("Coverage")]
        await self.tell(second, second)
        self.assertEqual(await self.found("Patient"), patient)
        self.assertEqual([one["meta"] for one in await self.found("Coverage")], versions)

    async def test_allergies_stay(self) -> None:
        """AL1 has no action code; only a sender of snapshots ends an allergy by omission."""
        one, two = "AL1|1|DA|PEN^Penicillin^L|SV", "AL1|2||NUT^Nuts^L"
        await self.tell(message(A01, one, two), message(A08, one), message(A08, 'AL1|1||""'))
        self.assertEqual(await self.statuses("AllergyIntolerance"), {"PEN": "active", "NUT": "active"})

    async def test_a_sender_of_snapshots(self) -> None:
        """Its allergies, and the diagnoses of the visit; told again they hold again."""
        library = Library.load(folder("maps"), identity=COMPLETE, compiled=False)
        allergies = ["AL1|1|DA|PEN^Penicillin^L|SV", "AL1|2||NUT^Nuts^L"]
        diagnoses = ["DG1|1||I10^Hypertension^I10|||A", "DG1|2||E11^Diabetes^I10|||F"]
        await self.tell(message(A01, *diagnoses, *allergies), library=library)
        await self.tell(message(A08, diagnoses[1], allergies[0]), library=library)
        self.assertEqual(await self.statuses("AllergyIntolerance"), {"PEN": "active", "NUT": "inactive"})
        self.assertEqual(await self.statuses("Condition"), {"I10": "inactive", "E11": ""})
        await self.tell(message(A08), library=library)
        self.assertEqual(await self.statuses("AllergyIntolerance"), {"PEN": "active", "NUT": "inactive"})
        acted = diagnoses[0] + "|" * 15 + "A"
        await self.tell(message(A08, acted, allergies[1]), library=library)
        self.assertEqual(await self.statuses("AllergyIntolerance"), {"PEN": "inactive", "NUT": "active"})
        self.assertEqual(await self.statuses("Condition"), {"I10": "", "E11": ""})
        await self.tell(message(A08, 'AL1|1|""'), library=library)
        self.assertEqual(await self.statuses("AllergyIntolerance"), {"PEN": "inactive", "NUT": "inactive"})

    async def test_what_else_a_snapshot_leaves_out(self) -> None:
        """Lists of the Patient and the Encounter go; the resources of the segments stay."""
        library = Library.load(folder("maps"), identity=COMPLETE, compiled=False)
        segments = ("PD1||||12^PCP^A", "ROL|1|AD|AT^Attending^HL70443|9^ROLE^X", "NK1|1|DOE^JOHN|SPO^Spouse^HL70063",
                    "OBX|1|NM|8302-2^Height^LN||170|cm|||||F", "IAM|1|DA|NUT^Nuts^L|||A", "PR1|1||P1^Proc^L||20240101",
                    "DG1|1||I10^Hypertension^I10|||A")  # fmt: skip
        await self.tell(message(A01, *segments), message(A08), library=library)
        (person,), (visit,) = await self.found("Patient"), await self.found("Encounter")
        self.assertFalse({"contact", "generalPractitioner", "telecom"} & person.keys())
        self.assertFalse({"participant", "diagnosis"} & visit.keys())
        for kind in ("RelatedPerson", "Observation", "AllergyIntolerance", "Procedure", "Condition", "CareTeam"):
            self.assertEqual(len(await self.found(kind)), 1, kind)

    async def test_at_one_time(self) -> None:
        """Two messages with different sets: afterwards one of the sets holds, whichever was the last."""
        for number in range(8):
            await self.tell(message(A08, in1("A"), in1("B", 2)))
            feed = Feed()
            feed.world = self.world
            both = [message(A08, in1("A"), in1(f"C{number}", 2)), message(A08, in1("B"))]
            work = [Deferred.fromCoroutine(self.world.commit(feed.unit(one))) for one in both]
            for (result,) in await gatherResults(work):
                self.assertIsInstance(result, UnitResult)
            active = {name for name, status in (await self.plans()).items() if status == "active"}
            self.assertIn(active, ({"A", f"C{number}"}, {"B"}))

    async def test_the_trace_names_the_set(self) -> None:
        """Which segments it has, of which sender, and whether they are all."""
        for kind, scope in ((A08, None), (BAR, "visit V1")):
            raw = "\r".join("|".join(one) for one in message(kind, in1("A"), in1("B", 2))).encode()
            result = samples.library().run(Message.parse(raw))
            (told,) = [one for about in result_json(result)["updates"] for one in about["sets"]]
            self.assertEqual((told["segment"], told["sender"], told["is_whole"]), ("IN1", "HIS", True))
            self.assertEqual(told.get("scope"), scope)
            places = [int(one.partition("[")[2].rstrip("]")) for one in told["members"]]
            kinds = [result.bundle["entry"][place]["resource"]["resourceType"] for place in places]
            self.assertEqual(kinds, ["Coverage", "Coverage"])

    async def test_in_one_transaction(self) -> None:
        """Messages of one batch see each other."""
        feed = Feed()
        feed.world = self.world
        sets = (("A", "B"), ("B", "C"), ("A",), ("D", "B"))
        units = [feed.unit(message(A08, *map(in1, plans))) for plans in sets]
        for result in await self.world.commit(*units):
            self.assertIsInstance(result, UnitResult)
        expected = {"A": "cancelled", "B": "active", "C": "cancelled", "D": "active"}
        self.assertEqual(await self.plans(), expected)

    async def test_generated_sets(self) -> None:
        """What holds is the union of the last sets of the senders, in whatever order and number it is told."""
        for seed in range(self.seeds):
            random_ = random.Random(seed)
            sets: dict[tuple[str, bool], set[str]] = {}
            ever: set[str] = set()
            told = []
            number = f"7{seed:04}"
            for _ in range(random_.randrange(2, 8)):
                sender = random_.choice(("HIS", "CLINIC", "THIRD"))
                plans = random_.sample("ABCDE", random_.randrange(0, 4))
                lines = [in1(plan, random_.choice((1, 2, 3))) for plan in plans]
                lines += random_.choices(lines, k=random_.randrange(0, 3)) if lines else []
                random_.shuffle(lines)
                if random_.random() < 0.2:
                    lines.append('IN1|9|""')
                kind = random_.choice((A01, A08, A28, DFT, BAR))
                if lines:
                    sets[sender, kind in (DFT, BAR)] = set(plans)
                if lines and kind not in (DFT, BAR):
                    sets[sender, True] = set()
                ever |= set(plans)
                charge = [f"FT1|1|T{seed}||20240101||CG|C1"] if kind == DFT else []
                made = message(kind, *charge, *lines, sender=sender)
                made[2][3], made[3][19] = f"{number}^^^NORTH^MR", f"V{seed}"
                told.append(made)
                await self.tell(made)
            held = set().union(*sets.values())
            (patient,) = await self.found("Patient", f"identifier={number}&")
            coverages = await self.found("Coverage", f"beneficiary=Patient/{patient['id']}&")
            found = {_plan(one): one["status"] for one in coverages}
            expected = {plan: "active" if plan in held else "cancelled" for plan in ever}
            self.assertEqual(found, expected, (seed, told))
            self.assertEqual(len(coverages), len(found))


def _plan(coverage: Json) -> str:
    return str(coverage["identifier"][1]["value"])


def _content(resource: Json) -> Json:
    return {name: one for name, one in resource.items() if name != "meta"}


class SetsOnMemoryTests(SetSuite, OnMemory):
    """On the store in memory."""

    seeds = 40


class SetsOnPostgresTests(SetSuite, OnPostgres):
    """On PostgreSQL."""

    seeds = 8
