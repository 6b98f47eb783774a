"""What many FHIR clients at once rely on, over HTTP, on one real service with its own PostgreSQL."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import scratch
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE, until

GROUP = "clients"
AT_ONCE = 50
EXPORTED = 6_000
SYSTEM = "urn:flow"

Json = dict[str, Any]


def patient(number: str, **more: Any) -> Json:
    """A Patient with one identifier."""
    return {"resourceType": "Patient", "identifier": [{"system": SYSTEM, "value": number}], **more}


def transaction(*resources: Json) -> Json:
    """A Bundle that puts these."""
    entries = [
        {"resource": one, "request": {"method": "PUT", "url": f"{one['resourceType']}/{one['id']}"}}
        for one in resources
    ]
    return {"resourceType": "Bundle", "type": "transaction", "entry": entries}


def keys_of(page: Json, *modes: str) -> list[str]:
    """`Type/id` of the entries of a page; of these search modes, when they are named."""
    return [
        f"{entry['resource']['resourceType']}/{entry['resource']['id']}"
        for entry in page.get("entry", ())
        if not modes or entry["search"]["mode"] in modes
    ]


class FhirClientFlowTests(TestCase):
    timeout = LIMIT  # an export through a kill of the service

    def test_clients_at_once(self) -> None:
        """One resource for one match key, pages that hold still, loops that end, and an export that outlives a kill."""
        run(self._flow())

    async def _flow(self) -> None:
        folder = scratch()
        self.pool = ThreadPoolExecutor(AT_ONCE)
        self.service = ServiceProcess(folder / "service", IPF_WORKER_PROCESSES="0", IPF_WORKER_ENABLED="false")
        try:
            self.service.start()
            await self._ready()
            await self._conditional_creates()
            await self._conditional_updates()
            await self._create_beside_conditional_create()
            await self._history_while_writing()
            await self._loops_of_references()
            await self._everything_in_pages()
            await self._merge_and_back()
            await self._sets_of_codes()
            await self._export_outlives_a_kill()
        finally:
            self.pool.shutdown()
            self.service.stop()
            shutil.rmtree(folder, ignore_errors=True)

    async def _ready(self) -> None:
        await until(lambda: asyncio.to_thread(self.service.ready))

    async def _begun(self, address: str) -> Any:
        """The answer about an export, once it has progress to show or has ended."""
        answer = await self.exchange(address)
        return not (answer[0] == 202 and answer[1]["x-progress"].startswith("0 ")) and answer

    async def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """Status and parsed body of one exchange on a connection of its own."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pool, self.service.request, method, f"/fhir/{path}", body, headers)

    async def exchange(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of a GET that may be answered later."""

        def blocking() -> tuple[int, dict[str, str], bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", self.service.http_port, timeout=PATIENCE)
            connection.request("GET", path, headers={"Prefer": "respond-async"})
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body

        return await asyncio.get_running_loop().run_in_executor(self.pool, blocking)

    async def get(self, path: str) -> Any:
        """What a read or search gives, which must succeed."""
        status, found = await self.ask("GET", path)
        self.assertEqual(status, 200, (path, found))
        return found

    async def store(self, *resources: Json) -> None:
        """Put these in one transaction."""
        status, answer = await self.ask("POST", "", transaction(*resources))
        self.assertEqual(status, 200, answer)

    async def pages(self, path: str, most: int = 1000) -> list[Json]:
        """All pages of a search or history, by their links."""
        found = [await self.get(path)]
        while (more := self.next_of(found[-1])) is not None:
            found.append(await self.get(more))
            self.assertLess(len(found), most, path)
        return found

    def next_of(self, page: Json) -> str | None:
        """Where a page continues, relative to the base."""
        link = next((one["url"] for one in page["link"] if one["relation"] == "next"), None)
        if link is None:
            return None
        parts = urlsplit(link)
        return f"{parts.path.removeprefix('/fhir').removeprefix('/')}?{parts.query}"

    async def _conditional_creates(self) -> None:
        """The same If-None-Exist of fifty clients: one of them creates, the others are shown what it made."""
        condition = {"If-None-Exist": f"identifier={SYSTEM}|once"}
        answers = await asyncio.gather(
            *(self.ask("POST", "Patient", patient("once"), condition) for _ in range(AT_ONCE))
        )
        self.assertEqual(sorted(status for status, _ in answers), [200] * (AT_ONCE - 1) + [201])
        self.assertEqual(len({body["id"] for _, body in answers}), 1)
        self.assertEqual((await self.get(f"Patient?identifier={SYSTEM}|once"))["total"], 1)

    async def _conditional_updates(self) -> None:
        """Fifty upserts of different content: one resource, a version for each that said something new."""
        answers = await asyncio.gather(*(
            self.ask("PUT", f"Patient?identifier={SYSTEM}|upsert", patient("upsert", birthDate=f"19{number + 10}"))
            for number in range(AT_ONCE)
        ))  # fmt: skip
        self.assertEqual(sorted(status for status, _ in answers), [200] * (AT_ONCE - 1) + [201])
        self.assertEqual(len({body["id"] for _, body in answers}), 1)
        versions = sorted(int(body["meta"]["versionId"]) for _, body in answers)
        self.assertEqual(versions, list(range(1, AT_ONCE + 1)))

    async def _create_beside_conditional_create(self) -> None:
        """R4 promises no uniqueness to a plain create: it always creates, and conditional ones make one at most."""
        condition = {"If-None-Exist": f"identifier={SYSTEM}|race"}
        answers = await asyncio.gather(*(
            self.ask("POST", "Patient", patient("race"), condition if number else None) for number in range(10)
        ))  # fmt: skip
        plain, others = answers[0], answers[1:]
        self.assertEqual(plain[0], 201)
        self.assertLessEqual({status for status, _ in others}, {200, 201, 412}, "412: both were there already")
        self.assertLessEqual(sum(status == 201 for status, _ in others), 1)
        self.assertIn((await self.get(f"Patient?identifier={SYSTEM}|race"))["total"], (1, 2))

    async def _history_while_writing(self) -> None:
        """Every version that was there at the first page comes once, while another client goes on writing."""
        for number in range(20):
            await self.ask("PUT", "Basic/h", {"resourceType": "Basic", "id": "h", "code": {"text": f"{number}"}})
        done = asyncio.Event()

        async def write() -> int:
            number = 100
            while not done.is_set():
                body = {"resourceType": "Basic", "id": "h", "code": {"text": f"{number}"}}
                self.assertEqual((await self.ask("PUT", "Basic/h", body))[0], 200)
                number += 1
            return number - 100

        for path in ("Basic/h/_history?_count=3", "Basic/_history?_count=3", "_history?_count=7"):
            before = int((await self.get("Basic/h"))["meta"]["versionId"])
            done.clear()
            writing = asyncio.ensure_future(write())
            found = await self.pages(path)
            done.set()
            self.assertGreater(await writing, 0)
            seen = [
                int(entry["resource"]["meta"]["versionId"])
                for page in found
                for entry in page["entry"]
                if entry["resource"]["resourceType"] == "Basic"
            ]
            self.assertEqual(seen, list(range(seen[0], 0, -1)), path)
            self.assertGreaterEqual(seen[0], before, path)

    async def _loops_of_references(self) -> None:
        """Organizations that are part of one another in a circle: each comes once, and the search ends."""
        await self.store(
            *({"resourceType": "Organization", "id": f"o{n}", "partOf": {"reference": f"Organization/o{(n + 1) % 4}"}}
              for n in range(4)),
            {**patient("loop"), "id": "loop", "managingOrganization": {"reference": "Organization/o0"}},
        )  # fmt: skip
        whole = [f"Organization/o{n}" for n in range(4)]
        found = await self.get("Patient?_id=loop&_include=Patient:organization&_include:iterate=Organization:partof")
        self.assertEqual(keys_of(found, "match"), ["Patient/loop"])
        self.assertEqual(sorted(keys_of(found, "include")), whole)
        found = await self.get("Organization?_id=o1&_revinclude:iterate=Organization:partof")
        self.assertEqual(keys_of(found, "match"), ["Organization/o1"])
        self.assertEqual(sorted(keys_of(found)), whole, "the match itself is not included again")
        found = await self.get("Organization?_id=o1&_include:iterate=*&_revinclude:iterate=Patient:*")
        self.assertEqual(sorted(keys_of(found)), [*whole, "Patient/loop"])

    async def _everything_in_pages(self) -> None:
        """The record of a patient and of an encounter, page by page: all of it, once, and nothing of others."""
        mine = [
            {"resourceType": "Encounter", "id": "e", "status": "finished", "class": {"code": "IMP"},
             "subject": {"reference": "Patient/all"}, "serviceProvider": {"reference": "Organization/o0"}},
            *({"resourceType": "Observation", "id": f"all{n}", "status": "final", "code": {"text": "x"},
               "subject": {"reference": "Patient/all"}, "encounter": {"reference": "Encounter/e"}} for n in range(11)),
        ]  # fmt: skip
        await self.store({**patient("all"), "id": "all"}, {**patient("other"), "id": "other"}, *mine, {
            "resourceType": "Observation", "id": "others", "status": "final", "code": {"text": "x"},
            "subject": {"reference": "Patient/other"},
        })  # fmt: skip
        observations = sorted(f"Observation/all{n}" for n in range(11))
        for path, record in (
            ("Patient/all/$everything?_count=4", ["Encounter/e", *observations, "Patient/all"]),
            ("Encounter/e/$everything?_count=4", ["Encounter/e", *observations]),
        ):
            found = await self.pages(path, 10)
            self.assertGreaterEqual(len(found), 3)
            self.assertEqual(sorted(key for page in found for key in keys_of(page, "match")), record, path)
            self.assertIn("Organization/o0", [key for page in found for key in keys_of(page, "include")], path)

    async def _merge_and_back(self) -> None:
        """Two Patients become one and two again; the audit trail names both."""
        source, target = {"reference": "Patient/other"}, {"reference": "Patient/all"}
        sent: Json = {"resourceType": "Parameters", "parameter": [
            {"name": "source-patient", "valueReference": source}, {"name": "target-patient", "valueReference": target},
        ]}  # fmt: skip
        for path, body, subject in (
            ("Patient/$merge", sent, target),
            ("Patient/all/$unmerge", {**sent, "parameter": sent["parameter"][:1]}, source),
        ):
            status, answer = await self.ask("POST", path, body)
            self.assertEqual(status, 200, answer)
            self.assertEqual((await self.get("Observation/others"))["subject"], subject)
        for path, subject in (("/admin/patient-merges", target), ("/admin/patient-merges/undo", source)):
            body = {"source": source["reference"], "target": target["reference"], "reason": "test"}
            status, answer = await asyncio.to_thread(self.service.request, "POST", path, body)
            self.assertEqual((status, answer.get("moved")), (200, {"Observation": 1}), answer)
            self.assertEqual((await self.get("Observation/others"))["subject"], subject)
        self.assertEqual(len(keys_of(await self.get("Provenance?target=Patient/other"))), 4)
        for one, other in (("Patient/all", "Patient/other"), ("Patient/other", "Patient/all")):
            found = await self.get(f"AuditEvent?entity={one}&subtype=operation")  # committed with the merges
            operations = [each["resource"]["entity"] for each in found.get("entry", ())]
            self.assertEqual(len(operations), 4)
            for entities in operations:
                named = {each.get("what", {}).get("reference", "").partition("/_history")[0] for each in entities}
                self.assertIn(one, named)
                self.assertNotIn(other, named)

    async def _sets_of_codes(self) -> None:
        """`:in` and `:not-in` by a value set that a client stored: its members, and all others with a code."""
        code_system = {"resourceType": "CodeSystem", "id": "c", "url": "urn:codes", "status": "active",
                       "content": "complete", "concept": [{"code": code} for code in ("a", "b", "c")]}  # fmt: skip
        value_set = {"resourceType": "ValueSet", "id": "v", "url": "urn:some", "status": "active",
                     "compose": {"include": [{"system": "urn:codes"}],
                                 "exclude": [{"system": "urn:codes", "concept": [{"code": "c"}]}]}}  # fmt: skip
        coded = [
            {"resourceType": "Observation", "id": f"in-{code}", "status": "final",
             "code": {"coding": [{"system": system, "code": code}]}}
            for code, system in (("a", "urn:codes"), ("b", "urn:codes"), ("c", "urn:codes"), ("x", "urn:other"))
        ]  # fmt: skip
        await self.store(code_system, value_set, *coded)
        found = await self.get("Observation?code:in=urn:some")
        self.assertEqual(sorted(keys_of(found)), ["Observation/in-a", "Observation/in-b"])
        found = await self.get("Observation?code:not-in=urn:some&_id=in-a,in-b,in-c,in-x")
        self.assertEqual(sorted(keys_of(found)), ["Observation/in-c", "Observation/in-x"])
        status, refused = await self.ask("GET", "Observation?code:in=urn:unknown")
        self.assertEqual((status, refused["resourceType"]), (404, "OperationOutcome"))

    async def _export_outlives_a_kill(self) -> None:
        """kill -9 while files are written: after the next start the job ends, with every resource once."""
        made = [{"resourceType": "Device", "id": f"d{n}", "status": "active"} for n in range(EXPORTED)]
        await self.store(*made)
        for _ in range(100):  # until one is seen that is under way
            _, headers, _ = await self.exchange("/fhir/$export?_type=Device")
            address = urlsplit(headers["content-location"]).path
            found = await until(partial(self._begun, address))
            if found[0] == 202:
                break
        self.assertEqual(found[0], 202, "it is under way")
        self.service.kill()
        self.service.start()
        await self._ready()

        async def ended() -> Any:
            answer = await self.exchange(address)
            return answer[0] != 202 and answer

        found = await until(ended)
        manifest = json.loads(found[2])
        self.assertEqual((found[0], manifest["error"]), (200, []))
        lines: list[bytes] = []
        for one in manifest["output"]:
            held = (await self.exchange(urlsplit(one["url"]).path))[2].splitlines()
            self.assertEqual(len(held), one["count"])
            lines += held
        self.assertEqual(sorted(json.loads(line)["id"] for line in lines), sorted(one["id"] for one in made))
