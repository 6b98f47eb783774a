"""Patient/$match: grades, order, bounds and limits."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import Caller, Json
from ipf.rest.resource_operations.match import GRADE
from tests.rest.world import BASE, OnMemory, issues

MR = {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/v2-0203", "code": "MR"}]}


def person(
    id: str = "", number: str = "", family: str = "", given: str = "", born: str = "", gender: str = "", **more: Any
) -> Json:
    """A Patient with these elements."""
    made: Json = {"resourceType": "Patient", "id": id, "birthDate": born, "gender": gender, **more}
    if number:
        made["identifier"] = [{"system": "urn:h", "value": number, "type": MR}]
    name = ({"family": family} if family else {}) | ({"given": [given]} if given else {})
    made["name"] = [name] if name else ""
    return {element: value for element, value in made.items() if value != ""}


class MatchTests(OnMemory):
    async def match(self, patient: Any, **others: Json) -> list[tuple[str, str, float]]:
        """Id, grade and score of each match."""
        parameters = [{"name": "resource", "resource": patient}]
        parameters += [{"name": name, **value} for name, value in others.items()]
        answer = await self.world.send(
            "POST", "Patient/$match", {"resourceType": "Parameters", "parameter": parameters}
        )
        self.assertEqual(answer.status, 200, answer.body)
        bundle = loads(answer.body)
        entries = bundle.get("entry", ())
        self.assertEqual((bundle["type"], bundle["total"]), ("searchset", len(entries)))
        found = []
        for entry in entries:
            ((extension),) = entry["search"]["extension"]
            self.assertEqual((extension["url"], entry["search"]["mode"]), (GRADE, "match"))
            self.assertEqual(entry["fullUrl"], f"{BASE}/Patient/{entry['resource']['id']}")
            found.append((entry["resource"]["id"], extension["valueCode"], float(entry["search"]["score"])))
        return found

    async def store(self) -> None:
        """Some people."""
        for one in (
            person("a", "1", "Muster", "Anna", "1970-01-02", "female"),
            person("b", "2", "M\u00fcster", "Anna", "1970-01-02", "female"),
            person("c", "3", "Muster", "Anna", "1980-01-02", "female"),
            person("d", "4", "Other", "Bea", "1970-01-02", "male"),
            person("e", "5", "Muster", "Anna", "1970-01-02", "female",
                   link=[{"other": {"reference": "Patient/a"}, "type": "replaced-by"}], active=False),
        ):  # fmt: skip
            self.assertEqual((await self.world.send("PUT", f"Patient/{one['id']}", one)).status, 201)

    async def test_grades(self) -> None:
        await self.store()
        everything = person("", "1", "Muster", "Anna", "1970-01-02", "female")
        self.assertEqual(await self.match(everything), [("a", "certain", 1.0), ("b", "probable", 0.99)])
        certain: Json = {"valueBoolean": True}
        self.assertEqual(await self.match(everything, onlyCertainMatches=certain), [("a", "certain", 1.0)])
        self.assertEqual(await self.match(everything, count={"valueInteger": 1}), [("a", "certain", 1.0)])
        self.assertEqual(await self.match(person("", "1")), [("a", "certain", 1.0)])
        unknown = person("", "", "muster", "anna", "1970-01-02")
        self.assertEqual(await self.match(unknown), [("a", "probable", 0.9), ("b", "probable", 0.9)])
        self.assertEqual(await self.match(unknown, onlyCertainMatches=certain), [])
        by_name = await self.match(person("", "", "Muster", "Anna"))
        self.assertEqual([one[:2] for one in by_name], [("a", "possible"), ("b", "possible"), ("c", "possible")])
        self.assertEqual(await self.match(person("", "9", "Nobody", "Nil", "1999-01-01")), [])
        self.assertEqual(await self.match(person("", "", "", "", "1970-01-02", "female")), [])

    async def test_a_number_of_several_is_not_certain(self) -> None:
        await self.world.send("PUT", "Patient/a", person("a", "1", "Muster"))
        await self.world.send("PUT", "Patient/b", person("b", "1", "Muster"))
        self.assertEqual([one[1] for one in await self.match(person("", "1", "Muster"))], ["possible"] * 2)
        self.assertEqual(await self.match(person("", "1", "Muster"), onlyCertainMatches={"valueBoolean": True}), [])

    async def test_limits(self) -> None:
        """What a caller may not find is no candidate, and changes nothing."""
        await self.store()
        await self.world.send("PUT", "Patient/f", person("f", "1", "Muster", "Anna"))
        everything = person("", "1", "Muster", "Anna", "1970-01-02", "female")
        self.world.caller = Caller("ada", "app", ("system/Patient.rs?_id=a",))
        self.assertEqual(await self.match(everything), [("a", "certain", 1.0)])
        self.world.caller = Caller("ada", "app", ("system/Patient.r",))
        sent = {"resourceType": "Parameters", "parameter": [{"name": "resource", "resource": everything}]}
        self.assertEqual((await self.world.send("POST", "Patient/$match", sent)).status, 401)

    async def test_refused(self) -> None:
        many = [{"system": "urn:h", "value": str(number)} for number in range(21)]
        for url, parameters, status, place in (
            ("Patient/$match", [], 400, "resource"),
            ("Patient/$match", [{"name": "resource", "resource": {"resourceType": "Group"}}], 400, "resource"),
            ("Patient/$match", [{"name": "nonsense", "valueString": "x"}], 400, "nonsense"),
            ("Patient/$match", [{"name": "resource", "resource": {**person(), "identifier": many}}], 400, "resource"),
            ("Group/$match", [], 404, ""),
        ):
            answer = await self.world.send("POST", url, {"resourceType": "Parameters", "parameter": parameters})
            self.assertEqual((answer.status, issues(answer)[0][2].partition(".")[0]), (status, place), answer.body)
