"""Tables of scopes: the rights that each grants, and scopes that cannot be parsed."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import dumps
from ipf.fhir.search.parameters.compartments import compartments
from ipf.fhir.search.parameters.custom import install
from ipf.ports import ANONYMOUS, OPEN, SYSTEM, Caller, Json, Version
from ipf.security.access import may
from ipf.security.scopes import SHARED, parse_scope
from tests.contracts.resources import T0

# (scope, its rights as letters; "" = it is no scope on resources)
FORMS = [
    ("system/Patient.c", "c"),
    ("system/Patient.r", "r"),
    ("system/Patient.u", "u"),
    ("system/Patient.d", "d"),
    ("system/Patient.s", "s"),
    ("system/Subscription.crus", "crsu"),
    ("system/*.cruds", "cdrsu"),
    ("user/Patient.rs", "rs"),
    ("patient/*.rs", "rs"),
    ("system/Patient.read", "rs"),
    ("system/Patient.write", "cdu"),
    ("system/Patient.*", "cdrsu"),
    ("system/*.*", "cdrsu"),
    ("system/*.read", "rs"),
    ("system/Observation.rs?category=a|b", "rs"),
    ("system/Observation.rs?category=a|b&status=final", "rs"),
    ("system/Patient.sr", ""),
    ("system/Patient.rr", ""),
    ("system/Patient.", ""),
    ("system/Patient.rsx", ""),
    ("system/Patient.Read", ""),
    ("system/Patient.reads", ""),
    ("system/Patient", ""),
    ("system/patient.rs", ""),
    ("system/Nothing.rs", ""),
    ("system/.rs", ""),
    ("System/Patient.rs", ""),
    ("group/Patient.rs", ""),
    ("system/Patient.rs ", ""),
    ("system/Patient.rs\n", ""),
    ("system/Patient.read?gender=male", ""),
    ("system/Patient.rs?", ""),
    ("system/Patient.rs?gender", ""),
    ("*/*.*", ""),
    ("*", ""),
    ("openid", ""),
    ("launch/patient", ""),
    ("offline_access", ""),
    ("admin", ""),
    ("", ""),
]

VITAL = "http://terminology.hl7.org/CodeSystem/observation-category|vital-signs"


def observation(id: str, patient: str = "p1", category: str = "vital-signs", status: str = "final") -> Json:
    """An Observation of a patient."""
    system = "http://terminology.hl7.org/CodeSystem/observation-category"
    return {
        "resourceType": "Observation", "id": id, "status": status, "code": {"text": "x"},
        "category": [{"coding": [{"system": system, "code": category}]}],
        "subject": {"reference": f"Patient/{patient}"},
    }  # fmt: skip


VITALS = observation("o1")
LAB = observation("o2", category="laboratory")
OTHERS = observation("o3", "p2")
ADA: Json = {"resourceType": "Patient", "id": "p1", "gender": "female", "name": [{"family": "Byron King"}]}
BOB: Json = {"resourceType": "Patient", "id": "p2", "gender": "male"}
DOCTOR: Json = {"resourceType": "Practitioner", "id": "d"}

# (scopes, other members of the caller, right, resource, allowed)
GRANTS: list[tuple[str, dict[str, str], str, Json, bool]] = [
    ("system/Patient.r", {}, "r", ADA, True),
    ("system/Patient.r", {}, "s", ADA, False),
    ("system/Patient.r", {}, "r", VITALS, False),
    ("system/*.r", {}, "r", VITALS, True),
    ("user/Patient.r", {}, "r", ADA, True),
    ("system/Observation.r system/Patient.r", {}, "r", ADA, True),
    ("", {}, "r", ADA, False),
    ("openid profile", {}, "r", ADA, False),
    # a search within the scope
    (f"system/Observation.rs?category={VITAL}", {}, "r", VITALS, True),
    (f"system/Observation.rs?category={VITAL}", {}, "r", LAB, False),
    (f"system/Observation.rs?category={VITAL}", {}, "s", LAB, False),
    (f"system/Observation.rs?category={VITAL}", {}, "u", VITALS, False),
    (f"system/Observation.rs?category={VITAL}&status=final", {}, "r", VITALS, True),
    (f"system/Observation.rs?category={VITAL}&status=amended", {}, "r", VITALS, False),
    (f"system/Observation.rs?category={VITAL.replace('|', '%7C')}", {}, "r", VITALS, True),
    (f"system/Observation.rs?category={VITAL} system/Observation.rs?status=final", {}, "r", LAB, True),
    (f"system/Observation.rs?category={VITAL} system/Observation.rs", {}, "r", LAB, True),
    ("system/*.rs?gender=male", {}, "r", BOB, True),
    ("system/*.rs?gender=male", {}, "r", ADA, False),
    ("system/*.rs?gender=male", {}, "r", VITALS, False),  # no parameter of that type: nothing is granted
    ("system/*.rs?_id=p1", {}, "r", ADA, True),
    ("system/Patient.rs?family=byron", {}, "r", ADA, True),
    ("system/Patient.rs?family=king", {}, "r", ADA, False),  # a later word grants nothing
    # what cannot be put to one resource, or limits nothing, grants nothing
    ("system/Observation.rs?patient.gender=female", {}, "r", VITALS, False),
    ("system/Patient.rs?_has:Observation:patient:status=final", {}, "r", ADA, False),
    ("system/Observation.rs?category:in=http://example.org/vs", {}, "r", VITALS, False),
    ("system/Observation.rs?nothing=1", {}, "r", VITALS, False),
    ("system/Observation.rs?_count=10", {}, "r", VITALS, False),
    ("system/Observation.rs?_sort=date", {}, "r", VITALS, False),
    ("system/Observation.rs?_format=json", {}, "r", VITALS, False),
    ("system/Observation.rs?_summary=false", {}, "r", VITALS, False),
    ("system/Observation.rs?_include=Observation:subject", {}, "r", VITALS, False),
    (f"system/Observation.rs?category={VITAL}&_count=10", {}, "r", VITALS, False),
    # one patient
    ("patient/Observation.rs", {"patient": "p1"}, "r", VITALS, True),
    ("patient/Observation.rs", {"patient": "p1"}, "r", OTHERS, False),
    ("patient/Observation.rs", {}, "r", VITALS, False),
    ("patient/*.rs", {"patient": "p1"}, "r", ADA, True),
    ("patient/*.rs", {"patient": "p1"}, "r", BOB, False),
    ("patient/*.rs", {"patient": "p"}, "r", ADA, False),
    ("patient/*.cruds", {"patient": "p1"}, "c", VITALS, True),
    ("patient/*.cruds", {"patient": "p1"}, "c", OTHERS, False),
    ("patient/*.cruds", {"patient": "p1"}, "r", DOCTOR, True),
    ("patient/*.cruds", {"patient": "p1"}, "u", DOCTOR, False),
    ("patient/Observation.rs", {"patient": "p1"}, "r", DOCTOR, False),
    ("patient/*.cruds", {}, "r", DOCTOR, True),
    ("patient/*.cruds", {"patient": "p1"}, "r", {"resourceType": "Subscription", "id": "s"}, False),
    ("patient/*.cruds", {"patient": "p1"}, "r", {"resourceType": "AuditEvent", "id": "a"}, False),
    ("patient/*.cruds", {"patient": "p1"}, "r", {"resourceType": "Group", "id": "g"}, False),
    (f"patient/Observation.rs?category={VITAL}", {"patient": "p1"}, "r", VITALS, True),
    (f"patient/Observation.rs?category={VITAL}", {"patient": "p1"}, "r", LAB, False),
    (f"patient/Observation.rs?category={VITAL}", {"patient": "p1"}, "r", OTHERS, False),
    ("patient/Observation.rs system/Observation.s", {"patient": "p1"}, "r", OTHERS, False),
    ("patient/Observation.rs system/Observation.s", {"patient": "p1"}, "s", OTHERS, True),
    # a user who is a patient reaches no further than that patient
    ("user/Observation.rs", {"user": "Practitioner/d", "patient": "p1"}, "r", OTHERS, True),
    ("user/Observation.rs", {"user": "Patient/p1", "patient": "p1"}, "r", OTHERS, False),
    ("user/Observation.rs", {"user": "Patient/p1", "patient": "p1"}, "r", VITALS, True),
    ("user/Observation.rs", {"user": "Patient/p1"}, "r", VITALS, False),
    ("user/Observation.rs", {"user": "RelatedPerson/r", "patient": "p1"}, "r", VITALS, True),
    ("user/Observation.rs", {"user": "RelatedPerson/r", "patient": "p1"}, "r", OTHERS, False),
    ("user/*.rs", {"user": "RelatedPerson/r"}, "r", ADA, False),
]


def version(resource: Json, deleted: bool = False) -> Version:
    """The stored version of a resource."""
    return Version(1, resource["resourceType"], resource["id"], 1, T0, b"" if deleted else dumps(resource), deleted)


class ScopeTests(TestCase):
    def test_formats(self) -> None:
        for text, rights in FORMS:
            found = parse_scope(text)
            self.assertEqual("" if found is None else "".join(sorted(found.rights)), rights, repr(text))

    def test_grants(self) -> None:
        for scopes, members, right, resource, allowed in GRANTS:
            caller = Caller("ada", "app", tuple(scopes.split()), **members)  # type: ignore[arg-type]
            kind = resource["resourceType"]
            self.assertEqual(may(caller, right, kind, version(resource)), allowed, (scopes, members, right, resource))
            if allowed:
                self.assertTrue(may(caller, right, kind))

    def test_deletions_are_visible_without_limits_only(self) -> None:
        deleted = version(ADA, deleted=True)
        for scope, allowed in (("system/Patient.rs", True), ("system/Patient.rs?gender=female", False),
                               ("patient/Patient.rs", False)):  # fmt: skip
            caller = Caller("ada", scopes=(scope,), patient="p1")
            self.assertEqual(may(caller, "r", "Patient", deleted), allowed, scope)

    def test_callers_without_limits(self) -> None:
        for caller, allowed in ((SYSTEM, True), (OPEN, True), (ANONYMOUS, False), (Caller("ada"), False)):
            self.assertEqual(may(caller, "d", "Patient", version(ADA)), allowed, caller)

    def test_shared_types_contain_no_patient_data(self) -> None:
        self.assertEqual(SHARED - definitions().resource_types, {"SubscriptionTopic"} - definitions().resource_types)
        self.assertEqual(SHARED & set(compartments()["Patient"]), set())

    def test_new_definitions_clear_the_caches(self) -> None:
        """A new search parameter takes effect in scopes; cached results are dropped."""
        caller = Caller("ada", scopes=("system/Patient.r?nick=bo",))
        version = Version(1, "Patient", "1", 1, T0, dumps({"resourceType": "Patient", "name": [{"text": "bo"}]}))
        seen = [may(caller, "r", "Patient", version)]
        self.addCleanup(install, [])
        for expression in ("Patient.name.text", "Patient.name.family", ""):
            install([{
                "resourceType": "SearchParameter", "id": "nick", "url": "urn:nick", "name": "nick", "status": "active",
                "code": "nick", "base": ["Patient"], "type": "string", "expression": expression,
            }] if expression else [])  # fmt: skip
            seen += [may(caller, "r", "Patient", version) for _ in range(2)]
        self.assertEqual(seen, [False, True, True, False, False, False, False])
