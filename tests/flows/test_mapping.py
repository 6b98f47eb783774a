"""Mapping from the operator's side: unmapped codes settled and converted again, reload, $transform, a remote
service."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import scratch
from tests.flows.test_end_to_end import answer_to
from tests.service_process import ServiceProcess
from tests.traffic.psql import psql
from tests.waiting import PATIENCE, until

GROUP = "flows"
WARDS = "urn:test:concepts:ward"
MAP = """
/// url = "urn:test:map:ADT_A01"
/// types = "ADT_A01 ADT_A08"
uses "http://hl7.org/fhir/StructureDefinition/Bundle" alias Bundle as target
group ADT_A01(source src : ADT_A01, target bundle : Bundle) {
  src.PID as pid -> bundle.entry as e, e.resource = create('Patient') as patient then {
    pid.PID_3 as cx -> patient.identifier as id, id.system = 'urn:test:mr' then { cx.CX_1 as v -> id.value = v; };
    pid.PID_8 as sex -> patient.gender = translate(sex, 'urn:test:concepts:sex', 'code');
    pid.PID_13 as phone -> patient.telecom as t, t.value = phone;
  };
}
"""
PERSON = """
/// url = "urn:test:map:person"
uses "http://hl7.org/fhir/StructureDefinition/Patient" alias Patient as source
uses "http://hl7.org/fhir/StructureDefinition/Person" alias Person as target
group person(source src : Patient, target tgt : Person) {
  src.gender as gender -> tgt.gender = gender;
}
"""
TABLE = {
    "resourceType": "ConceptMap",
    "url": "urn:test:concepts:sex",
    "group": [{"element": [{"code": "F", "target": [{"code": "female", "equivalence": "equal"}]}]}],
}


def message(control_id: str, patient: str, sex: str, phone: str, sender: str = "FEED") -> bytes:
    """A small ADT^A01 in its frame."""
    return (
        f"\x0bMSH|^~\\&|{sender}|GENERAL|IPF|IPF|20260102030405||ADT^A01^ADT_A01|{control_id}|P|2.5.1\r"
        f"PID|1||{patient}||Hansen^Kari||19700315|{sex}|||||{phone}\r\x1c\r"
    ).encode()


def maps_folder(folder: Path) -> Path:
    """A folder of one small map and its table."""
    for name, text in (("messages/ADT_A01.fml", MAP), ("codesystems/sex.json", json.dumps(TABLE))):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


class Running:
    """`async with Running(...)`: a service on a maps folder of its own."""

    def __init__(self, **environment: str) -> None:
        self.folder = scratch()
        self.maps = maps_folder(self.folder / "maps")
        self.service = ServiceProcess(self.folder / "service", IPF_MAPS_DIR=str(self.maps), **environment)

    async def __aenter__(self) -> Running:
        self.service.start()
        await until(lambda: asyncio.to_thread(self.service.ready))
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            self.service.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    async def http(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """One exchange."""
        return await asyncio.to_thread(self.service.request, method, path, body, headers)

    async def send(self, *frames: bytes) -> None:
        """Send messages; each must be accepted."""
        for frame in frames:
            answer = await answer_to(self.service.mllp_port, frame)
            assert answer[1].startswith(b"MSA|AA"), answer

    async def until(self, path: str, enough: Any, seconds: float = PATIENCE) -> Any:
        """GET until the answer is as it should be."""
        body: Any = None

        async def is_enough() -> bool:
            nonlocal body
            _, body = await self.http("GET", path)
            return bool(enough(body))

        try:
            await until(is_enough, path, seconds=seconds)
        except AssertionError:
            raise AssertionError(f"{path}: {body}\n{self.service.log_tail()}") from None
        return body


class UnmappedCodeTests(TestCase):
    timeout = LIMIT  # maps that are changed in all processes

    def test_an_operator_maps_a_code_once(self) -> None:
        """Recorded, answered, converted again in order; the original rows stay as they are."""
        run(self._unmapped())

    def test_an_operator_sees_what_no_rule_read(self) -> None:
        """Counted by sender and path, with a message whose trace says the same; forgotten when it is mended."""
        run(self._unread())

    async def _unread(self) -> None:
        async with Running() as running:
            await running.send(message("M1", "P1", "F", "+1"), message("M2", "P2", "F", "+2"))
            path = "/admin/unread-fields?source_system=FEED&path=PID-7"
            page = await running.until(path, lambda page: sum(item["occurrences"] for item in page["items"]) == 2)
            row = page["items"][0]
            self.assertEqual((row["message_type"], row["kind"], row["message_id"]), ("ADT_A01", "unread", 2))
            _, listed = await running.http("GET", "/admin/unread-fields?source_system=FEED")
            self.assertNotIn("PID-3", [item["path"] for item in listed["items"]])
            _, trace = await running.http("GET", f"/admin/messages/{row['message_id']}/trace")
            traced = [(item["path"], item["segment"], item["kind"]) for item in trace["unread"]]
            self.assertEqual({path for path, _, _ in traced}, {item["path"] for item in listed["items"]})
            self.assertIn(("PID-7", "PID", "unread"), traced)
            body = {"ids": [1], "dry_run": True}
            _, preview = await running.http("POST", "/admin/messages/replay", body)
            self.assertIn({"kind": "unread", "path": "PID-7", "reason": None}, preview["items"][0]["unread"])
            status, _ = await running.http("DELETE", f"/admin/unread-fields/{row['id']}")
            self.assertEqual(status, 204)
            self.assertEqual((await running.http("GET", path))[1]["total"], 0)

    async def _unmapped(self) -> None:
        async with Running() as running:
            await running.send(
                message("M1", "P1", "W", "+1"), message("M2", "P1", "W", "+2"), message("M3", "P2", "W", "+3", "OTHER")
            )
            path = "/admin/unmapped-codes"
            page = await running.until(path, lambda page: sum(item["count"] for item in page["items"]) == 3)
            self.assertEqual(page["total"], 2)
            _, mine = await running.http("GET", "/admin/unmapped-codes?source_system=FEED&status=open")
            code = mine["items"][0]
            self.assertEqual((code["code"], code["concept_map"], code["messages"]), ("W", TABLE["url"], 2))
            patient = await self._patient(running, "P1")
            self.assertNotIn("gender", patient)
            await self._refusals(running, code["id"])
            path = f"/admin/unmapped-codes/{code['id']}"
            body = {"system": "http://hl7.org/fhir/administrative-gender", "code": "female"}
            status, override = await running.http("POST", f"{path}/map", body)
            self.assertEqual((status, override["source_system"], override["code"]), (200, "FEED", "female"))
            status, done = await running.http("POST", f"{path}/requeue")
            self.assertEqual((status, done["converted_again"], done["following"]), (200, 2, 0))
            await running.until(
                "/admin/conversions", lambda page: [i["status"] for i in page["items"]] == ["DELIVERED"] * 2
            )
            patient = await self._patient(running, "P1")
            self.assertEqual((patient["gender"], patient["telecom"][0]["value"]), ("female", "+2"))
            self.assertNotIn("gender", await self._patient(running, "P2"))
            _, rows = await running.http("GET", "/admin/messages")
            self.assertEqual((rows["total"], {row["status"] for row in rows["items"]}), (3, {"DELIVERED"}))
            await running.send(message("M4", "P3", "W", "+4"))
            await running.until("/fhir/Patient?identifier=P3", lambda page: page["total"] == 1)
            self.assertEqual((await self._patient(running, "P3"))["gender"], "female")
            self.assertEqual((await running.http("DELETE", f"/admin/code-overrides/{override['id']}"))[0], 204)
            self.assertEqual((await running.http("GET", "/admin/code-overrides"))[1]["total"], 0)

    async def _patient(self, running: Running, identifier: str) -> Any:
        page = await running.until(f"/fhir/Patient?identifier={identifier}", lambda page: page["total"] == 1)
        return page["entry"][0]["resource"]

    async def _refusals(self, running: Running, number: int) -> None:
        path = f"/admin/unmapped-codes/{number}"
        for method, where, body, status in (
            ("POST", f"{path}/map", {}, 400),
            ("POST", f"{path}/map", {"code": "x", "scope": "world"}, 400),
            ("POST", f"{path}/map", {"code": 7}, 400),
            ("POST", f"{path}/requeue", {"following": "yes"}, 400),
            ("POST", "/admin/unmapped-codes/999/requeue", None, 404),
            ("POST", "/admin/unmapped-codes/x/map", {"code": "a"}, 400),
            ("GET", "/admin/unmapped-codes?status=closed", None, 400),
            ("DELETE", "/admin/code-overrides/999", None, 404),
            ("POST", "/admin/conversions/999/retry", None, 404),
            ("PUT", path, None, 405),
        ):
            answered, refused = await running.http(method, where, body)
            self.assertEqual((answered, set(refused)), (status, {"error", "message"}), (method, where))


class ReloadTests(TestCase):
    timeout = LIMIT  # maps that are changed in all processes

    def test_maps_are_read_again(self) -> None:
        """In every process; a broken map is refused with its line and the working one stays."""
        run(self._reload())

    async def _reload(self) -> None:
        async with Running() as running:
            path = running.maps / "messages/ADT_A01.fml"
            await running.send(message("M0", "P0", "F", "+1"))
            await running.until("/fhir/Patient?identifier=P0", lambda page: page["total"] == 1)
            path.write_text(MAP.replace("patient.gender", "patient.sex"))
            status, refused = await running.http("POST", "/admin/mapping/reload")
            self.assertEqual((status, refused["error"]), (422, "bad_request"))
            self.assertIn("messages/ADT_A01.fml:8:", refused["message"])
            await running.send(message("M1", "P1", "F", "+1"))
            await running.until("/fhir/Patient?identifier=P1&gender=female", lambda page: page["total"] == 1)
            await self._trace(running)
            _, before = await running.http("GET", "/admin/mapping")
            path.write_text(MAP.replace("t.value = phone", "t.value = phone, t.system = 'phone'"))
            status, after = await running.http("POST", "/admin/mapping/reload")
            self.assertEqual(status, 200, after)
            self.assertNotEqual(before["maps"][0]["digest"], after["maps"][0]["digest"])
            self.assertEqual(after["maps"][0]["message_types"], ["ADT_A01", "ADT_A08"])
            await self._in_use(running, "P2")
            await self._versions(running, before["maps"][0]["digest"], after["maps"][0]["digest"])
            await self._posted(running)
            path.write_text(MAP)
            running.service.hang_up()
            digest = before["maps"][0]["digest"]
            await running.until("/admin/mapping", lambda found: found["maps"][0]["digest"] == digest)

    async def _versions(self, running: Running, first: str, last: str) -> None:
        """Effects and trace name the map that ran at the time, and not the one in use now."""
        _, rows = await running.http("GET", "/admin/messages")
        for row, digest in ((rows["items"][-1], first), (rows["items"][0], last)):
            _, effects = await running.http("GET", f"/admin/messages/{row['id']}/effects")
            transform = effects["transform"]
            self.assertEqual((transform["map"], transform["version"]), ("urn:test:map:ADT_A01", digest[:12]))
            _, trace = await running.http("GET", f"/admin/observe/trace/{row['correlation_id']}")
            transform = trace["messages"][0]["transform"]
            self.assertEqual((transform["map_url"], transform["version"]), ("urn:test:map:ADT_A01", digest[:12]))

    async def _posted(self, running: Running) -> None:
        """A map that is posted is in use in converter processes, too."""
        text = MAP.replace("t.value = phone", "t.value = phone, t.system = 'phone', t.use = 'home'")
        kind = {"Content-Type": "text/fhir-mapping"}
        status, kept = await running.http("POST", "/mapping/fhir/StructureMap", text.encode(), kind)
        self.assertEqual((status, kept["url"]), (201, "urn:test:map:ADT_A01"))
        await self._in_use(running, "P3", "use", "home")
        status, refused = await running.http("POST", "/mapping/fhir/StructureMap", text[:200].encode(), kind)
        self.assertEqual((status, refused["resourceType"]), (422, "OperationOutcome"))
        raw = message("M9", "P9", "F", "+9").strip(b"\x0b\x1c\r")
        path = "/mapping/fhir/StructureMap/$transform?source=urn:test:map:ADT_A01"
        status, bundle = await running.http("POST", path, raw, {"Content-Type": "x-application/hl7-v2+er7"})
        self.assertEqual((status, bundle["entry"][0]["resource"]["telecom"][0]["use"]), (200, "home"))
        self.assertEqual((await running.http("DELETE", f"/mapping/fhir/StructureMap/{kept['id']}"))[0], 204)

    async def _in_use(self, running: Running, patient: str, name: str = "system", value: str = "phone") -> None:
        """Converter processes are notified, so it takes a moment."""
        query = f"/fhir/Patient?identifier={patient}"
        numbers = itertools.count()

        async def mapped() -> bool:
            number = next(numbers)
            await running.send(message(f"{patient}-{number}", patient, "F", f"+{number}"))
            found = await running.until(query, lambda page: page["total"] == 1)
            return bool(found["entry"][0]["resource"]["telecom"][0].get(name) == value)

        await until(mapped)

    async def _trace(self, running: Running) -> None:
        _, rows = await running.http("GET", "/admin/messages")
        status, trace = await running.http("GET", f"/admin/messages/{rows['items'][0]['id']}/trace")
        self.assertEqual((status, trace["map_url"]), (200, "urn:test:map:ADT_A01"))
        steps = [step for step in trace["steps"] if step["rule"] == "PID_8"]
        self.assertEqual(steps[0]["sources"], ["PID-8[1]"])
        self.assertEqual((await running.http("GET", "/admin/messages/999/trace"))[0], 404)


class BrokenMapTests(TestCase):
    timeout = LIMIT  # a service that is started twice

    def test_a_stored_map_that_no_longer_compiles(self) -> None:
        """The service starts and converts; the map is listed with its mistake, and blocks no other."""
        run(self._broken())

    async def _broken(self) -> None:
        kind = {"Content-Type": "text/fhir-mapping"}
        async with Running() as running:
            status, kept = await running.http("POST", "/mapping/fhir/StructureMap", PERSON.encode(), kind)
            self.assertEqual(status, 201, kept)
            self.assertEqual((await self._transformed(running))[0], 200)
            typo = "UPDATE mapping_resources SET content = replace(content, 'src.gender', 'src.gendre')"
            psql(Path(running.service.environment["IPF_DATA_DIR"]) / "postgres", typo)
            await asyncio.to_thread(running.service.stop)
            running.service.start()
            await until(lambda: asyncio.to_thread(running.service.ready))
            await running.send(message("B1", "PB", "F", "+1"))
            await running.until("/fhir/Patient?identifier=PB&gender=female", lambda page: page["total"] == 1)
            place = f"StructureMap/{kept['id']} (installed over HTTP):6:"
            status, outcome = await self._transformed(running)
            self.assertEqual(status, 422)
            self.assertIn(place, json.dumps(outcome))
            _, listed = await running.http("GET", "/admin/mapping")
            mistakes = {one["url"]: one["mistake"] for one in listed["maps"]}
            self.assertEqual((mistakes["urn:test:map:person"]["line"], mistakes["urn:test:map:ADT_A01"]), (6, None))
            self.assertIn("event=mapping_broken map=urn:test:map:person", running.service.log_path.read_text())
            other = PERSON.replace("map:person", "map:other")
            self.assertEqual((await running.http("POST", "/mapping/fhir/StructureMap", other.encode(), kind))[0], 201)
            self.assertEqual((await self._transformed(running, "other"))[0], 200)
            status, refused = await running.http("POST", "/admin/mapping/reload")
            self.assertEqual(status, 200, refused)
            spare = PERSON + "group spare(source src : Patient, target tgt : Person) { src.gendre as g; }\n"
            status, outcome = await running.http("POST", "/mapping/fhir/StructureMap", spare.encode(), kind)
            self.assertEqual(status, 422)
            self.assertIn(":8:", json.dumps(outcome))
            self.assertEqual((await running.http("POST", "/mapping/fhir/StructureMap", PERSON.encode(), kind))[0], 200)
            self.assertEqual((await self._transformed(running))[0], 200)

    async def _transformed(self, running: Running, name: str = "person") -> tuple[int, Any]:
        path = f"/mapping/fhir/StructureMap/$transform?source=urn:test:map:{name}"
        return await running.http("POST", path, {"resourceType": "Patient", "gender": "female"})


class ValidationTests(TestCase):
    timeout = LIMIT  # maps that are changed in all processes

    def test_an_invalid_message_is_refused_with_rule_line_and_field(self) -> None:
        """A valid one of the same map is stored; the trace has the finding."""
        run(self._refused())

    async def _refused(self) -> None:
        running = Running(IPF_CONVERSION_VALIDATION="refuse", IPF_PERMANENT_ERRORS="dead_letter")
        copied = MAP.replace("translate(sex, 'urn:test:concepts:sex', 'code')", "sex")
        (running.maps / "messages" / "ADT_A01.fml").write_text(copied)
        async with running:
            await running.send(message("M1", "P1", "QQ", "+1"))
            await running.send(message("M2", "P2", "female", "+2"))
            await running.until("/fhir/Patient?identifier=P2", lambda page: page["total"] == 1)
            rows = await running.until("/admin/messages?status=DEAD_LETTER", lambda page: page["total"] == 1)
            row = rows["items"][0]
            self.assertIn("Bundle.entry[0].resource: not valid: Patient.gender: ", row["last_error"])
            self.assertIn("made by messages/ADT_A01.fml:8 (ADT_A01 'PID_8') from PID-8[1]", row["last_error"])
            self.assertNotIn("QQ", row["last_error"])
            _, found = await running.http("GET", "/fhir/Patient?identifier=P1")
            self.assertEqual(found["total"], 0)
            _, trace = await running.http("GET", f"/admin/messages/{row['id']}/trace")
            self.assertEqual([(one["element"], one["line"]) for one in trace["findings"]], [("Patient.gender", 8)])


class RemoteMappingTests(TestCase):
    timeout = LIMIT  # maps that are changed in all processes

    def test_a_second_ipf_maps(self) -> None:
        """As if it were in the process: codes are queued and answered here, and an outage is only waited for."""
        run(self._remote())

    async def _remote(self) -> None:
        async with Running(IPF_WORKER_ENABLED="false") as far:
            mapping = f"{far.service.base_url}/mapping/fhir"
            patient = {"IPF_BACKOFF_BASE_MS": "200", "IPF_BACKOFF_MAX_MS": "1000", "IPF_MAX_ATTEMPTS": "60"}
            near = Running(IPF_MAPPING_URL=mapping, IPF_WORKER_PROCESSES="0", **patient)
            (near.maps / "messages/ADT_A01.fml").unlink()
            async with near:
                await near.send(message("M1", "P1", "W", "+1"))
                page = await near.until("/admin/unmapped-codes", lambda page: page["total"] == 1)
                path = f"/admin/unmapped-codes/{page['items'][0]['id']}"
                self.assertEqual((await near.http("POST", f"{path}/map", {"code": "female"}))[0], 200)
                self.assertEqual((await near.http("POST", f"{path}/requeue"))[1]["converted_again"], 1)
                await near.until("/fhir/Patient?identifier=P1&gender=female", lambda page: page["total"] == 1)
                await asyncio.to_thread(far.service.stop)
                await near.send(message("M2", "P2", "F", "+2"))
                rows = await near.until(
                    "/admin/messages?source_id=M2", lambda page: page["items"][0]["status"] == "FAILED"
                )
                error = rows["items"][0]["last_error"]
                self.assertIn("failed: no response from the mapping service", error)
                self.assertTrue(error.endswith("It is tried again."), error)
                far.service.start()
                await near.until("/fhir/Patient?identifier=P2&gender=female", lambda page: page["total"] == 1, 60)
