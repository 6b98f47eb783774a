"""Random scenarios for `two_worlds.py`: clients, what is stored, what one world hides, and what the client requests.

Ids, identifiers and references come from small pools, so that what is hidden collides with what the client does: ids
that he chooses, conditions that he writes, references in both directions.

A write is hidden from a client when no right of his reaches the resource: neither to read nor to search nor to change
it.  A deletion, which has no content, is hidden when he has no unrestricted right on the type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any

from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Json
from ipf.security.access import passes
from ipf.security.access import permit as permit_of
from ipf.subscriptions.guide import CONTENT, FILTER
from tests.security.two_worlds import Scenario, Step
from tests.security.two_worlds_pools import (
    CATEGORY,
    CLIENTS,
    CONTAINERS,
    CRITERIA,
    FILTERS,
    IDS,
    INCLUDES,
    LABELS,
    PATIENTS,
    PAYLOAD,
    SEARCHES,
    SHARED,
    SORTS,
    SUBSCRIPTIONS,
    TOPIC,
    TYPES,
    subscription,
)

_NOW = datetime(2026, 1, 31, tzinfo=UTC)


class Maker:
    """One random scenario."""

    def __init__(self, seed: int, has_labels: bool = False) -> None:
        self.random = Random(seed)
        self.caller = self.random.choice(CLIENTS)
        self.only_reads = self.chance(0.2)  # then what he may change, but not see, is hidden as well
        self.has_labels = has_labels
        self.notifies = permit_of(self.caller, "Subscription", "r") is not None
        self.steps: list[Step] = []
        self._stored: dict[tuple[str, str], str] = {}  # by key: visible, hidden (equal in both), or differs

    # -- resources

    def pick(self, values: Sequence[Any]) -> Any:
        """One of these."""
        return self.random.choice(values)

    def chance(self, of: float) -> bool:
        """Whether something with this probability happens."""
        return self.random.random() < of

    def reference(self, *kinds: str) -> Json:
        """A reference to a resource, of which nobody knows whether it is there."""
        kind = self.pick(kinds)
        return {"reference": f"{kind}/{self.pick(IDS[kind])}"}

    def content(self, kind: str, id: str | None) -> Json:
        """A resource with members from small pools."""
        found: Json = {"resourceType": kind, **({} if id is None else {"id": id})}
        if kind != "Provenance" and self.chance(0.6):  # it has none
            found["identifier"] = [{"system": "urn:n", "value": self.pick("1234")}]
        found |= CONTENTS[kind](self)
        if kind in CONTAINERS and self.chance(0.3):
            inside = self.pick(("Practitioner", "Observation", "Patient"))
            found["contained"] = [{"resourceType": inside, "id": "in", **CONTENTS[inside](self)}]
        if self.chance(0.2):
            found["language"] = self.pick(("de", "en"))
        if self.has_labels and self.chance(0.3):
            found["meta"] = {"security": [self.pick(LABELS)]}
        return found

    # -- what is stored

    def is_hidden(self, kind: str, resource: Json | None) -> bool:
        """Whether no right of the client reaches a resource of this content; None: a deletion.

        What mentions his patient is recorded in AuditEvents that he may see.
        """
        sees_audit = any(permit_of(self.caller, "AuditEvent", right) is not None for right in "rs")
        if sees_audit and resource is not None and f'"Patient/{self.caller.patient}"' in dumps(resource).decode():
            return False
        for right in "rs" if self.only_reads else "ruds":
            permit = permit_of(self.caller, kind, right)
            if permit is None:
                continue
            if permit.test is None:
                return False
            if resource is not None and passes(permit.test, kind, resource["id"], _NOW, extract(resource), resource):
                return False
        return True

    def put(self, at: int, resource: Json, worlds: str, tenant: str = "here") -> Step:
        """The step that stores a resource."""
        kind, id = resource["resourceType"], resource["id"]
        return Step(at, "PUT", f"{kind}/{id}", dumps(resource).decode(), (), worlds, tenant=tenant)

    def store(self, at: int) -> None:
        """A write by somebody else: in both worlds, or hidden and in one of them, or different in each."""
        kind = self.pick((*TYPES, "Observation", "Observation", "Observation", "Patient", "Encounter", "Encounter"))
        id = self.pick(IDS[kind])
        resource, key = self.content(kind, id), (kind, id)
        if self.chance(0.1):
            self.steps.append(self.put(at, resource, self.pick("AB"), "elsewhere"))
            return
        now, is_hidden = self._stored.get(key), self.is_hidden(kind, resource)
        if now == "visible" or (now is None and (not is_hidden or self.chance(0.2))):
            if now is None or self.chance(0.3):
                if not is_hidden and self.chance(0.3):
                    self._store_before(at, key)
                self._stored[key] = "hidden" if is_hidden else "visible"
                self.steps.append(self.put(at, resource, "AB"))
        elif is_hidden:
            self._store_hidden(at, key, resource)

    def _store_before(self, at: int, key: tuple[str, str]) -> None:
        """A hidden version of other content in each world, before one that is in both."""
        kind, id = key
        before = [self.content(kind, id) for _ in "AB"]
        if all(self.is_hidden(kind, one) for one in before):
            self.steps += [self.put(at, one, world) for one, world in zip(before, "AB", strict=True)]

    def _store_hidden(self, at: int, key: tuple[str, str], resource: Json) -> None:
        kind, id = key
        self._stored[key] = "differs"
        world = self.pick("AB")
        self.steps.append(self.put(at, resource, world))
        if self.chance(0.3):
            other = self.content(kind, id)
            if self.is_hidden(kind, other):
                self.steps.append(self.put(at, other, "B" if world == "A" else "A"))
        if self.chance(0.2) and self.is_hidden(kind, None):
            self.steps.append(Step(at, "DELETE", f"{kind}/{id}", worlds=world))

    def scenario(self) -> Scenario:
        """What is stored first, then requests of the client between writes of others."""
        if self.chance(0.7):
            for patient in ("p1", "p2"):
                resource = self.content("Patient", patient)
                self._stored["Patient", patient] = "hidden" if self.is_hidden("Patient", resource) else "visible"
                self.steps.append(self.put(0, resource, "AB"))
        for one in SHARED if self.notifies else ():
            self.steps.append(self.put(0, one, "AB"))
        for at in range(1, 25):
            self.store(at)
        ask = Client(self)
        for at in range(30, 48):
            if self.chance(0.4 if self.notifies else 0.2):
                self.store(at)
            else:
                step = ask.follow() if at > 40 and self.chance(0.3) else ask.step()
                step = ask.subscribe() if self.notifies and at < 32 and not self.only_reads else step
                self.steps.append(replace(step, at=at, is_client=True))
        limit = self.pick((1, 2, 1000, 1000))
        return Scenario(self.caller, tuple(self.steps), self.chance(0.4), self.notifies, limit, self.chance(0.4))


def _coding(system: str, *codes: str) -> Callable[[Maker], Json]:
    return lambda make: {"coding": [{"system": system, "code": make.pick(codes)}]}


_category = _coding(CATEGORY, "vital-signs", "laboratory")
_code = _coding("urn:c", "x", "y")

CONTENTS: dict[str, Callable[[Maker], Json]] = {
    "Patient": lambda make: {
        "gender": make.pick(("female", "male")), "birthDate": make.pick(("1970-01-01", "1980-02")),
        "name": [{"family": make.pick(("Adams", "Brown"))}],
        **({"generalPractitioner": [make.reference("Practitioner", "Organization")]} if make.chance(0.4) else {}),
        **({"link": [{"other": make.reference("Patient"), "type": "seealso"}]} if make.chance(0.2) else {}),
    },
    "Observation": lambda make: {
        "status": make.pick(("final", "amended")), "category": [_category(make)], "code": _code(make),
        "subject": make.reference("Patient"),
        **({"effectiveDateTime": make.pick(("2026-01-01", "2026-01-02T10:00:00Z"))} if make.chance(0.5) else {}),
        **({"valueQuantity": {"value": make.pick((1, 2.5))}} if make.chance(0.5) else {}),
        **({"performer": [make.reference("Practitioner", "Patient")]} if make.chance(0.4) else {}),
        **({"encounter": make.reference("Encounter")} if make.chance(0.4) else {}),
        **({"basedOn": [make.reference("ServiceRequest")]} if make.chance(0.3) else {}),
        **({"hasMember": [make.reference("Observation")]} if make.chance(0.3) else {}),
    },
    "Encounter": lambda make: {
        "status": "finished", "class": {"code": make.pick(("AMB", "IMP"))}, "subject": make.reference("Patient"),
        **({"serviceProvider": make.reference("Organization")} if make.chance(0.4) else {}),
    },
    "Condition": lambda make: {
        "code": _code(make), "subject": make.reference("Patient"),
        **({"encounter": make.reference("Encounter")} if make.chance(0.4) else {}),
        **({"asserter": make.reference("Practitioner", "Patient")} if make.chance(0.4) else {}),
    },
    "Practitioner": lambda make: {"name": [{"family": make.pick(("Clark", "Davis"))}]},
    "Organization": lambda make: {
        "name": make.pick(("North", "South")),
        **({"partOf": make.reference("Organization")} if make.chance(0.3) else {}),
    },
    "ServiceRequest": lambda make: {
        "status": "active", "intent": "order", "subject": make.reference("Patient"),
        **({"requester": make.reference("Practitioner", "Organization")} if make.chance(0.4) else {}),
    },
    "List": lambda make: {
        "status": "current", "mode": "working", "subject": make.reference("Patient"),
        "entry": [{"item": make.reference("Observation", "Condition", "Patient")} for _ in range(make.pick((1, 2)))],
    },
    "Group": lambda make: {
        "type": "person", "actual": True,
        "member": [{"entity": make.reference("Patient")} for _ in range(make.pick((1, 2)))],
    },
    "Provenance": lambda make: {
        "target": [make.reference(*TYPES[:4])], "recorded": "2026-01-01T00:00:00Z",
        "agent": [{"who": make.reference("Practitioner", "Patient")}],
    },
}  # fmt: skip


class Client:
    """Requests of the client."""

    def __init__(self, make: Maker) -> None:
        self.make = make
        self.pick, self.chance = make.pick, make.chance

    def step(self) -> Step:
        """One request."""
        if self.make.notifies and self.chance(0.5) and not self.make.only_reads:
            subscribing: Step = self.pick((self.subscribe, self.events, self.events))()
            return subscribing
        ways: tuple[Callable[[], Step], ...] = (
            self.read, self.vread, self.history, self.history, self.search, self.search, self.system_search,
            self.compartment, self.everything, self.audit, self.graphql, self.contained,
        )  # fmt: skip
        if self.make.only_reads:
            looking: Step = self.pick(ways)()
            return looking
        ways = (
            self.read, self.read, self.vread, self.history, self.history, self.search, self.search, self.search,
            self.system_search, self.system_search, self.compartment, self.compartment, self.everything, self.create,
            self.create, self.update, self.update, self.conditional_update, self.patch, self.patch, self.delete,
            self.delete, self.bundle, self.bundle, self.operation, self.odd, self.audit, self.subscribe, self.events,
            self.graphql, self.contained,
        )  # fmt: skip
        found: Step = self.pick(ways)()
        return found

    def request(self, method: str, url: str, body: Any = None, **headers: str) -> Step:
        """A request; headers with an empty value are left out."""
        text = None if body is None else dumps(body).decode()
        return Step(0, method, url, text, tuple((name, value) for name, value in headers.items() if value))

    def kind(self, rights: str = "r") -> str:
        """A type, most often one on which the client has these rights, within limits if there is one."""
        caller = self.make.caller
        permits = {one: [permit_of(caller, one, right) for right in rights] for one in TYPES}
        granted = [one for one in TYPES if None not in permits[one]]
        limited = [
            one for one in granted if any(found is not None and found.test is not None for found in permits[one])
        ]
        kind: str = self.pick(limited if limited and self.chance(0.7) else granted or TYPES)
        return kind if self.chance(0.9) else self.pick(TYPES)

    def id(self, kind: str) -> str:
        """An id of the pool, of a resource made earlier, or of nothing."""
        roll = self.make.random.random()
        if roll < 0.12:
            return f"{{id:{self.make.random.randrange(6)}}}"
        id: str = self.pick(IDS[kind]) if roll < 0.95 else "unknown"
        return id

    def of_one(self, rights: str = "r") -> str:
        """`Type/id`."""
        kind = self.kind(rights)
        return f"{kind}/{self.id(kind)}"

    def preference(self) -> str:
        """A value of Prefer."""
        preferences = ("", "", "", "return=minimal", "return=OperationOutcome", "handling=strict",
                       "return=representation")  # fmt: skip
        found: str = self.pick(preferences)
        return found

    def tag(self) -> str:
        """A value of If-Match."""
        found: str = self.pick(("", "", "", 'W/"1"', 'W/"2"', 'W/"3"'))
        return found

    # -- reads

    def read(self) -> Step:
        """Read."""
        return self.request(self.pick(("GET", "GET", "GET", "HEAD")), self.of_one(), if_none_match=self.tag(),
                            if_modified_since=self.pick(("", "", "Sat, 31 Jan 2026 08:00:09 GMT")))  # fmt: skip

    def graphql(self) -> Step:
        """A GraphQL query of the system or of one resource: reads, lists, references in both directions."""
        kind = self.kind("rs")
        optional = self.pick(("(optional: true)", ""))
        inner = "id meta { versionId } " + {
            "Observation": f"subject {{ resource{optional} {{ id }} }} encounter {{ resource {{ id ... on Encounter {{ "
            "serviceProvider { resource { id } } } } } hasMember { resource { id } }",
            "Patient": "ObservationList(_reference: patient, _sort: _id) { id hasMember { resource { id } } } "
            "EncounterConnection(_reference: subject) { count edges { resource { id } } }",
            "Encounter": f"subject {{ resource{optional} {{ id }} }} ObservationList(_reference: encounter) {{ id }}",
        }.get(kind, "")
        code = self.pick(("", "", f"(_id: {self.pick(IDS[kind])})", "(_sort: _id)", "(_count: 1)"))
        asked = self.pick((
            f'{{ {kind}(id: "{self.id(kind)}") {{ {inner} }} }}', f"{{ {kind}List{code} {{ {inner} }} }}",
            f"{{ {kind}Connection{code} {{ count pagesize edges {{ resource {{ {inner} }} }} }} }}",
        ))  # fmt: skip
        path = "$graphql"
        if self.chance(0.3):
            path, asked = f"{kind}/{self.id(kind)}/$graphql", f"{{ {inner} }}"
        return self.request("POST", path, {"query": asked}, content_type="application/json")

    def vread(self) -> Step:
        """One version."""
        return self.request("GET", f"{self.of_one()}/_history/{self.pick('1234')}")

    def history(self) -> Step:
        """The history of one resource, a type or everything."""
        path = self.pick((f"{self.of_one()}/_history", f"{self.kind('s')}/_history", "_history"))
        parameters = [self.pick(("_count=1", "_count=1", "_count=2", "_count=3", "_count=50"))]
        if self.chance(0.2):
            parameters.append(f"_since=2026-01-31T08:00:{self.make.random.randrange(30):02}Z")
        if "/" in path.removesuffix("/_history") and self.chance(0.2):
            parameters.append(f"_before={self.pick('234')}")
        return self.request("GET", f"{path}?{'&'.join(parameters)}")

    def criteria(self, kind: str) -> str:
        """One search parameter with a value."""
        patient, id = self.pick(PATIENTS), self.pick(IDS[kind])
        general = (
            f"_id={id}", f"_id={id},{self.pick(IDS[kind])}", f"identifier=urn:n|{self.pick('1234')}",
            "_lastUpdated=gt2026-01-31T08:00:08Z", "identifier:missing=true", "_language=de",
        )  # fmt: skip
        special = SEARCHES.get(kind, ())
        found: str = self.pick(general + special + special)
        return found.replace("{patient}", patient).replace("{p}", self.pick(PATIENTS))

    def result_parameters(self, kind: str) -> list[str]:
        """Parameters of the result."""
        found = []
        if self.chance(0.5):
            found.append(f"_count={self.pick('01123')}")
        if self.chance(0.3):
            found.append(self.pick(("_total=none", "_total=accurate", "_summary=count", "_elements=id,subject")))
        if self.chance(0.3):
            found.append(f"_sort={self.pick(SORTS.get(kind, ('_id', '-_lastUpdated')))}")
        if self.chance(0.4):
            found.append(self.pick(INCLUDES))
        if self.chance(0.2):
            found.append(self.pick(INCLUDES))
        if self.chance(0.1):
            found.append(self.pick(("_list=l1", "_list=l2", "unknown=x", "code=x", "_security=R")))
        return found

    def search(self) -> Step:
        """A search of one type, by GET or POST."""
        kind = self.kind("s")
        parameters = [self.criteria(kind) for _ in range(self.pick((0, 1, 1, 2)))] + self.result_parameters(kind)
        if self.chance(0.15):
            return self.request("POST", f"{kind}/_search?{'&'.join(parameters)}",
                                content_type="application/x-www-form-urlencoded")  # fmt: skip
        return self.request("GET", f"{kind}?{'&'.join(parameters)}", prefer=self.preference())

    def contained(self) -> Step:
        """A search for contained resources."""
        kind = self.pick(("Practitioner", "Observation", "Patient"))
        parameters = [self.criteria(kind) for _ in range(self.pick((0, 1, 1, 2)))]
        parameters += [self.pick(("_contained=true", "_contained=both")), f"_count={self.pick('123')}"]
        more = ("", "", "_containedType=contained", "_total=none", "_sort=-_lastUpdated", "_summary=count")
        return self.request("GET", f"{kind}?{'&'.join([*parameters, self.pick(more)])}", prefer=self.preference())

    def system_search(self) -> Step:
        """A search of several types."""
        parameters = self.result_parameters("")
        if self.chance(0.4):
            parameters.append(f"_type={','.join(sorted({self.kind('s'), self.kind('s')}))}")
        if self.chance(0.5):
            parameters.append(self.criteria(self.kind("s")))
        return self.request("GET", f"?{'&'.join(parameters)}", prefer=self.preference())

    def compartment(self) -> Step:
        """A search of a compartment."""
        compartment = self.pick(("Patient", "Patient", "Encounter", "Practitioner"))
        path = f"{compartment}/{self.id(compartment)}/{self.kind('s') if self.chance(0.5) else '*'}"
        return self.request("GET", f"{path}?{'&'.join(self.result_parameters('Observation'))}")

    def everything(self) -> Step:
        """$everything."""
        kind = self.pick(("Patient", "Patient", "Encounter"))
        more = self.pick(("", "?_count=1", "?_count=2", "?_type=Observation", "?_since=2026-01-31T08:00:08Z"))
        return self.request("GET", f"{kind}/{self.id(kind)}/$everything{more}")

    def audit(self) -> Step:
        """The audit trail."""
        id = f"{{id:{self.make.random.randrange(20)}}}"
        url = self.pick((
            "AuditEvent?_count=2", "AuditEvent", "AuditEvent?_summary=count", "AuditEvent?_sort=date&_count=1",
            "AuditEvent?entity=Patient/p1", f"AuditEvent?entity={self.of_one()}", "AuditEvent?patient=p1&_count=1",
            f"AuditEvent?patient={self.pick(PATIENTS)}", "AuditEvent?agent-name=app", "AuditEvent?outcome=4",
            "AuditEvent?action=C&_total=none", "AuditEvent?date=ge2026-01-31T08:00:20Z", f"AuditEvent/{id}",
            f"AuditEvent/{id}/_history", f"AuditEvent/{id}/_history/1", "AuditEvent/_history", "Patient/p1/AuditEvent",
            "AuditEvent?_include=AuditEvent:entity", "Patient?_revinclude=AuditEvent:entity",
        ))  # fmt: skip
        return self.request("GET", url)

    def subscribe(self) -> Step:
        """A Subscription of his own, or a change of it, or of that of somebody else."""
        if not self.may_subscribe():
            return self.search()
        id = self.pick(SUBSCRIPTIONS)
        if self.chance(0.15):
            return self.request(self.pick(("GET", "DELETE")), f"Subscription/{id}")
        socket = self.chance(0.4)
        criteria = self.pick((*CRITERIA, TOPIC, TOPIC))
        body = subscription(id, criteria, "websocket" if socket else "rest-hook", self.pick(("", PAYLOAD, PAYLOAD)))
        if criteria == TOPIC and self.chance(0.5):
            body["_criteria"] = {"extension": [{"url": FILTER, "valueString": self.pick(FILTERS)}]}
        if criteria == TOPIC:
            content = self.pick(("empty", "id-only", "full-resource"))
            body["channel"]["_payload"] = {"extension": [{"url": CONTENT, "valueCode": content}]}
            body["channel"]["payload"] = PAYLOAD
        if self.chance(0.2):
            return self.request("POST", "Subscription/$dry-run?days=300", body)
        return self.request("PUT", f"Subscription/{id}", body)

    def may_subscribe(self) -> bool:
        """Whether he has scopes on Subscriptions; else most such requests are as good as any."""
        return self.make.notifies or self.chance(0.1)

    def events(self) -> Step:
        """Events, counters and bindings of Subscriptions."""
        if not self.may_subscribe():
            return self.history()
        id = self.pick(SUBSCRIPTIONS)
        url = self.pick((
            f"Subscription/{id}/$status", "Subscription/$status", f"Subscription/{id}/$events",
            f"Subscription/{id}/$events?content=full-resource", f"Subscription/{id}/$events?eventsSinceNumber=2",
            f"Subscription/{id}/$events?content=empty", f"Subscription/{id}",
        ))  # fmt: skip
        return self.pick((
            self.request("GET", url), self.request("GET", url), self.request("GET", url),
            self.request("POST", f"Subscription/{id}/$resend?eventsSinceNumber={self.pick('123')}"),
            self.request("GET", f"Subscription/{id}/$get-ws-binding-token"),
            self.request("BIND", f"bind {id}"), self.request("BIND", f"bind {id}"),
            self.request("BIND", f"token {{token:{self.make.random.randrange(3)}}}"),
        ))  # fmt: skip

    def follow(self) -> Step:
        """The next page of an earlier answer."""
        return self.request("GET", f"{{next:{self.make.random.randrange(8)}}}")

    # -- writes

    def content(self, kind: str, id: str | None) -> Json:
        """What he stores: often within his limits."""
        found = self.make.content(kind, id)
        if self.chance(0.6):
            if "subject" in found:
                found["subject"] = {"reference": f"Patient/{self.make.caller.patient or 'p1'}"}
            if kind == "Observation":
                found |= {"status": "final", "category": [{"coding": [{"system": CATEGORY, "code": "vital-signs"}]}]}
            if kind == "Patient":
                found["gender"] = "female"
        return found

    def create(self) -> Step:
        """A create, often with a condition."""
        kind = self.kind("c")
        condition = self.criteria(kind) if self.chance(0.5) else ""
        return self.request("POST", kind, self.content(kind, None), prefer=self.preference(), if_none_exist=condition)

    def update(self) -> Step:
        """An update by id.  An id that labels hide is not free: docs/reference/access-control.md says why."""
        kind = self.kind("u")
        id = f"own{self.pick('12')}" if self.make.has_labels else self.id(kind)
        return self.request("PUT", f"{kind}/{id}", self.content(kind, id), prefer=self.preference(),
                            if_match=self.tag(), if_none_match="*" if self.chance(0.1) else "")  # fmt: skip

    def conditional_update(self) -> Step:
        """An update by a condition, sometimes with an id in the body."""
        kind = self.kind("us")
        body = self.content(kind, self.id(kind) if self.chance(0.4) and not self.make.has_labels else None)
        return self.request("PUT", f"{kind}?{self.criteria(kind)}", body, if_match=self.tag())

    def patch_body(self) -> list[Json]:
        """A JSON Patch."""
        found: list[Json] = self.pick((
            [{"op": "add", "path": "/language", "value": self.pick(("de", "fr"))}],
            [{"op": "test", "path": "/status", "value": "final"}],
            [{"op": "replace", "path": "/status", "value": "amended"}],
            [{"op": "remove", "path": "/identifier"}],
            [{"op": "replace", "path": "/subject/reference", "value": f"Patient/{self.pick(PATIENTS)}"}],
            [{"op": "replace", "path": "/id", "value": "x"}],
        ))  # fmt: skip
        return found

    def where(self, right: str) -> str:
        """`Type/id` or `Type?search`."""
        if self.chance(0.6):
            return self.of_one(right)
        kind = self.kind(f"{right}s")
        return f"{kind}?{self.criteria(kind)}"

    def patch(self) -> Step:
        """A patch by id or condition."""
        return self.request("PATCH", self.where("u"), self.patch_body(), content_type="application/json-patch+json",
                            if_match=self.tag(), prefer=self.preference())  # fmt: skip

    def delete(self) -> Step:
        """A deletion by id or condition."""
        return self.request("DELETE", self.where("d"), if_match=self.tag(), prefer=self.preference())

    def bundle(self) -> Step:
        """A transaction or a batch of such requests, with references between entries and by search."""
        entries = [self.entry() for _ in range(self.pick((1, 2, 2, 3)))]
        kind = self.pick(("transaction", "batch"))
        return self.request("POST", "", {"resourceType": "Bundle", "type": kind, "entry": entries},
                            prefer=self.preference())  # fmt: skip

    def entry(self) -> Json:
        """One entry."""
        step: Step = self.pick((
            self.read, self.search, self.history, self.create, self.create, self.update, self.conditional_update,
            self.delete,
        ))()  # fmt: skip
        names = {"if_match": "ifMatch", "if_none_match": "ifNoneMatch", "if_none_exist": "ifNoneExist"}
        method = "GET" if step.method == "POST" and "_search" in step.url else step.method
        request: Json = {"method": method, "url": step.url.replace("/_search", "")}
        request |= {names[name]: value for name, value in step.headers if name in names}
        found: Json = {"request": request}
        if step.body is not None:
            found["resource"] = self.with_searches(loads(step.body))
        return found

    def with_searches(self, resource: Json) -> Json:
        """The resource, sometimes with a conditional reference."""
        for name, kind in (("subject", "Patient"), ("encounter", "Encounter")):
            if name in resource and self.chance(0.3):
                resource[name] = {"reference": f"{kind}?{self.criteria(kind)}"}
        return resource

    # -- operations and oddities

    def operation(self) -> Step:
        """Operations."""
        merge = {"resourceType": "Parameters", "parameter": [
            {"name": "source-patient", "valueReference": self.make.reference("Patient")},
            {"name": "target-patient", "valueReference": self.make.reference("Patient")},
            {"name": "preview", "valueBoolean": self.chance(0.7)},
        ]}  # fmt: skip
        expunged = {"resourceType": "Parameters", "parameter": [
            {"name": f"expunge{one}", "valueBoolean": self.chance(0.7)}
            for one in ("PreviousVersions", "DeletedResources")
        ]}  # fmt: skip
        job = f"{{export:{self.make.random.randrange(3)}}}"
        labels = {"resourceType": "Parameters", "parameter": [
            {"name": "meta", "valueMeta": {"tag": [{"code": self.pick(("a", "b"))}]}},
        ]}  # fmt: skip
        person = {"resourceType": "Parameters", "parameter": [
            {"name": "resource", "resource": self.make.content("Patient", None)},
        ]}  # fmt: skip
        one = self.of_one()
        observed = self.pick(
            ("code=urn:c|x", "code:not=urn:c|x", "code=urn:c|x,urn:c|y&status=final", "category=vital-signs")
        )
        plain: tuple[Step, ...] = (
            self.request("GET", self.pick(("$meta", f"{self.kind()}/$meta", f"{one}/$meta"))),
            self.request("POST", f"{one}/{self.pick(('$meta-add', '$meta-delete'))}", labels),
            self.request("GET", f"{one}/$diff{self.pick(('', '?fromVersion=1'))}"),
            self.request("GET", f"$diff?from={one}&to={self.pick((one, self.of_one()))}"),
            self.request("POST", "Patient/$match", person),
            self.request("POST", "$fhirpath", {"resourceType": "Parameters", "parameter": [
                {"name": "expression", "valueString": "descendants().resolve() | id"}, *person["parameter"]]}),
            self.request("GET", f"Observation/$lastn?patient={self.id('Patient')}&max={self.pick('13')}&{observed}"),
            self.request("POST", f"{self.pick(('', f'{self.kind()}/', f'{one}/', f'{one}/_history/1/'))}$expunge"
                         f"{self.pick(('', '?limit=1'))}", expunged),
            self.request("POST", f"{self.of_one()}/$validate"),
            self.request("POST", "Patient/$merge", merge),
            self.request("POST", "Patient/$merge", merge),
            self.request("POST", f"Patient/{self.pick(PATIENTS)}/$unmerge", {
                "resourceType": "Parameters", "parameter": merge["parameter"][:1]}),
            self.request("GET", f"$export?_type={self.kind()}", prefer="respond-async"),
            self.request("GET", "$export", prefer="respond-async"),
            self.request("GET", "Patient/$export", prefer="respond-async"),
            self.request("GET", f"Group/{self.pick(IDS['Group'])}/$export", prefer="respond-async"),
            self.request("GET", f"$export-status/{job}"),
            self.request("DELETE", f"$export-status/{job}"),
            self.request("GET", f"$export-file/{job}/1"),
            self.request("GET", "$reindex"),
            self.request("GET", "metadata"),
        )  # fmt: skip
        found: Step = self.pick(plain)
        return found

    def odd(self) -> Step:
        """Requests that are wrong, or nearly so."""
        kind = self.kind()
        return self.request(self.pick(("GET", "DELETE", "PUT", "PATCH", "OPTIONS")), self.pick((
            f"{kind}/{self.id(kind)}/_history/0", f"{kind}/{self.id(kind)}%00", f"{kind}/.", f"{kind}?_cursor=x",
            f"{kind}/_history?_cursor=MQ", f"?_cursor={kind}~~1", "Nothing", f"{kind}", f"{kind}/{self.id(kind)}",
            f"{kind}/{self.id(kind)}/_history/99999999999",
        )))  # fmt: skip
