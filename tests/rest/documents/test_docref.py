"""DocumentReference/$docref on the in-memory world and on PostgreSQL."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import OPEN, Caller
from tests.rest.world import OnMemory, issues

CCD, NOTE, SUMMARY = "34133-9", "11506-3", "18842-5"


def document(id: str, patient: str, code: str, day: int, **members: Any) -> dict[str, Any]:
    """A DocumentReference about care on a day of May."""
    date = f"2024-05-{day:02d}"
    return {
        "resourceType": "DocumentReference", "id": id, "status": "current", "date": f"{date}T12:00:00Z",
        "type": {"coding": [{"system": "http://loinc.org", "code": code}]},
        "subject": {"reference": f"Patient/{patient}"},
        "content": [{"attachment": {"url": f"http://x/{id}"}, "format": {"code": f"urn:format:{code}"}}],
        "context": {"period": {"start": date, "end": date}}, **members,
    }  # fmt: skip


class MemoryDocref(OnMemory):
    """Documents of two patients."""

    async def fill(self) -> None:
        """Store them."""
        self.world.caller = OPEN
        for one in (
            document("old", "a", CCD, 1),
            document("new", "a", CCD, 9),
            document("former", "a", CCD, 20, status="superseded"),
            document("wrong", "a", CCD, 21, status="entered-in-error"),
            document("note", "a", NOTE, 5),
            document("other", "b", CCD, 9),
            document("stay", "a", SUMMARY, 3, context={"period": {"start": "2024-04-28", "end": "2024-05-03"}}),
        ):
            answer = await self.world.send("PUT", f"DocumentReference/{one['id']}", one)
            self.assertEqual(answer.status, 201, answer.body)

    async def found(self, query: str, body: Any = None) -> list[str]:
        """The ids of the documents."""
        method = "GET" if body is None else "POST"
        answer = await self.world.send(method, f"DocumentReference/$docref{query}", body)
        self.assertEqual(answer.status, 200, answer.body)
        bundle = loads(answer.body)
        self.assertEqual(bundle["type"], "searchset")
        matches = [one for one in bundle.get("entry", ()) if one["search"]["mode"] == "match"]
        return sorted(one["resource"]["id"] for one in matches)

    async def test_what_is_found(self) -> None:
        await self.fill()
        loinc = "http://loinc.org%7C"
        for query, expected in (
            ("?patient=a", ["new"]),
            ("?patient=Patient/a", ["new"]),
            ("?patient=nobody", []),
            (f"?patient=a&type={loinc}{NOTE}", ["note"]),
            (f"?patient=a&type={NOTE},{CCD}", ["new", "note"]),
            (f"?patient=a&type={NOTE}&type={loinc}{CCD}", ["new", "note"]),
            ("?patient=a&start=2024-05-02", ["former", "new"]),
            ("?patient=a&end=2024-05-02", ["old"]),
            ("?patient=a&start=2024-05-01&end=2024-05-10T00:00:00Z", ["new", "old"]),
            (f"?patient=a&type={NOTE}&start=2024-05-01&end=2024-05-31", ["note"]),
            ("?patient=a&start=2025", []),
            (f"?patient=a&type={SUMMARY}&start=2024-05&end=2024-05", ["stay"]),
            (f"?patient=a&type={SUMMARY}&start=2024-04&end=2024-04", ["stay"]),
            (f"?patient=a&type={SUMMARY}&start=2024-05-04", []),
            ("?patient=a&on-demand=true", []),
            ("?patient=a&on-demand=false", ["new"]),
            (f"?patient=a&profile=urn:format:{CCD}", ["new"]),
            ("?patient=a&profile=urn:other", []),
        ):
            self.assertEqual(await self.found(query), expected, query)

    async def test_parameters_in_the_body(self) -> None:
        await self.fill()
        coding = {"name": "type", "valueCoding": {"system": "http://loinc.org", "code": NOTE}}
        start = {"name": "start", "valueDateTime": "2024-05-02T03:00:00+02:00"}
        who = {"name": "patient", "valueId": "a"}
        for sent, expected in (
            ([who], ["new"]),
            ([who, coding], ["note"]),
            ([who, start], ["former", "new"]),
            ([who, {"name": "on-demand", "valueBoolean": True}], []),
        ):
            body = {"resourceType": "Parameters", "parameter": sent}
            self.assertEqual(await self.found("", body), expected, sent)

    async def test_refused(self) -> None:
        for query, place in (
            ("", "patient"),
            ("?patient=a%20b", "patient"),
            ("?patient=a&patient=b", "patient"),
            ("?patient=a&start=yesterday", "start"),
            ("?patient=a&end=2024-13-01", "end"),
            ("?patient=a&start=2024-05-02&end=2024-05-01", "start"),
            ("?patient=a&on-demand=maybe", "on-demand"),
            ("?patient=a&type=http://loinc.org%7C", "type"),
            ("?patient=a&_sort=date", "_sort"),
        ):
            answer = await self.world.send("GET", f"DocumentReference/$docref{query}")
            self.assertEqual(answer.status, 400, query)
            self.assertEqual(issues(answer)[0][2], place, query)
        self.assertEqual((await self.world.send("GET", "Patient/$docref?patient=a")).status, 404)

    async def test_limits_of_the_caller(self) -> None:
        await self.fill()
        for scopes, patient, query, expected in (
            ("patient/DocumentReference.s", "a", "?patient=a", ["new"]),
            ("patient/DocumentReference.s", "b", "?patient=a", []),
            ("patient/DocumentReference.s", "b", "?patient=a&start=2024", []),
            ("system/DocumentReference.s?status=superseded", None, "?patient=a&start=2024", ["former"]),
        ):
            self.world.caller = Caller("ada", "app", (scopes,), patient=patient)
            self.assertEqual(await self.found(query), expected, (scopes, query))
        self.world.caller = Caller("ada", "app", ("system/Patient.rs",))
        self.assertEqual((await self.world.send("GET", "DocumentReference/$docref?patient=a")).status, 401)

    async def test_pages_continue_as_a_search(self) -> None:
        await self.fill()
        for number in range(60):
            await self.world.send("PUT", f"DocumentReference/n{number}", document(f"n{number}", "a", CCD, 10))
        bundle = loads((await self.world.send("GET", "DocumentReference/$docref?patient=a&start=2024")).body)
        after = next(one["url"] for one in bundle["link"] if one["relation"] == "next")
        rest = loads((await self.world.send("GET", after.partition("/fhir/")[2])).body)
        ids = {one["resource"]["id"] for one in (*bundle["entry"], *rest["entry"])}
        self.assertEqual(len(ids), 63)
