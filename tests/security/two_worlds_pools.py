"""The pools of `two_worlds_steps.py`: clients, ids, searches, Subscriptions."""

from __future__ import annotations

from ipf.ports import Caller, Json
from ipf.security.privacy.labels import ACT_CODE, CONFIDENTIALITY
from tests.security.two_worlds_server import CLIENT_HOST

CATEGORY = "http://terminology.hl7.org/CodeSystem/observation-category"
VITAL, LAB = f"category={CATEGORY}|vital-signs", f"category={CATEGORY}|laboratory"

CLIENTS: tuple[Caller, ...] = tuple(
    Caller("ada", "app", tuple(scopes.split()), patient=patient, user=user)
    for scopes, patient, user in (
        ("patient/*.cruds", "p1", None),
        ("patient/*.rs", "p1", None),
        ("patient/*.cruds patient/AuditEvent.rs", "p1", None),
        ("patient/*.rs system/Observation.cruds?status=final system/AuditEvent.rs?entity=Patient/p1", "p1", None),
        ("patient/Patient.rs patient/Observation.cruds patient/Encounter.cu system/Organization.rs", "p1", None),
        ("user/*.cruds", "p1", "Patient/p1"),
        ("patient/*.cruds", None, None),
        (f"system/Observation.cruds?{VITAL} system/Patient.rs", None, None),
        (f"system/Observation.rs?{VITAL} system/Observation.u?{LAB} system/Patient.cruds?gender=female", None, None),
        ("system/Patient.rs?gender=female system/Observation.cruds?status=final system/*.c", None, None),
        ("system/Patient.r system/Observation.s", None, None),
        ("system/Observation.r?status=final system/Observation.s?status=amended system/Encounter.ud", None, None),
        ("system/Observation.d?status=final system/Condition.cs system/List.rs", None, None),
        ("system/Patient.cruds system/Provenance.cruds", None, None),
        ("system/Patient.cruds?gender=female system/Practitioner.rs system/ServiceRequest.cruds patient/*.rs",
         "p2", None),
        ("system/*.cruds", None, None),
        ("system/*.rs", None, None),
        ("patient/*.cruds system/Subscription.cruds", "p1", None),
        ("patient/*.rs patient/Observation.cud system/Subscription.cruds", "p2", None),
        ("patient/*.rs patient/AuditEvent.rs system/Subscription.cruds", "p3", None),
        (f"system/Observation.cruds?{VITAL} system/Subscription.cruds system/Patient.rs?gender=female", None, None),
        ("system/Observation.rs?status=final system/Encounter.s system/Subscription.cruds", None, None),
    )
)  # fmt: skip

TYPES = (
    "Patient", "Observation", "Encounter", "Condition", "Practitioner", "Organization", "ServiceRequest", "List",
    "Group", "Provenance",
)  # fmt: skip
CONTAINERS = frozenset({"Observation", "Encounter", "Condition", "List"})
IDS = {kind: tuple(f"{kind[:1].lower()}{number}" for number in range(1, 5)) for kind in TYPES}
PATIENTS = IDS["Patient"]

SEARCHES: dict[str, tuple[str, ...]] = {
    "Patient": (
        "gender=female", "gender:not=male", "family=adams", "name:exact=Brown", "birthdate=1970",
        "_has:Observation:patient:code=urn:c|x",
        "_has:Observation:subject:status=final", "general-practitioner.name=clark", "link=Patient/{patient}",
        "general-practitioner:Organization.name=north", "organization=Organization/o1", "_has:Condition:patient:_id=c1",
        "_has:Observation:patient:_has:Provenance:target:_id=p1",
    ),
    "Observation": (
        "subject=Patient/{patient}", "patient={patient}", "patient=Patient/{patient},Patient/{p}", "status=final",
        VITAL, LAB, "code=urn:c|x", "code:not=urn:c|y", "patient.gender=male", "patient.family=adams",
        "subject:Patient.name=brown", "date=ge2026-01-02", "value-quantity=gt1", "performer.name=clark",
        "encounter.class=AMB", "based-on=ServiceRequest/s1", "has-member.status=final", "encounter:missing=true",
        "_has:Provenance:target:_id=p1", "patient:Patient._id={patient}", "subject.identifier=urn:n|1",
    ),
    "Encounter": ("patient={patient}", "subject.gender=female", "class=AMB", "service-provider.name=north",
                  "_has:Observation:encounter:status=final"),
    "Condition": ("patient={patient}", "code=urn:c|x", "subject.family=adams", "encounter=Encounter/e1"),
    "Practitioner": ("name=clark", "_has:Observation:performer:status=final",
                     "_has:Patient:general-practitioner:gender=female"),
    "Organization": ("name=north", "partof.name=south"),
    "ServiceRequest": ("patient={patient}", "requester.name=clark", "_has:Observation:based-on:status=final"),
    "List": ("patient={patient}", "item=Observation/o1"),
    "Group": ("member=Patient/{patient}",),
    "Provenance": ("target=Observation/o1", "patient={patient}", "agent.name=clark"),
}  # fmt: skip

SORTS = {
    "Patient": ("_id", "-_id", "_lastUpdated", "family", "-birthdate", "gender,_id"),
    "Observation": ("_id", "-_lastUpdated", "date", "-date", "value-quantity", "status,-date", "code"),
}

INCLUDES = (
    "_include=*", "_include=Observation:subject", "_include=Observation:performer", "_include=Observation:encounter",
    "_include=Patient:general-practitioner", "_include:iterate=Patient:general-practitioner",
    "_include:iterate=Encounter:service-provider", "_revinclude=Observation:subject", "_revinclude=Condition:patient",
    "_revinclude:iterate=Provenance:target", "_revinclude=Encounter:patient", "_include:iterate=Observation:has-member",
    "_revinclude:iterate=Observation:has-member", "_revinclude=List:item", "_include=Condition:asserter",
    "_revinclude=*", "_revinclude:iterate=*", "_include:iterate=*",
)  # fmt: skip

LABELS = (
    {"system": CONFIDENTIALITY, "code": "R"}, {"system": CONFIDENTIALITY, "code": "N"},
    {"system": ACT_CODE, "code": "ETH"},
)  # fmt: skip
"""Security labels, of which the first and the last hide a resource from clients without their scopes."""

PAYLOAD = "application/fhir+json"
TOPIC = "urn:topic"
SUBSCRIPTIONS = ("mine1", "mine1", "mine2", "theirs1", "theirs2")
CRITERIA = (
    "Observation?", "Observation?status=final", "Observation?code=urn:c|x", "Patient?", "Patient?gender=female",
    "Encounter?class=AMB", "Condition?code=urn:c|x", "Observation?subject=Patient/p1", "Practitioner?name=clark",
)  # fmt: skip
FILTERS = ("Observation?patient=Patient/p1", "Observation?code=urn:c|x", "Encounter?class=AMB")


def subscription(id: str, criteria: str, channel: str, payload: str, host: str = CLIENT_HOST) -> Json:
    """A Subscription."""
    content = {"payload": payload} if payload else {}
    return {
        "resourceType": "Subscription", "id": id, "status": "requested", "reason": "test", "criteria": criteria,
        "channel": {"type": channel, **({"endpoint": f"{host}/{id}"} if channel == "rest-hook" else {}), **content},
    }  # fmt: skip


SHARED: tuple[Json, ...] = (
    {
        "resourceType": "SubscriptionTopic", "id": "t", "url": TOPIC, "title": "changes", "status": "active",
        "resourceTrigger": [
            {"resource": "Observation", "supportedInteraction": ["create", "update", "delete"]},
            {"resource": "Encounter", "supportedInteraction": ["create", "update"],
             "queryCriteria": {"previous": "class=AMB", "resultForCreate": "test-passes", "current": "class=IMP",
                               "requireBoth": False}},
        ],
        "canFilterBy": [{"resource": "Observation", "filterParameter": "patient"},
                        {"resource": "Observation", "filterParameter": "code"},
                        {"resource": "Encounter", "filterParameter": "class"}],
        "notificationShape": [{"resource": "Observation", "include": ["Observation:subject", "Observation:encounter"]}],
    },
    subscription("theirs1", "Observation?", "rest-hook", PAYLOAD, "https://other.example"),
    subscription("theirs2", "Observation?", "websocket", PAYLOAD),
)  # fmt: skip
"""What is stored in both worlds before all else: a topic, and two Subscriptions without limits."""
