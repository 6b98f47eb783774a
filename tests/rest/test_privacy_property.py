"""A search returns what the decision on single resources leaves of all resources, for random Consents and labels.

Seeded: `IPF_SEED` repeats a run.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import OPEN, Caller, Json
from ipf.ports.queries.search import Query
from ipf.rest.write.permission import visible
from ipf.security.access import install, permit
from ipf.security.privacy.labels import ACT_CODE, CONFIDENTIALITY, LabelRules
from ipf.security.privacy.policy import Privacy
from ipf.security.privacy.register import ConsentRegister
from tests.fakes.consents import MemoryConsents
from tests.rest.world import OnMemory
from tests.security.privacy.consents import ISSUER, coded, consent, rule

SEED = int(os.environ.get("IPF_SEED", "20261123"))
ROUNDS = 25
PATIENTS = [f"p{number}" for number in range(6)]
CODES = [coded("http://loinc.org", code) for code in ("718-7", "4548-4", "75622-1")]
LABELS = [coded(CONFIDENTIALITY, "N"), coded(CONFIDENTIALITY, "R"), coded(CONFIDENTIALITY, "V"), coded(ACT_CODE, "ETH")]
TYPES = ("Patient", "Observation", "Condition", "Task", "Encounter", "Binary", "Location", "Consent")
SCOPES = ("user/*.rs", "user/*.rs conf/R", "user/*.rs conf/V sens/ETH", "user/Observation.rs?code=718-7 user/Task.rs",
          "patient/*.rs", "user/Consent.rs user/*.rs")  # fmt: skip
USERS = ("Practitioner/7", "Practitioner/8", "Patient/p0", "Patient/p1", None)


class Generator:
    """Random resources, provisions and callers."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def resource(self, kind: str, number: int) -> Json:
        """A resource of a random patient, perhaps with labels."""
        random, id = self.random, f"{kind.lower()}{number}"
        subject = {"reference": f"Patient/{random.choice(PATIENTS)}"}
        found: Json = {"resourceType": kind, "id": id}
        match kind:
            case "Patient":
                found["id"] = PATIENTS[number % len(PATIENTS)]
            case "Observation":
                found |= {"status": "final", "code": {"coding": [random.choice(CODES)]}, "subject": subject}
                if random.random() < 0.3:
                    found["performer"] = [{"reference": f"Patient/{random.choice(PATIENTS)}"}]
            case "Condition":
                found |= {"subject": subject, "code": {"coding": [random.choice(CODES)]}}
            case "Task":
                found |= {"status": "draft", "intent": "plan", "for": subject}
            case "Encounter":
                found |= {"status": "finished", "class": coded(ACT_CODE, "AMB"), "subject": subject}
            case "Binary":
                contexts = ({}, {"securityContext": subject}, {"securityContext": {"reference": "Observation/x"}})
                found |= {"contentType": "text/plain", **random.choice(contexts)}
        if random.random() < 0.3:
            found["meta"] = {"security": random.sample(LABELS, random.randint(1, 2))}
        return found

    def elements(self) -> dict[str, Any]:
        """Elements that narrow a provision."""
        random = self.random
        menu: dict[str, Any] = {
            "class": [{"system": "http://hl7.org/fhir/resource-types", "code": random.choice(TYPES[:6])}],
            "code": [{"coding": [random.choice(CODES)]}],
            "securityLabel": [random.choice(LABELS)],
            "actor": [{"reference": {"reference": random.choice(("Practitioner/7", "Practitioner/8", "Group/1"))}}],
            "action": [{"coding": [{"code": random.choice(("access", "correct", "disclose"))}]}],
            "data": [{"meaning": random.choice(("instance", "dependents", "related")),
                      "reference": {"reference": f"Observation/observation{random.randint(0, 9)}"}}],
            "dataPeriod": {"start": "2026"},
        }  # fmt: skip
        return {name: menu[name] for name in random.sample(sorted(menu), random.choice((0, 0, 1, 2)))}

    def consent(self, number: int) -> Json:
        """A Consent of a random patient."""
        random = self.random
        nested = [rule(random.choice(("permit", "deny")), **self.elements()) for _ in range(random.randint(0, 2))]
        provision = rule(random.choice(("deny", "deny", "permit")), **self.elements())
        if nested:
            provision["provision"] = nested
        patient = {"reference": f"Patient/{random.choice(PATIENTS)}"}
        return {**consent(provision, patient=patient), "id": f"c{number}"}

    def caller(self) -> Caller:
        """A caller with some of the scopes."""
        random = self.random
        scopes = tuple(random.choice(SCOPES).split())
        return Caller("s", "app", scopes, patient="p0", user=random.choice(USERS), issuer=ISSUER)


class PropertyInMemory(OnMemory):
    """See the module."""

    async def test_searches_are_filtered_resources(self) -> None:
        source = MemoryConsents(self.world.store)
        rules = LabelRules.of(["R", f"{ACT_CODE}|ETH"])
        install(Privacy(rules, ConsentRegister(source, lambda: self.world.now)))
        self.addCleanup(install, None)
        generator, hidden = Generator(SEED), 0
        for kind in TYPES[:-1]:
            for number in range(6 if kind == "Patient" else 10):
                await self.put(generator.resource(kind, number))
        for number in range(ROUNDS):
            for one in range(3):
                await self.put(generator.consent(one))
            caller = generator.caller()
            for kind in TYPES:
                hidden += await self.compare(caller, kind, f"seed {SEED}, round {number}, {caller}, {kind}")
        self.assertGreater(hidden, ROUNDS)

    async def put(self, resource: Json) -> None:
        """Write without limits."""
        self.world.caller = OPEN
        answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)
        self.assertLess(answer.status, 300, answer.body)

    async def compare(self, caller: Caller, kind: str, where: str) -> int:
        """The number of hidden resources of the type."""
        self.world.caller = caller
        answer = await self.world.send("GET", f"{kind}?_count=100")
        found = permit(caller, kind, "s")
        if found is None:
            self.assertEqual(answer.status, 401, where)
            return 0
        bundle = loads(answer.body)
        page = await self.world.store.search("default", Query(kind, (), count=100))
        expected = sorted(one.id for one in visible(page.matches, caller))
        self.assertEqual(sorted(one["resource"]["id"] for one in bundle.get("entry", ())), expected, where)
        self.assertEqual(bundle["total"], len(expected), where)
        counted = loads((await self.world.send("GET", f"{kind}?_summary=count")).body)
        self.assertEqual(counted["total"], len(expected), where)
        return len(page.matches) - len(expected)
