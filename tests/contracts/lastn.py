"""The last Observations of each code: one table of questions, answered by SQL and in memory."""

from __future__ import annotations

from typing import Any

from twisted.internet import defer

from ipf.errors import Category, Problem
from ipf.fhir.search.language.query import parse_criteria
from ipf.ports import Json
from tests.contracts.resources import Writing, change, ids, patient
from tests.contracts.search import component, concept, observation, quantity


def codings(*codes: str) -> Json:
    """A CodeableConcept whose codings are translations."""
    return {"coding": [{"system": "urn:c", "code": code} for code in codes]}


def seen(id_: str, code: str | Json, day: str | Json | None, subject: str = "ann", **more: Any) -> Json:
    """An Observation with an effective time."""
    effective = {} if day is None else {"effectivePeriod" if isinstance(day, dict) else "effectiveDateTime": day}
    made = codings(*code.split()) if isinstance(code, str) else code
    return observation(id_, "", subject) | {"code": made} | effective | more


LAB = [concept("laboratory", "urn:k")]
WORLD: list[Json] = [
    patient("ann", identifier=[{"system": "urn:mrn", "value": "1"}], gender="female"),
    patient("bob", identifier=[{"system": "urn:mrn", "value": "2"}], gender="male"),
    seen("a1", "a", "2024-01-01"), seen("a3", "a", "2024-01-03", status="entered-in-error"),
    seen("a2", "a", "2024-01-02"),
    seen("b1", "b", "1965-05", category=LAB), seen("b2", "b", "1969-12-31T23:59:59Z", category=LAB),
    seen("t1", "t", "2024-02-01", valueQuantity=quantity(3, "kg")), seen("t2", "t u", "2024-02-02"),
    seen("t3", "u v", "2024-02-03", valueQuantity=quantity(9000, "g")), seen("v1", "v", "2024-01-31"),
    seen("none", "d", None), seen("early", "d", {"end": "1950"}), seen("open", "d", {"start": "2024-01-05"}),
    seen("tie1", "e", "2024"), seen("tie2", "e", "2024"),
    seen("x1", {"text": "Text"}, "2024-01-01"), seen("x2", {"text": "text"}, "2024-01-01"),
    seen("x3", {"text": "Text"}, "2024-01-02"), seen("x4", {"coding": [{"display": "Text"}]}, "2023-01-02"),
    seen("other", "a", "2024-05-05", "bob"), seen("p1", "q", "2024-03-01", component=[component("a", 3)]),
    seen("nobody", "a", None) | {"subject": {"display": "Nobody"}},
    seen("named", "a", None) | {"subject": {"identifier": {"system": "urn:mrn", "value": "1"}}},
]  # fmt: skip

QUESTIONS = [
    ("subject=Patient/ann", 1, "a3 b2 open tie2 p1 t3 x3 x2"),
    ("subject=Patient/ann", 2, "a3 a2 b2 b1 open early tie2 tie1 p1 t3 t2 x3 x1 x2"),
    ("subject=Patient/ann", 9, "a3 a2 a1 b2 b1 open early none tie2 tie1 p1 t3 t2 t1 v1 x3 x1 x4 x2"),
    ("patient=ann&code=a", 9, "a3 a2 a1"), ("patient=ann&code=urn:c|a,urn:c|b", 1, "a3 b2"),
    ("patient=ann&code=urn:c|", 1, "a3 b2 open tie2 p1 t3"), ("patient=ann&code=other|a", 1, ""),
    ("patient=ann&code:not=urn:c|a", 1, "b2 open tie2 p1 t3 x3 x2"), ("patient=ann&code:missing=true", 1, "x3 x2"),
    # what is filtered connects nothing
    ("patient=ann&code=t", 1, "t2"), ("patient=ann&code=t,v", 1, "t3"), ("patient=ann&_id=t1,v1", 1, "t1 v1"),
    ("patient=ann&code=t,v", 9, "t3 t2 t1 v1"),
    ("patient=ann&status:not=entered-in-error&code=a", 1, "a2"), ("patient=ann&status=entered-in-error", 1, "a3"),
    ("patient=ann&category=laboratory", 1, "b2"), ("patient=ann&category=laboratory", 5, "b2 b1"),
    ("patient=ann&date=lt2024-02-02&code=t", 1, "t1"), ("patient=ann&combo-code=a", 1, "a3 p1"),
    ("patient=ann&component-code=a", 1, "p1"), ("patient=ann&value-quantity=gt4||kg", 1, ""),
    ("patient=ann&value-quantity=gt4|http://unitsofmeasure.org|kg", 1, "t3"),
    ("patient=ann&code-value-quantity=t$3||kg", 1, "t1"), ("patient=ann&code:text=text", 1, "x3 x2"),
    ("patient=ann&_lastUpdated=gt2000&code=b", 1, "b2"), ("patient=ann&_lastUpdated=lt2000", 1, ""),
    ("patient=ann&_filter=status eq final and code eq urn:c|a", 1, "a2"),
    ("patient=ann,bob&code=a", 1, "a3 other"), ("subject=ann,bob&code=a", 2, "a3 a2 other"),
    ("patient.identifier=urn:mrn|1&code=a", 1, "a3"), ("subject:Patient.gender=male&code=a", 1, "other"),
    ("subject:identifier=urn:mrn|1&code=a", 1, "named"), ("patient=nobody&code=a", 1, ""),
    ("patient=ann&patient.gender=male", 1, ""), ("patient=ann&patient.gender=female&code=b", 1, "b2"),
]  # fmt: skip

DATES = [
    ("date=lt2024-01-03", 1, "a2 b2 tie2 x3 x2", "a2 b2 early tie2 x3 x2"),
    ("date=le2024-01-03&code=a", 9, "a3 a2 a1", None), ("date=lt2024-01-01", 1, "b2 x4", "b2 early x4"),
    ("date=lt1950-06", 9, "", "early"), ("date=lt1900", 9, "", "early"), ("date=eq2024-01-02", 9, "a2 x3", None),
    ("date=2024-01-01,2024-01-03", 9, "a3 a1 x1 x2", None), ("date=sa2024-02-01", 1, "p1 t3", None),
    ("date=ge2024-01-02&date=lt2024-01-03", 9, "a2 tie2 tie1 x3", None),
    ("date=gt2024-02-01", 1, "open tie2 p1 t3", None), ("date=eb2024-01-02", 1, "a1 b2 x1 x2", "a1 b2 early x1 x2"),
    ("date=ne2024-01-01&date=lt2024-01-04&code=a", 9, "a3 a2", None),
    ("date=lt2024-01-02,gt2024-03", 1, "a1 b2 open tie2 x1 x2", "a1 b2 open tie2 x1 x2"),
    ("_filter=date lt 2024-01-03 and code eq urn:c|a", 9, "a2 a1", None),
    ("_filter=not(date lt 2024-01-03) and code eq urn:c|a", 9, "a3", None),
]  # fmt: skip
"""Dates, and what is found beside an Observation with a Period without a beginning, which is `early`."""


class LastnContract(Writing):
    """Tests for a subclass that sets `self.store` in `setUp`."""

    async def found(self, criteria: str, most: int = 1, limit: int = 100, tenant: str = "default") -> list[str]:
        """Ids in order."""
        return ids(await self.store.lastn(tenant, parse_criteria(f"Observation?{criteria}"), most, limit))

    async def test_questions(self) -> None:
        """The table."""
        await self.create(*WORLD)
        await self.create(seen("north", "a", "2030"), tenant="north")
        for criteria, most, expected in QUESTIONS:
            self.assertEqual(await self.found(criteria, most), expected.split(), (criteria, most))
        self.assertEqual(await self.found("patient=ann&code=a", tenant="north"), ["north"])
        self.assertEqual(await self.found("patient=ann&code=a", tenant="south"), [])

    async def test_examples_of_the_specification(self) -> None:
        """How many groups codes make."""
        for number, (codes, groups) in enumerate((
            (["a", "b", "c"], 3), (["a", "b", "a c"], 2), (["a", "b", "a b"], 1), (["a b", "b c", "c d", "e"], 2),
        )):  # fmt: skip
            subject = f"p{number}"
            await self.create(*(seen(f"{subject}-{n}", code, "2024", subject) for n, code in enumerate(codes)))
            self.assertEqual(len(await self.found(f"patient={subject}")), groups, codes)
        texts = ("text", "Text", "t e x t", "text")
        await self.create(*(seen(f"x{n}", {"text": text}, "2024", "x") for n, text in enumerate(texts)))
        self.assertEqual(len(await self.found("patient=x")), 3)

    async def test_systems_tell_codes_apart(self) -> None:
        codes = [
            concept("1", "urn:a"),
            concept("1", "urn:b"),
            {"coding": [{"code": "1"}]},
            {"coding": [{"system": "urn:a"}]},
        ]
        await self.create(*(seen(f"o{n}", code, "2024") for n, code in enumerate(codes)))
        self.assertEqual(sorted(await self.found("patient=ann")), ["o0", "o1", "o2", "o3"])
        system, code = {"system": "urn:a"}, {"system": "urn:c", "code": "1"}
        await self.create(
            seen("o4", {}, "2025"), seen("o5", {"coding": [system], "text": "t"}, "2025"),
            seen("o6", {"coding": [code, system]}, "2025"), seen("o7", {"coding": [code]}, "2026"),
        )  # fmt: skip
        for criteria, expected in (
            ("code=urn:a|", "o0 o3 o5 o6"), ("code=urn:a|1", "o0"), ("code=1", "o0 o1 o2 o7"), ("code=|1", "o2"),
            ("code:missing=true", "o4"), ("code:not=1", "o4 o5"),
        ):  # fmt: skip
            self.assertEqual(sorted(await self.found(f"patient=ann&{criteria}")), expected.split(), criteria)

    async def test_kinds_of_one_code(self) -> None:
        """Status and category make no groups, and each selects."""
        made = [("amended", LAB), ("final", LAB), ("final", []), ("amended", [])]
        await self.create(*(
            seen(f"o{n}", "a", f"201{n}", status=made[n % 4][0], category=made[n % 4][1]) for n in range(8)
        ))  # fmt: skip
        for criteria, expected in (
            ("code=a", "o7 o6"), ("status=final", "o6 o5"), ("category=laboratory", "o5 o4"),
            ("status=final,amended", "o7 o6"),
            ("category=laboratory&status=amended", "o4 o0"), ("category:missing=true&status=final", "o6 o2"),
            ("category:missing=true&date=lt2016", "o3 o2"), ("status:not=final&date=lt2013", "o0"),
        ):  # fmt: skip
            self.assertEqual(await self.found(f"patient=ann&{criteria}", 2), expected.split(), criteria)
        self.assertEqual(await self.found("patient=ann&code=a", 3, 3), ["o7", "o6", "o5"])

    async def test_changes_are_followed(self) -> None:
        """A new time, a new code, a deletion."""
        old, new = seen("old", "a", "2024-01-01"), seen("new", "a", "2024-01-02")
        _, rid = await self.create(old, new)
        self.assertEqual(await self.found("patient=ann"), ["new"])
        earlier = seen("new", "a", "2023")
        await self.write(change(rid, earlier, 2, new))
        self.assertEqual(await self.found("patient=ann"), ["old"])
        other = seen("new", "b", "2023")
        await self.write(change(rid, other, 3, earlier))
        self.assertEqual(await self.found("patient=ann"), ["old", "new"])
        await self.write(change(rid, other, 4, other, deleted=True))
        self.assertEqual(await self.found("patient=ann"), ["old"])

    async def test_a_result_that_is_too_large_is_refused(self) -> None:
        await self.create(*(seen(f"o{n}", f"c{n % 3}", f"20{n + 10}") for n in range(9)))
        self.assertEqual(len(await self.found("patient=ann", 2, 6)), 6)
        refused = await self.assertFailure(defer.Deferred.fromCoroutine(self.found("patient=ann", 2, 5)), Problem)
        self.assertEqual((refused.category, refused.place), (Category.COSTLY, "max"))

    async def test_dates(self) -> None:
        """With and without Periods that have no beginning, whose entries have the time of their end."""
        early = [one for one in WORLD if one["id"] == "early"]
        await self.create(*[one for one in WORLD if one["id"] != "early"])
        for place in (2, 3):
            for criteria, most, *expected in DATES:
                found = await self.found(f"patient=ann&{criteria}", most)
                self.assertEqual(found, (expected[place - 2] or expected[0]).split(), (criteria, place))
            await self.create(*early)
            early = []
