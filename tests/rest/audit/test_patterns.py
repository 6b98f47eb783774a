"""Every kind of record against R4 and IHE's Basic Audit Log Patterns; on both stores.

The patterns are `fhir/balp`, stated by hand from the published ones.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import loads
from ipf.fhir.profiles.library import own_urls
from ipf.fhir.validation.validator import Validator
from ipf.ports import ANONYMOUS, OPEN, BindingAttempt, Caller, Json, Session
from ipf.ports.audit.records import Audit, AuditContext
from ipf.ports.messages.mapping import Origin
from ipf.rest.audit.recorder import audited, binding_recorder
from ipf.security.audit.event import audit_event
from ipf.security.audit.patterns import PROFILES
from ipf.security.audit.rules import NOTIFICATION, AuditRules, id_suffixes
from tests.fakes.audit import MemoryAuditStore
from tests.rest.audit.test_audit import ID, NURSE, Trail
from tests.rest.world import BASE, OnMemory, create, patient, unit

VALIDATOR = Validator()
ALL = AuditRules(reads=True, searches=True)
LAB = Caller(subject="lab", client="lab", scopes=("system/*.cruds",), issuer="https://idp.example")
OBSERVATION: Json = {"resourceType": "Observation", "status": "final", "code": {"text": "x"}}
DEVICE: Json = {"resourceType": "Device", "deviceName": [{"name": "d", "type": "other"}]}


def errors(event: Json) -> list[tuple[str, str]]:
    """(code, location) of the errors of a record, by R4 and by the patterns that it names."""
    return [(one.code, one.location) for one in VALIDATOR.validate(event) if one.severity == "error"]


def pattern(event: Json) -> str:
    """The pattern that a record names; "" for none."""
    (profile,) = event["meta"].get("profile", [""])
    return str(profile).removeprefix(PROFILES)


class PatternsOnMemory(OnMemory):
    """Requests as clients send them."""

    async def setUp(self) -> None:
        await super().setUp()
        self.trail = Trail(self.world, MemoryAuditStore())

    async def _new(self, resource: Json, caller: Caller = NURSE) -> str:
        answer = await self.trail.send("POST", resource["resourceType"], resource, caller)
        return str(loads(answer.body)["id"])

    def _check(self, expected: list[str]) -> None:
        """The records are valid, and name these patterns."""
        events = [audit_event(one, BASE) for one in self.trail.noted]
        self.assertEqual([errors(event) for event in events], [[] for _ in events])
        self.assertEqual([pattern(event) for event in events], expected)

    async def test_each_interaction(self) -> None:
        self.trail.rules = ALL
        send = self.trail.send
        device = await self._new(DEVICE, LAB)
        one = await self._new(patient("1"))
        other = await self._new({**OBSERVATION, "subject": {"reference": f"Patient/{one}"}}, OPEN)
        reads = f"Device/{device}", f"Device/{device}/_history/1", f"Patient/{one}", f"Observation/{other}"
        for url in (*reads, "Device", f"Observation?patient={one}", f"Patient/{one}/_history"):
            await send("GET", url)
        await send(
            "POST", "Observation/_search", b"subject=Patient/p9", content_type="application/x-www-form-urlencoded"
        )
        await send("PUT", f"Device/{device}", {**DEVICE, "id": device, "lotNumber": "7"}, LAB)
        operations = [{"op": "add", "path": "/active", "value": True}]
        await send("PATCH", f"Patient/{one}", operations, content_type="application/json-patch+json")
        await send("GET", f"Patient/{one}/$everything")
        await send("DELETE", f"Device/{device}")
        await send("DELETE", f"Device/{device}", caller=LAB)
        bundle = {"resourceType": "Bundle", "type": "transaction", "entry": [
            {"resource": patient("5"), "request": {"method": "POST", "url": "Patient"}},
        ]}  # fmt: skip
        for kind in ("transaction", "batch"):
            await send("POST", "", {**bundle, "type": kind})
        self._check([
            "Create", "PatientCreate", "PatientCreate", "Read", "Read", "PatientRead", "PatientRead", "Query",
            "PatientQuery", "", "PatientQuery", "Update", "PatientUpdate", "", "Delete", "Delete", "", "",
        ])  # fmt: skip

    async def test_searches_name_the_patients_of_their_results(self) -> None:
        """One record for each, with what was shown of him; of the trail itself none."""
        self.trail.rules = ALL
        patients = [await self._new(patient(str(number))) for number in range(2)]
        for one in patients:
            await self._new({**OBSERVATION, "subject": {"reference": f"Patient/{one}"}})
        for url in ("Observation?status=final", "Observation?status=final&_include=Observation:subject", "Patient"):
            every = await self._made(url)
            made = [one for one in every if one.all_patients]  # another may have the complete query
            self.assertEqual({tuple(one.all_patients) for one in made}, {(f"Patient/{one}",) for one in patients}, url)
            for one in every:
                event = audit_event(one, BASE)
                self.assertEqual((pattern(event), errors(event)), ("PatientQuery" if one in made else "Query", []))
            self.assertEqual([len(one.entities) for one in made], [1 if "_include" not in url else 2] * 2)
        self.assertEqual([one.entities for one in await self._made(f"AuditEvent?patient={patients[0]}")], [()])

    async def _made(self, url: str) -> list[Audit]:
        """The records of a request."""
        before = len(self.trail.noted)
        await self.trail.send("GET", url)
        return self.trail.noted[before:]

    async def test_failures(self) -> None:
        """No pattern is of a failure."""
        for method, url, body, caller in (
            ("GET", "Patient/nobody", None, NURSE), ("GET", "Patient/nobody", None, ANONYMOUS),
            ("GET", "Patient?none=x", None, Caller("ada")), ("POST", "Patient", b"{", NURSE),
            ("PUT", "Patient/x", {"resourceType": "Device", "id": "x"}, LAB), ("DELETE", "AuditEvent/x", None, NURSE),
        ):  # fmt: skip
            self.assertGreater((await self.trail.send(method, url, body, caller)).status, 399)
        self._check([""] * 6)

    async def test_what_no_client_asked(self) -> None:
        """Converted messages and websocket clients."""
        clock, noted = self.world.repository.clock, self.trail.noted
        store = audited(self.world_commit, noted.append, clock, id_suffixes())
        origin = Origin("urn:oid:1.2.3", "LAB", (("facility", "NORTH"),))
        await store([replace(unit(create(patient("7")), receipt="m7"), origin=origin)])
        await self.trail.collect()
        note = binding_recorder(ALL, noted.append, clock, id_suffixes())
        for caller, status in ((NURSE, 200), (ANONYMOUS, 401)):
            note(BindingAttempt(Session("default", caller=caller), "websocket bind", ["s1"], status, "", ID, clock()))
        self._check(["", "", ""])
        event = audit_event(noted[0], BASE)
        self.assertEqual([one["who"].get("display") for one in event["agent"]], ["ipf", "ipf", "LAB"])
        kinds = [one["type"]["code"] for one in event["entity"]]
        self.assertNotIn("XrequestId", kinds)

    async def world_commit(self, units: Any) -> Any:
        """Store units in the world."""
        return await self.trail.world.commit(*units)

    async def test_records_are_found_by_their_pattern(self) -> None:
        self.trail.rules = ALL
        await self._new(DEVICE, LAB)
        await self._new(patient("1"))
        await self.trail.send("GET", "Device")
        await self.trail.store.append([disclosure()])
        for query, expected in (
            (f"_profile={PROFILES}PatientCreate", ["create0"]),
            (f"_profile={PROFILES}Create,{PROFILES}Query&_sort=date", ["create0", "search0"]),
            ("entity-role=http://terminology.hl7.org/CodeSystem/object-role|1", ["create0", "notification0"]),
            ("entity-type=http://terminology.hl7.org/CodeSystem/audit-entity-type|1", ["create0", "notification0"]),
            ("address=localhost", []),
            ("type=http://dicom.nema.org/resources/ontology/DCM|110106", ["notification0"]),
            ("type=rest&subtype=notification", []),
            ("subtype=disclose", ["notification0"]),
            (f"_profile={PROFILES}PrivacyDisclosure.Source", ["notification0"]),
            ("agent:identifier=https://idp.example|ward-app&action=C", ["create0"]),
        ):
            self.assertEqual(await self.trail.found(query), expected, query)


def records() -> Iterator[Audit]:
    """A successful record of each pattern."""
    for interaction, action in (("create", "C"), ("read", "R"), ("update", "U"), ("delete", "D"), ("search", "E")):
        for patients in ((), ("Patient/1",)):
            context = AuditContext(
                "default", "fhir", interaction, action, 0, 200, "u-17", "ward-app", "https://idp.example",
                "Practitioner/7", "192.0.2.9", ("http://terminology.hl7.org/CodeSystem/v3-ActReason|TREAT",),
            )  # fmt: skip
            entities = () if interaction == "search" else ("Observation/2/_history/3",)
            yield Audit(context, 10**12, ID[14:], 5, ID, "Observation", entities, patients, None, "r-1")


def disclosure(**changes: Any) -> Audit:
    """The record of a notification; `changes` of its context, or its patients."""
    patients = changes.pop("patients", ("Patient/1",))
    context = AuditContext("default", "fhir", NOTIFICATION, "R", 0, 200, "ipf", address="https://sub.example")
    entities = "Subscription/s1", "Observation/2/_history/3"
    return Audit(context._replace(**changes), 10**12, ID[14:], 5, ID, None, entities, patients)


class Patterns(TestCase):
    """The stated patterns refuse what the published ones refuse."""

    def test_each_pattern_has_a_record(self) -> None:
        events = [audit_event(one, BASE) for one in records()]
        self.assertEqual([errors(event) for event in events], [[]] * 10)
        stated = {one for one in own_urls("balp") if not one.endswith("PrivacyDisclosure.Source")}
        self.assertEqual({event["meta"]["profile"][0] for event in events}, stated)

    def test_purposes_and_request_ids(self) -> None:
        event = audit_event(next(records()), BASE)
        purpose = {"system": "http://terminology.hl7.org/CodeSystem/v3-ActReason", "code": "TREAT"}
        self.assertEqual(event["agent"][0]["purposeOfUse"], [{"coding": [purpose]}])
        self.assertNotIn("purposeOfUse", event["agent"][1])
        (transaction,) = [one for one in event["entity"] if one["type"]["code"] == "XrequestId"]
        self.assertEqual(transaction["what"], {"identifier": {"value": "r-1"}})

    def test_what_is_missing_is_an_error(self) -> None:
        """Each part that a pattern requires, removed from a record of it."""
        for record in records():
            event = audit_event(record, BASE)
            passed = [name for name, broken in broken_events(event) if not errors(broken)]
            self.assertEqual(passed, [], pattern(event))

    def test_disclosures(self) -> None:
        """Notifications about a patient, also those that failed; a client may be the receiver."""
        for changes, expected in (
            ({}, "PrivacyDisclosure.Source"), ({"outcome": 8, "status": 0}, "PrivacyDisclosure.Source"),
            ({"agent": "u-17", "user": "Practitioner/7", "issuer": "https://idp.example"}, "PrivacyDisclosure.Source"),
            ({"patients": ()}, ""),
        ):  # fmt: skip
            event = audit_event(disclosure(**changes), BASE)
            self.assertEqual((pattern(event), errors(event)), (expected, []))
            self.assertEqual((event["type"]["code"], [one["code"] for one in event["subtype"]]),
                             ("110106", ["notification", "disclose"]))  # fmt: skip
            self.assertEqual(event["agent"][0]["who"], event["source"]["observer"])
        event = audit_event(disclosure(), BASE)
        for name, change in {
            "type": lambda e: e["type"].update(code="110107"), "disclose": lambda e: e["subtype"].pop(),
            "action": lambda e: e.update(action="E"), "no outcome": lambda e: e.pop("outcome"),
            "no receiver": lambda e: e["agent"].pop(), "network": lambda e: e["agent"][1].pop("network"),
            "observer": lambda e: e["source"].update(observer={"display": "other"}),
            "patient": lambda e: e["entity"].pop(2), "entities": lambda e: e.update(entity=e["entity"][2:3]),
        }.items():  # fmt: skip
            broken = copy.deepcopy(event)
            change(broken)
            self.assertNotEqual(errors(broken), [], name)

    def test_when_a_record_names_none(self) -> None:
        for record in records():
            for changed in (
                record._replace(context=record.context._replace(outcome=4)),
                record._replace(context=record.context._replace(address="")),
                record._replace(context=record.context._replace(interaction="history")),
                record._replace(patients=("Patient/1", "Patient/2")),
                record._replace(entities=(), target=""),
                *([record._replace(entities=("Observation/2", "Observation/3"))] if record.entities else []),
            ):
                event = audit_event(changed, BASE)
                self.assertEqual((pattern(event), errors(event)), ("", []), changed)


def broken_events(event: Json) -> Iterator[tuple[str, Json]]:
    """Copies of a record, each without something that its pattern requires, or with what it forbids."""
    kinds = {one["type"]["code"]: number for number, one in enumerate(event["entity"])}
    user, client, server = 0, 1, 2
    changes: dict[str, Any] = {
        "type": lambda e: e["type"].update(code="object"), "subtype": lambda e: e.pop("subtype"),
        "other subtype": lambda e: e["subtype"][0].update(code="batch"),
        "two subtypes": lambda e: e["subtype"].append(dict(e["subtype"][0])),
        "action": lambda e: e.update(action="E" if e["action"] != "E" else "R"),
        "outcome": lambda e: e.update(outcome="4"),
        "no outcome": lambda e: e.pop("outcome"), "no server": lambda e: e["agent"].pop(server),
        "no client": lambda e: e["agent"].pop(client), "two clients": lambda e: e["agent"].append(e["agent"][client]),
        "requestor": lambda e: e["agent"][user].update(requestor=False),
        "user with a network": lambda e: e["agent"][user].update(network={"type": "2"}),
        "no entities": lambda e: e.pop("entity"),
        "two requests": lambda e: e["entity"].append(e["entity"][kinds["XrequestId"]]),
        "no request id": lambda e: e["entity"][kinds["XrequestId"]]["what"]["identifier"].update(value=None),
        "no object": lambda e: e["entity"].pop(kinds["2"]),
        "two objects": lambda e: e["entity"].append(e["entity"][kinds["2"]]),
        "role of the object": lambda e: e["entity"][kinds["2"]]["role"].update(code="9"),
    }  # fmt: skip
    for number in (client, server):
        changes[f"network of {number}"] = lambda e, one=number: e["agent"][one].pop("network")
        changes[f"who of {number}"] = lambda e, one=number: e["agent"][one].pop("who")
    if "1" in kinds:
        changes["no patient"] = lambda e: e["entity"].pop(kinds["1"])
        changes["two patients"] = lambda e: e["entity"].append(e["entity"][kinds["1"]])
        changes["role of the patient"] = lambda e: e["entity"][kinds["1"]]["role"].update(code="4")
        changes["patient of another type"] = lambda e: e["entity"][kinds["1"]]["what"].update(reference="Group/1")
    for name, change in changes.items():
        broken = copy.deepcopy(event)
        change(broken)
        yield name, broken
