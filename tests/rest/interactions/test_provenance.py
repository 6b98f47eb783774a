"""The header X-Provenance: what it stores, with what as its target, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote

from ipf.fhir.model.json import dumps, loads
from ipf.ports import OPEN, Answer, Caller, Json
from tests.rest.world import BASE, OnMemory, OnSharedPostgres, Suite, World, create, issues, patient, unit

PROVENANCE: Json = {
    "resourceType": "Provenance", "recorded": "2026-01-31T08:05:09Z", "agent": [{"who": {"display": "Dr. Zwölf"}}],
}  # fmt: skip
JSON_PATCH = "application/json-patch+json"


def header(**members: Any) -> str:
    """As it arrives: the bytes of UTF-8, each as a character."""
    return dumps({**PROVENANCE, **members}).decode().encode().decode("latin-1")


def bundle(*entries: tuple[str, str, Any], kind: str = "transaction") -> Json:
    """Entries as (method, url, resource)."""
    found = [
        {"request": {"method": method, "url": url}, **({"resource": resource} if resource else {})}
        for method, url, resource in entries
    ]
    return {"resourceType": "Bundle", "type": kind, "entry": found}


class ProvenanceSuite(Suite):
    world: World

    async def send(self, method: str, url: str, body: Any = None, text: str | None = None, **headers: str) -> Answer:
        return await self.world.send(
            method, url, body, **{"x-provenance": header() if text is None else text, **headers}
        )

    async def stored(self) -> list[Json]:
        """All Provenances, oldest first."""
        page = loads((await self.world.send("GET", "Provenance?_sort=_lastUpdated")).body)
        return [entry["resource"] for entry in page.get("entry", ())]

    async def targets(self) -> list[list[str]]:
        return [[one["reference"] for one in resource["target"]] for resource in await self.stored()]

    async def test_create_update_and_patch(self) -> None:
        """Each change has its own, about the version that it made."""
        made = await self.send("POST", "Patient", patient("1"))
        self.assertEqual(made.status, 201, made.body)
        id = loads(made.body)["id"]
        (first,) = await self.stored()
        self.assertEqual(first["agent"], PROVENANCE["agent"])
        self.assertEqual(await self.targets(), [[f"Patient/{id}/_history/1"]])
        for number, (method, url, body, headers) in enumerate((
            ("PUT", f"Patient/{id}", {**patient("1", "Other"), "id": id}, {}),
            ("PUT", "Patient?identifier=urn:mrn|1", patient("1", "Third"), {}),
            ("PATCH", f"Patient/{id}", b'[{"op":"add","path":"/active","value":true}]', {"content-type": JSON_PATCH}),
            ("PATCH", "Patient?identifier=1", b'[{"op":"remove","path":"/active"}]', {"content-type": JSON_PATCH}),
        ), 2):  # fmt: skip
            self.world.pass_time()
            answer = await self.send(method, url, body, **headers)
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual((await self.targets())[-1], [f"Patient/{id}/_history/{number}"])
        found = loads((await self.world.send("GET", f"Provenance?target=Patient/{id}&_summary=count")).body)
        self.assertEqual(found["total"], 5)
        included = loads((await self.world.send("GET", f"Patient?_id={id}&_revinclude=Provenance:target")).body)
        self.assertEqual(len(included["entry"]), 6)

    async def test_transaction(self) -> None:
        """One for all that it writes; names of entries in the header mean their resources."""
        await self.world.send("PUT", "Patient/gone", patient("9", id="gone"))
        await self.world.send("PUT", "Patient/same", patient("8", id="same"))
        person = {"resourceType": "Practitioner", "name": [{"family": "Zwölf"}]}
        sent = bundle(
            ("POST", "Practitioner", person),
            ("PUT", "Patient/p", patient("1", id="p")),
            ("DELETE", "Patient/gone", None),
            ("PUT", "Patient/same", patient("8", id="same")),
            ("GET", "Patient/same", None),
        )
        sent["entry"][0]["fullUrl"] = "urn:uuid:0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e55"
        who = [{"who": {"reference": "urn:uuid:0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e55"}}]
        answer = await self.send("POST", "", sent, header(agent=who, target=[{"reference": "Patient/sent"}]))
        self.assertEqual(answer.status, 200, answer.body)
        entries = loads(answer.body)["entry"]
        self.assertEqual([one["response"]["status"][:3] for one in entries], ["201", "201", "204", "200", "200"])
        practitioner = entries[0]["response"]["location"].removeprefix(f"{BASE}/").partition("/_history")[0]
        self.assertEqual(await self.targets(), [[f"{practitioner}/_history/1", "Patient/p/_history/1"]])
        (stored,) = await self.stored()
        self.assertEqual(stored["agent"], [{"who": {"reference": practitioner}}])

    async def test_own_urls_and_conditional_references(self) -> None:
        await self.world.send("PUT", "Patient/me", patient("5", id="me"))
        for reference in (f"{BASE}/Patient/me", "Patient?identifier=urn:mrn|5"):
            self.world.pass_time()
            text = header(agent=[{"who": {"reference": reference}}])
            answer = await self.send("POST", "Basic", {"resourceType": "Basic", "code": {"text": "x"}}, text)
            self.assertEqual(answer.status, 201, answer.body)
            self.assertEqual((await self.stored())[-1]["agent"], [{"who": {"reference": "Patient/me"}}])
        missing = header(agent=[{"who": {"reference": "Patient?identifier=none"}}])
        answer = await self.send("POST", "Basic", {"resourceType": "Basic", "code": {"text": "x"}}, missing)
        self.assertEqual((answer.status, issues(answer)[0][2]), (412, "X-Provenance"))

    async def test_nothing_written(self) -> None:
        """A create that finds its resource, and an update that changes nothing, have none."""
        await self.world.send("PUT", "Patient/p", patient("1", id="p"))
        for answer in (
            await self.send("POST", "Patient", patient("1"), **{"if-none-exist": "identifier=urn:mrn|1"}),
            await self.send("PUT", "Patient/p", patient("1", id="p")),
            await self.send("POST", "", bundle(("PUT", "Patient/p", patient("1", id="p")))),
            await self.send("POST", "", bundle(("DELETE", "Patient/none", None))),
            await self.send("GET", "Patient/p"),
            await self.send("POST", "Patient/_search", b"", **{"content-type": "application/x-www-form-urlencoded"}),
        ):
            self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(await self.stored(), [])

    async def test_it_is_stored_with_the_write_or_neither(self) -> None:
        await self.world.send("PUT", "Patient/p", patient("1", id="p"))
        refused = await self.send("PUT", "Patient/p", patient("2", id="p"), **{"if-match": 'W/"7"'})
        self.assertEqual(refused.status, 412)
        for text in (header(agent=[]), header(recorded="soon"), header(nonsense=1)):
            answer = await self.send("PUT", "Patient/p", patient("3", id="p"), text)
            self.assertIn(answer.status, (400, 422), answer.body)
        self.assertEqual(await self.stored(), [])
        self.assertEqual(len(await self.world.versions("Patient/p")), 1)

    async def test_forms_of_the_header(self) -> None:
        for text in (header(), quote(dumps(PROVENANCE).decode()), f" {header()}"):
            self.world.pass_time()
            answer = await self.send("POST", "Patient", patient("1"), text)
            self.assertEqual(answer.status, 201, answer.body)
            self.assertEqual((await self.stored())[-1]["agent"], PROVENANCE["agent"])

    async def test_what_cannot_be_used(self) -> None:
        """A 4xx that names the header; nothing is stored."""
        deep = '{"resourceType":"Provenance","x":' + "[" * 5000 + "]" * 5000 + "}"
        for text, statuses in (
            ("", {400}), ("x", {400}), ("[]", {400}), ("{}", {400}), (dumps(patient("1")).decode(), {400}),
            (header(target="x", agent="y"), {400}), (header(note="x" * 20_000), {413}), (deep, {400, 413, 422}),
            ("%7B", {400}), ("%ff", {400}), ("\xff", {400}), (header(id="\x00"), {400, 422}),
            ('{"resourceType":"Provenance","resourceType":"Provenance"}', {400}),
        ):  # fmt: skip
            answer = await self.send("POST", "Patient", patient("1"), text)
            self.assertIn(answer.status, statuses, (text[:60], answer.body[:300]))
            self.assertIn("X-Provenance", str(issues(answer)), text[:60])
        self.assertEqual(loads((await self.world.send("GET", "Patient")).body)["total"], 0)

    async def test_writes_that_take_none(self) -> None:
        """They say so instead of dropping it."""
        await self.world.send("PUT", "Patient/p", patient("1", id="p"))
        meta = {"resourceType": "Parameters", "parameter": [{"name": "meta", "valueMeta": {"tag": [{"code": "t"}]}}]}
        for method, url, body in (
            ("DELETE", "Patient/p", None), ("DELETE", "Patient?identifier=1", None),
            ("POST", "", bundle(("PUT", "Patient/p", patient("2", id="p")), kind="batch")),
            ("POST", "Patient/p/$meta-add", meta),
        ):  # fmt: skip
            answer = await self.send(method, url, body)
            self.assertEqual((answer.status, issues(answer)[0][2]), (400, "X-Provenance"), (method, url))
        self.assertEqual(len(await self.world.versions("Patient/p")), 1)

    async def test_rights(self) -> None:
        """It needs the right to create a Provenance; a client of one patient writes about this Patient only."""
        await self.world.send("PUT", "Patient/p", patient("9", id="p"))
        for scopes, status in (("system/Patient.c", 401), ("system/Patient.c system/Provenance.c", 201)):
            self.world.caller = Caller("a", scopes=tuple(scopes.split()))
            answer = await self.send("POST", "Patient", patient("1"))
            self.assertEqual(answer.status, status, answer.body)
        scopes = "patient/Patient.u", "patient/Provenance.c", "patient/Observation.c"
        for who, status in (("p", 200), ("q", 404)):
            self.world.caller = Caller("a", scopes=scopes, patient=who)
            answer = await self.send("PUT", "Patient/p", patient("9", "New", id="p"))
            self.assertEqual(answer.status, status, answer.body)
        self.world.caller = Caller("a", scopes=scopes, patient="p")
        subject = {"status": "final", "code": {"text": "x"}, "subject": {"reference": "Patient/p"}}
        answer = await self.send("POST", "Observation", {"resourceType": "Observation", **subject})
        self.assertEqual(answer.status, 401, "a Provenance about it is not in the compartment of the patient")
        self.world.caller = OPEN
        self.assertEqual(len(await self.stored()), 2)
        self.assertNotIn(b"Observation/", (await self.world.send("GET", "Observation")).body)

    async def test_many(self) -> None:
        """A Provenance has at most a thousand targets."""
        for number, status in ((20, 200), (1001, 400)):
            entries = [("POST", "Patient", patient(str(one))) for one in range(number)]
            answer = await self.send("POST", "", bundle(*entries))
            self.assertEqual(answer.status, status, answer.body[:300])
        self.assertEqual([len(one) for one in await self.targets()], [20])

    async def test_beside_other_requests(self) -> None:
        """It shares a database transaction with others."""
        other = unit(create(patient("7")))
        await self.world.commit(other, replace(other, entries=(create(patient("6")),)))
        made = await self.send("POST", "Patient", patient("1"))
        self.assertEqual(await self.targets(), [[f"Patient/{loads(made.body)['id']}/_history/1"]])

    async def test_it_is_stated(self) -> None:
        self.assertIn(b"X-Provenance", (await self.world.send("GET", "metadata")).body)


class ProvenanceInMemoryTests(ProvenanceSuite, OnMemory):
    pass


class ProvenanceOnPostgresTests(ProvenanceSuite, OnSharedPostgres):
    pass
