"""Tables: Consents and callers in, decisions on resources out; in memory, by the tests that searches use as well."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.index.extract import extract
from ipf.fhir.search.evaluation.match import matches
from ipf.ports import Caller
from ipf.ports.queries.search import Query, Term
from ipf.security.privacy.consent import denials_of, names_no_patient
from ipf.security.privacy.policy import Privacy
from ipf.security.privacy.register import ConsentRegister
from tests.fakes import MemoryFhirStore
from tests.fakes.consents import MemoryConsents
from tests.security.privacy.consents import (
    DOCTOR,
    ISSUER,
    coded,
    consent,
    labelled,
    observation,
    put,
    rule,
)

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ETH = ("http://terminology.hl7.org/CodeSystem/v3-ActCode", "ETH")
HIV = coded("http://loinc.org", "75622-1")
OTHER = Caller("other", "other-app", ("user/*.rs",), user="Practitioner/8", issuer=ISSUER)
BACKEND = Caller("backend", "backend", ("system/*.rs",), issuer=ISSUER)
PATIENT = Caller("p", "portal", ("patient/*.rs",), patient="p1", user="Patient/p1", issuer=ISSUER)
RELATIVE = Caller("r", "portal", ("patient/*.rs",), patient="p1", user="RelatedPerson/9", issuer=ISSUER)
EVERYBODY = (DOCTOR, OTHER, BACKEND)
TOKENS = {"SUBSCRIPTION_SERVICE_AUTH_ENABLED": "true", "SUBSCRIPTION_SERVICE_AUTH_ISSUER": ISSUER}
NOBODY: tuple[Caller, ...] = ()

PLAIN = observation("o1", "p1")
FOREIGN = observation("o2", "p2")
WITH_HIV = observation("o3", "p1", code={"coding": [HIV]})
SENSITIVE = labelled(observation("o4", "p1"), *ETH)
CONDITION = {"resourceType": "Condition", "id": "c1", "subject": {"reference": "Patient/p1"}}
TASK = {"resourceType": "Task", "id": "t1", "for": {"reference": "Patient/p1"}}
FIRST = {"resourceType": "Patient", "id": "p1"}
WARD = {"resourceType": "Location", "id": "w"}
BINARY = {"resourceType": "Binary", "id": "b1", "securityContext": {"reference": "Patient/p1"}}
BINARY_OF_REPORT = {"resourceType": "Binary", "id": "b2", "securityContext": {"reference": "DiagnosticReport/1"}}
PLAIN_BINARY = {"resourceType": "Binary", "id": "b3"}

OWN = [PLAIN, WITH_HIV, SENSITIVE, CONDITION, TASK, FIRST, BINARY, BINARY_OF_REPORT]
"""All of the patient of the Consents, as far as it is known."""
OTHERS = [FOREIGN, WARD, PLAIN_BINARY]

CASES: list[tuple[str, dict[str, Any], tuple[Caller, ...], list[dict[str, Any]]]] = [
    ("a denial of everything", consent(rule("deny")), EVERYBODY, OWN),
    ("draft", consent(rule("deny"), status="draft"), NOBODY, OWN),
    ("another scope", consent(rule("deny"), scope={"coding": [{"code": "research"}]}), NOBODY, OWN),
    ("a scope in words", consent(rule("deny"), scope={"text": "privacy"}), EVERYBODY, OWN),
    ("a permission", consent(rule("permit")), NOBODY, OWN),
    ("opt out", consent({}, policyRule={"coding": [{"code": "OPTOUT"}]}), EVERYBODY, OWN),
    ("nested denial", consent(rule("permit", provision=[rule("deny")])), EVERYBODY, OWN),
    ("class", consent(rule("deny", **{"class": [{"code": "Observation"}]})), EVERYBODY, [PLAIN, WITH_HIV, SENSITIVE]),
    ("another class", consent(rule("deny", **{"class": [{"code": "application/hl7-cda+xml"}]})), EVERYBODY, OWN),
    ("code", consent(rule("deny", code=[{"coding": [HIV]}])), EVERYBODY, [WITH_HIV]),
    ("code in words", consent(rule("deny", code=[{"coding": [HIV]}, {"text": "HIV"}])), EVERYBODY, OWN),
    ("label", consent(rule("deny", securityLabel=[coded(*ETH)])), EVERYBODY, [SENSITIVE]),
    ("normal", consent(rule("deny", securityLabel=[{"code": "N"}])), EVERYBODY, OWN),
    ("restricted", consent(rule("deny", securityLabel=[{"code": "R"}])), EVERYBODY, []),
    (
        "one resource",
        consent(rule("deny", data=[{"meaning": "instance", "reference": {"reference": "Condition/c1"}}])),
        EVERYBODY,
        [CONDITION],
    ),
    (
        "what it refers to cannot be tested",
        consent(rule("deny", data=[{"meaning": "related", "reference": {"reference": "Condition/c1"}}])),
        EVERYBODY,
        OWN,
    ),
    ("times of data cannot be tested", consent(rule("deny", dataPeriod={"start": "2026"})), EVERYBODY, OWN),
    ("a doctor", consent(rule("deny", actor=[{"reference": {"reference": "Practitioner/7"}}])), (DOCTOR, BACKEND), OWN),
    ("an organization", consent(rule("deny", actor=[{"reference": {"reference": "Organization/1"}}])), EVERYBODY, OWN),
    (
        "a client of the issuer",
        consent(rule("deny", actor=[{"reference": {"identifier": {"system": ISSUER, "value": "other-app"}}}])),
        (OTHER,),
        OWN,
    ),
    ("only changes", consent(rule("deny", action=[{"coding": [{"code": "correct"}]}])), NOBODY, OWN),
    ("disclosure", consent(rule("deny", action=[{"coding": [{"code": "disclose"}]}])), EVERYBODY, OWN),
    ("research", consent(rule("deny", purpose=[{"code": "HRESCH"}])), (OTHER, BACKEND), OWN),
    ("over", consent(rule("deny", period={"end": "2026-04-30"})), NOBODY, OWN),
    ("the last day", consent(rule("deny", period={"end": "2026-05-01"})), EVERYBODY, OWN),
    ("not yet", consent(rule("deny", period={"start": "2026-05-02"})), NOBODY, OWN),
    (
        "unknown extensions",
        consent(rule("deny", modifierExtension=[{"url": "x"}], code=[{"coding": [HIV]}])),
        EVERYBODY,
        OWN,
    ),
    (
        "except for the doctor",
        consent(rule("deny", provision=[rule("permit", actor=[{"reference": {"reference": "Practitioner/7"}}])])),
        (OTHER, BACKEND),
        OWN,
    ),
    (
        "except for conditions",
        consent(rule("deny", provision=[rule("permit", **{"class": [{"code": "Condition"}]})])),
        EVERYBODY,
        [one for one in OWN if one is not CONDITION],
    ),
    (
        "an exception that cannot be tested",
        consent(rule("deny", provision=[rule("permit", dataPeriod={"start": "2026"})])),
        EVERYBODY,
        OWN,
    ),
    (
        "an exception with an exception",
        consent(rule("deny", provision=[rule("permit", provision=[rule("deny", code=[{"coding": [HIV]}])])])),
        EVERYBODY,
        OWN,
    ),
    (
        "an exception that is over",
        consent(rule("deny", provision=[rule("permit", period={"end": "2025"})])),
        EVERYBODY,
        OWN,
    ),
    (
        "normal data only",
        consent(rule("deny", provision=[rule("permit", securityLabel=[{"code": "N"}])])),
        EVERYBODY,
        [],
    ),
]  # fmt: skip
"""What it is, the Consent, whom it limits, what they do not see; all others see everything."""


class DecisionTests(TestCase):
    async def privacy(self, *consents: dict[str, Any], now: datetime = NOW) -> Privacy:
        """With these Consents stored."""
        store = MemoryFhirStore()
        for number, one in enumerate(consents):
            await put(store, {**one, "id": f"c{number}"})
        register = ConsentRegister(MemoryConsents(store), lambda: now)
        await register.refresh()
        return Privacy(consents=register)

    def sees(self, privacy: Privacy, caller: Caller, resource: dict[str, Any], right: str = "r") -> bool:
        """One decision."""
        kind = str(resource["resourceType"])
        test = privacy.limit(caller, kind, right)
        query = Query(kind, () if test is None else (Term("", "", test),))
        return matches(query, extract(resource), id=str(resource["id"]), last_updated=NOW, resource=resource)

    async def test_cases(self) -> None:
        for name, stored, limited, hidden in CASES:
            privacy = await self.privacy(stored)
            for caller in EVERYBODY:
                for resource in OWN + OTHERS:
                    expected = not (caller in limited and resource in hidden)
                    seen = self.sees(privacy, caller, resource)
                    self.assertEqual(seen, expected, f"{name}: {caller.subject}, {resource['id']}")

    async def test_the_patient_sees_the_own_data(self) -> None:
        """Whatever the Consents say; not the relative, and nothing of others."""
        other = consent(rule("deny"), patient={"reference": "Patient/p2"})
        privacy = await self.privacy(consent(rule("deny")), other)
        for resource in (PLAIN, FIRST, CONDITION, BINARY, {**consent(rule("deny")), "id": "c0"}):
            self.assertTrue(self.sees(privacy, PATIENT, resource), resource["id"])
            self.assertFalse(self.sees(privacy, RELATIVE, resource), resource["id"])
        self.assertFalse(self.sees(privacy, PATIENT, FOREIGN))
        self.assertFalse(self.sees(privacy, PATIENT, BINARY_OF_REPORT))

    async def test_who_may_write_consents_by_name_sees_them(self) -> None:
        privacy, stored = await self.privacy(consent(rule("deny"))), {**consent(rule("deny")), "id": "c0"}
        desk = Caller("desk", "desk", ("user/Consent.cruds", "user/*.rs"), user="Practitioner/9")
        self.assertTrue(self.sees(privacy, desk, stored))
        self.assertFalse(self.sees(privacy, desk, PLAIN))
        self.assertFalse(self.sees(privacy, OTHER, stored))

    async def test_rights(self) -> None:
        """A denial of corrections is one of changes; who may not see may not change either."""
        correcting = await self.privacy(consent(rule("deny", action=[{"coding": [{"code": "correct"}]}])))
        self.assertFalse(self.sees(correcting, OTHER, PLAIN, "u"))
        self.assertTrue(self.sees(correcting, OTHER, PLAIN, "s"))
        seeing = await self.privacy(consent(rule("deny", action=[{"coding": [{"code": "access"}]}])))
        for right in "rsud":
            self.assertFalse(self.sees(seeing, OTHER, PLAIN, right), right)
        self.assertFalse(seeing.concerns(OTHER, "c"))

    async def test_periods_begin_and_end_by_themselves(self) -> None:
        """Also while nothing is written."""
        now, store = [NOW], MemoryFhirStore()
        await put(store, {**consent(rule("deny", period={"start": "2026-05-02", "end": "2026-05-03"})), "id": "c"})
        register = ConsentRegister(MemoryConsents(store), lambda: now[0])
        await register.refresh()
        privacy, found, stamps = Privacy(consents=register), [], []
        for day in range(4):
            now[0] = NOW + timedelta(days=day)
            stamps.append(privacy.stamp())
            found.append(self.sees(privacy, OTHER, PLAIN))
        self.assertEqual(found, [True, False, False, True])
        self.assertEqual([one == other for one, other in pairwise(stamps)], [False, True, False])

    async def test_changes_are_read_once(self) -> None:
        """A register reads what has changed since; a deletion and an end of the denial count."""
        store = MemoryFhirStore()
        source = MemoryConsents(store)
        privacy = Privacy(consents=ConsentRegister(source, lambda: NOW))
        await privacy.refresh()
        reads = source.reads
        await privacy.refresh()
        self.assertEqual(source.reads, reads)
        seen = []
        for version, status in enumerate(("active", "inactive", "active"), 1):
            await put(store, {**consent(rule("deny"), status=status), "id": "c"}, version)
            await privacy.refresh()
            seen.append(self.sees(privacy, OTHER, PLAIN))
        await put(store, {**consent(rule("deny")), "id": "c"}, 4, deleted=True)
        await privacy.refresh()
        self.assertEqual([*seen, self.sees(privacy, OTHER, PLAIN)], [False, True, False, True])

    async def test_what_is_not_read_as_written_is_shown(self) -> None:
        privacy = await self.privacy(
            consent(rule("deny", dataPeriod={"start": "2026"})),
            consent(rule("deny"), patient={"identifier": {"value": "1"}}),
            consent(rule("deny")),
        )
        self.assertEqual(await privacy.check(), {"denying": 2, "widened": 1, "without_patient": 1})

    def test_elements(self) -> None:
        """A Consent of nobody that is known denies nothing, which is noted."""
        unknown = consent(rule("deny"), patient={"reference": "urn:uuid:1"})
        self.assertEqual(denials_of(unknown), ())
        self.assertTrue(names_no_patient(unknown))
        self.assertFalse(names_no_patient(consent(rule("permit"), patient={})))
        self.assertTrue(denials_of(consent(rule("deny"), implicitRules="x"))[0].is_widened)
