"""Random scenarios for `two_worlds.py`: a narrow client, Subscriptions of it and of others, and hidden changes.

Changes that are hidden from the client happen in one world alone, or with another content in the other world.  A
resource may come within the limits of the client and leave them again, with hidden versions that differ.
"""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import dumps
from ipf.ports import Caller, Json
from ipf.subscriptions.guide import CONTENT, FILTER, HEARTBEAT, MAX_COUNT
from tests.security.two_worlds import Scenario, Step
from tests.security.two_worlds_pools import LAB, VITAL
from tests.security.two_worlds_steps import IDS, Maker
from tests.subscriptions.two_worlds import HOOK

NARROW: tuple[Caller, ...] = tuple(
    Caller("ada", "app", ("system/Subscription.cruds", *scopes.split()), patient=patient)
    for scopes, patient in (
        ("patient/*.rs", "p1"),
        ("patient/*.cruds", "p1"),
        ("patient/Patient.rs patient/Observation.rs", "p1"),
        ("patient/Observation.r patient/Encounter.s", "p1"),
        (f"system/Observation.rs?{VITAL} system/Patient.rs", None),
        (f"system/Observation.r?{VITAL} system/Observation.s?{LAB} system/Encounter.rs", None),
        ("system/Patient.rs?gender=female system/Observation.rs?status=final", None),
        ("patient/*.rs", None),
    )
)

KINDS = ("Observation", "Observation", "Observation", "Patient", "Encounter", "Condition")
URL = "http://example.org/topics/"

TOPICS: dict[str, Json] = {
    "turned-final": {
        "resourceTrigger": [
            {
                "resource": "Observation",
                "queryCriteria": {"previous": "status=amended", "current": "status=final", "requireBoth": True},
            }
        ],
        "canFilterBy": [{"filterParameter": "subject"}, {"filterParameter": "code"}],
    },
    "no-longer-final": {
        "resourceTrigger": [
            {
                "resource": "Observation",
                "supportedInteraction": ["update", "delete"],
                "queryCriteria": {"previous": "status=final", "resultForDelete": "test-passes"},
            }
        ]
    },
    "created": {
        "resourceTrigger": [
            {"resource": kind, "supportedInteraction": ["create"]} for kind in ("Observation", "Encounter")
        ],
        "canFilterBy": [{"filterParameter": "subject"}],
    },
    "changed": {
        "resourceTrigger": [
            {"resource": "Observation", "supportedInteraction": ["update"],
             "fhirPathCriteria": "%previous.status != %current.status"},
            {"resource": "Patient"},
        ],
        "notificationShape": [
            {"resource": "Observation", "include": ["Observation:encounter", "Observation:has-member"]},
            {"resource": "Patient", "revInclude": ["Observation:subject", "Condition:subject"]},
        ],
    },
    "fails": {
        "resourceTrigger": [
            {"resource": "Observation",
             "fhirPathCriteria": "(%previous.code.coding.code | %current.code.coding.code).single().exists()"}
        ]
    },
}  # fmt: skip

SEARCHES = (
    "Observation?", "Observation?", "Observation?", "Observation?code=x", "Observation?status=final",
    "Observation?subject=Patient/p1",
    "Observation?subject=Patient/p2", "Patient?", "Patient?gender=female", "Encounter?", "Condition?code=x",
    "Condition?", "Observation?_lastUpdated=gt2026-01-31T08:00:05Z",
)  # fmt: skip


class NotificationMaker(Maker):
    """One random scenario about Subscriptions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.caller = self.pick(NARROW)
        self._number = 0

    def scenario(self) -> Scenario:
        """Topics and Subscriptions first, then changes, requests of the client, and deliveries."""
        for name, members in TOPICS.items():
            body = {"resourceType": "SubscriptionTopic", "id": name, "url": URL + name, "status": "active", **members}
            self.steps.append(self.put(0, body, "AB"))
        for id in ("own", "own-socket", "wide", "wide-socket", "vital"):
            self.subscribe(0, id)
        self.tick(1)
        self.bind(1)
        for at in range(2, 34):
            step = self.pick((self.change, self.change, self.change, self.change, self.change, self.change, self.tick,
                              self.tick, self.ask, self.ask, self.bind, self.subscribe_again))  # fmt: skip
            step(at)
        self.tick(35)
        self.steps.append(Step(36, "GET", "Subscription/$status", is_client=True))
        return Scenario(self.caller, tuple(self.steps))

    # -- changes

    def reference(self, *kinds: str) -> Json:
        """A reference, to the patient of the client more often than to others."""
        return {"reference": "Patient/p1"} if "Patient" in kinds and self.chance(0.5) else super().reference(*kinds)

    def change(self, at: int) -> None:
        """A write or a deletion by somebody else."""
        kind = self.pick(KINDS)
        id = self.pick(IDS[kind][:3])
        key, now = (kind, id), self._stored.get((kind, id))
        first, second = self.content(kind, id), self.content(kind, id)
        hidden = self.is_hidden(kind, first)
        if now == "differs":  # another number of versions in each world: it stays hidden
            if hidden:
                self.steps.append(self.put(at, first, self.pick("AB")))
        elif now is not None and self.chance(0.15):
            self.steps.append(Step(at, "DELETE", f"{kind}/{id}"))
        elif not hidden:
            self._stored[key] = "visible"
            self.steps.append(self.put(at, first, "AB"))
        elif now is None and self.chance(0.5):
            self._stored[key] = "differs"
            self.steps.append(self.put(at, first, self.pick("AB")))
        elif self.is_hidden(kind, second):
            second["language"] = "fr"  # never equal to what is there: each is a new version in both worlds
            first["language"] = "it" if self.chance(0.5) else "es"
            self._stored[key] = "hidden"
            self.steps += [self.put(at, first, "A"), self.put(at, second, "B")]

    # -- Subscriptions

    def subscription(self, id: str, kind: str, endpoint: str, is_own: bool = True) -> Json:
        """A Subscription by search or topic."""
        # A topic that fails is reported in the Subscription, which a scope on Subscription shows to others as well.
        topics = [one for one in TOPICS if is_own or one != "fails"]
        name = self.pick(topics) if self.chance(0.6) else None
        payload = "application/fhir+json"
        channel: Json = {"type": kind, "payload": payload}
        if kind == "rest-hook":
            channel |= {"endpoint": endpoint, "header": ["Authorization: Bearer x"]}
        found: Json = {"resourceType": "Subscription", "id": id, "status": "requested", "reason": "test",
                       "criteria": self.pick(SEARCHES) if name is None else URL + name, "channel": channel}  # fmt: skip
        if self.chance(0.2):
            found["language"] = self.pick(("de", "en", "fr"))
        if name is None:
            if self.chance(0.3):
                del channel["payload"]
            return found
        if self.chance(0.8):
            level = self.pick(("empty", "id-only", "full-resource"))
            channel["_payload"] = {"extension": [{"url": CONTENT, "valueCode": level}]}
            channel["extension"] = [{"url": HEARTBEAT, "valueUnsignedInt": 10}]
            if self.chance(0.4):
                channel["extension"].append({"url": MAX_COUNT, "valuePositiveInt": 3})
        if name in ("created", "turned-final") and self.chance(0.4):
            filters = [{"url": FILTER, "valueString": f"subject=Patient/{self.pick(('p1', 'p2'))}"}]
            found["_criteria"] = {"extension": filters}
        return found

    def subscribe(self, at: int, id: str) -> None:
        """The Subscription of the client, or of another one, is written."""
        kind = "websocket" if id.endswith("socket") else "rest-hook"
        is_own = id.startswith("own")
        endpoint = f"{HOOK}{id}" if is_own else f"https://{id}.example.org/"
        who = "here" if is_own else id.removesuffix("-socket")
        body = dumps(self.subscription(id, kind, endpoint, is_own)).decode()
        self.steps.append(Step(at, "PUT", f"Subscription/{id}", body, is_client=is_own, tenant=who))

    def subscribe_again(self, at: int) -> None:
        """A Subscription is written by its client, by the client of the test, or by one with more rights."""
        id = self.pick(("own", "own-socket", "wide", "wide-socket", "vital"))
        way = self.pick(("again", "mine", "other", "patch", "patch-other", "new", "delete"))
        if way == "again":
            self.subscribe(at, id)
        elif way == "new":
            body = dumps(self.subscription(id, "rest-hook", HOOK + "new") | {"id": "x"}).decode()
            self.steps.append(Step(at, "POST", "Subscription", body, is_client=True))
        elif way in ("mine", "other"):
            is_own = way == "mine"
            kind = "websocket" if id.endswith("socket") else "rest-hook"
            endpoint = f"https://{id}.example.org/"
            if is_own:
                endpoint = self.pick((HOOK + "taken", endpoint, f"{HOOK}{id}"))
            body = dumps(self.subscription(id, kind, endpoint, is_own)).decode()
            self.steps.append(Step(at, "PUT", f"Subscription/{id}", body, is_client=is_own, tenant="wide"))
        elif way == "delete":
            if self.chance(0.2):
                self.steps.append(Step(at, "DELETE", f"Subscription/{id}", is_client=self.chance(0.5), tenant="wide"))
        else:
            status: Any = [{"op": "replace", "path": "/status", "value": self.pick(("requested", "off"))}]
            if self.chance(0.5):
                criteria = {"op": "replace", "path": "/criteria", "value": self.pick(SEARCHES)}
                # Whoever replaces the criteria becomes the creator: its content would go to the narrow client.
                status += [criteria] if way == "patch" or id.endswith("socket") else []
            self.steps.append(
                Step(at, "PATCH", f"Subscription/{id}", dumps(status).decode(),
                     (("content_type", "application/json-patch+json"),), is_client=way == "patch", tenant="wide")
            )  # fmt: skip

    # -- what the client asks

    def tick(self, at: int) -> None:
        """Time passes."""
        self.steps.append(Step(at, "TICK", str(self.pick((0, 1, 5, 11))), is_client=True))

    def bind(self, at: int) -> None:
        """A websocket binding of the client, or of another one."""
        id = self.pick(("own-socket", "wide-socket"))
        if self.chance(0.2):
            self.steps.append(Step(at, "BIND", id, tenant="wide"))
        elif self.chance(0.5):
            self.steps.append(Step(at, "BIND", id, is_client=True))
        else:
            self.steps += [Step(at, "GET", f"Subscription/{id}/$get-ws-binding-token", is_client=True),
                           Step(at, "REDEEM", "", is_client=True)]  # fmt: skip

    def ask(self, at: int) -> None:
        """An operation, a read or a search about Subscriptions."""
        id = self.pick(("own", "own", "own-socket", "wide", "wide-socket", "vital"))
        numbers = self.pick(("", "?eventsSinceNumber=1", "?eventsSinceNumber=2&eventsUntilNumber=4",
                             "?content=empty", "?content=full-resource"))  # fmt: skip
        first = self.pick(("1", "2", "9"))
        method, url = self.pick((
            ("GET", f"Subscription/{id}/$status"), ("GET", f"Subscription/{id}/$status"),
            ("GET", "Subscription/$status"), ("GET", f"Subscription/{id}/$events{numbers}"),
            ("GET", f"Subscription/{id}/$events{numbers}"), ("GET", f"Subscription/{id}"),
            ("GET", f"Subscription/{id}/_history"), ("GET", "Subscription"),
            ("POST", f"Subscription/{id}/$resend?eventsSinceNumber={first}"),
            ("POST", f"Subscription/{id}/$dry-run"),
        ))  # fmt: skip
        self.steps.append(Step(at, method, url, is_client=True))
