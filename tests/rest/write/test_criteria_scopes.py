"""Criteria and the right to search: what is refused, and what the response warns of, in memory and on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace

from ipf.fhir.model.json import loads
from ipf.ports import OPEN, Answer, Caller, Json
from ipf.ports.audit.records import FHIR
from ipf.rest.http.exchange import VALIDATION
from ipf.rest.router import handler
from ipf.security.audit.draft import RequestDraft
from ipf.subscriptions.matching import MatchingIndex
from ipf.subscriptions.missing_scopes import missing_scopes_text
from tests.fakes import MemoryDeliveryQueue
from tests.rest.interactions.test_transaction import bundle, entry
from tests.rest.world import OnMemory
from tests.rest.write.test_topics import URL, encounter, subscription, topic

PLAIN = Caller("app", "app", ("system/Subscription.cruds",))
EHR = Caller("ehr", "ehr", ("system/*.cruds",))
WARD = Caller("ward", "ward", ("system/Subscription.cruds", "patient/Encounter.rs"), patient="p1")
HIV: Json = {"criteria": "Condition?code=HIV&subject=Patient/p2", "channel": {"_payload": None}}


class CriteriaScopeTests(OnMemory):
    """Through the FHIR surface."""

    async def setUp(self) -> None:
        await super().setUp()
        self.queue = self.world.deliveries = MemoryDeliveryQueue(self.world.store)

    async def ask(self, caller: Caller, method: str, url: str, body: Json | None = None, **headers: str) -> Answer:
        """A request of a caller."""
        self.world.caller = caller
        answer: Answer = await self.world.send(method, url, body, **headers)
        return answer

    def needs_search(self) -> None:
        """Switch the setting on, as a start of the service does."""
        self.world.matcher = MatchingIndex(needs_search=True)

    def warned(self, answer: Answer) -> list[str]:
        """The warnings in the header."""
        text = dict(answer.headers).get(VALIDATION)
        return [issue["diagnostics"] for issue in loads(text.encode())["issue"]] if text else []

    async def test_a_response_warns_of_what_pings_tell(self) -> None:
        made = subscription(id="s", **HIV)
        expected = [
            "the token's scopes do not allow to search Condition: each notification tells that a Condition meets the "
            "criteria",
            missing_scopes_text(["Condition"]),
        ]
        self.assertEqual(self.warned(await self.ask(PLAIN, "PUT", "Subscription/s", made)), expected)
        asked = await self.ask(PLAIN, "PUT", "Subscription/s2", made | {"id": "s2"}, prefer="return=OperationOutcome")
        issues = [(one["severity"], one["code"]) for one in loads(asked.body)["issue"]]
        self.assertIn(("warning", "security"), issues)
        batch = await self.ask(PLAIN, "POST", "", bundle("batch", entry("PUT", "Subscription/s3", made | {"id": "s3"})))
        (one,) = loads(batch.body)["entry"]
        self.assertIn(expected[0], [issue["diagnostics"] for issue in one["response"]["outcome"]["issue"]])
        stored = await self.ask(PLAIN, "GET", "Subscription/s")
        self.assertNotIn(b"scopes do not allow", stored.body)
        for caller, criteria, warnings in (
            (PLAIN, "Condition?", expected[1:]), (EHR, HIV["criteria"], []), (OPEN, HIV["criteria"], []),
        ):  # fmt: skip
            answer = await self.ask(caller, "POST", "Subscription", made | {"criteria": criteria})
            self.assertEqual((answer.status, self.warned(answer)), (201, warnings))

    async def test_the_audit_record_names_them(self) -> None:
        """In the transaction of the write."""
        for caller, expected in ((PLAIN, (("criteria without the right to search", "Condition"),)), (EHR, None)):
            self.world.caller = caller
            request = self.world.request("PUT", "Subscription/s", subscription(id="s", **HIV, language=caller.client))
            draft = RequestDraft(request, 0.0, FHIR, "update", lambda: bytes(8), lambda outcome, count: None)
            answer = await handler(self.world.repository)(replace(request, draft=draft))
            (record, *_) = draft.records(200, answer.about, 0)
            self.assertEqual(record.origin.details if record.origin else None, expected)

    async def test_with_the_setting_they_are_refused(self) -> None:
        await self.ask(OPEN, "PUT", "SubscriptionTopic/t1", topic())
        self.assertEqual((await self.ask(PLAIN, "PUT", "Subscription/old", subscription(id="old", **HIV))).status, 201)
        self.needs_search()
        for made, missing in (
            (subscription(id="s", **HIV), "Condition"),
            (subscription(id="s"), "Encounter"),
            (subscription("patient=Patient/p2", id="s"), "Encounter"),
        ):
            for method, url in (("PUT", "Subscription/s"), ("POST", "Subscription")):
                answer = await self.ask(PLAIN, method, url, made)
                self.assertEqual(answer.status, 401, answer.body)
                challenge = f'Bearer error="insufficient_scope", scope="system/{missing}.s"'
                self.assertIn(("WWW-Authenticate", challenge), answer.headers)
            self.assertEqual((await self.ask(EHR, "POST", "Subscription", made)).status, 201)
        plain = subscription(id="s", criteria="Condition?", channel={"_payload": None})
        self.assertEqual((await self.ask(PLAIN, "PUT", "Subscription/s", plain)).status, 201)
        swap = [{"op": "replace", "path": "/criteria", "value": HIV["criteria"]}]
        patch = "application/json-patch+json"
        self.assertEqual((await self.ask(PLAIN, "PATCH", "Subscription/s", swap, content_type=patch)).status, 401)  # type: ignore[arg-type]

    async def test_stored_subscriptions_become_unserved(self) -> None:
        """Also when another client with the right writes the criteria; a new endpoint ends that."""
        self.assertEqual((await self.ask(PLAIN, "PUT", "Subscription/s", subscription(id="s", **HIV))).status, 201)
        self.needs_search()
        await self.ask(OPEN, "PUT", "Encounter/e", encounter("e", "planned"))
        self.assertEqual([one.id for one in self.world.matcher.unserved.values()], ["s"])
        (reason,) = [one.reason for one in self.world.matcher.unserved.values()]
        self.assertEqual(reason, "the token's scopes do not allow to search Condition")
        again = subscription(id="s", **HIV, language="de")
        self.assertEqual((await self.ask(EHR, "PUT", "Subscription/s", again)).status, 200)
        condition = {"resourceType": "Condition", "id": "c", "code": {"coding": [{"code": "HIV"}]},
                     "subject": {"reference": "Patient/p2"}}  # fmt: skip
        await self.ask(OPEN, "PUT", "Condition/c", condition)
        self.assertEqual((await self.queue.health("default", "s")).last_event_number, 0)
        off = await self.ask(PLAIN, "PUT", "Subscription/s", again | {"status": "off"})
        self.assertEqual(off.status, 200)
        moved = subscription(id="s", criteria=HIV["criteria"],
                             channel={"_payload": None, "endpoint": "https://ehr.example.org"})  # fmt: skip
        self.assertEqual((await self.ask(EHR, "PUT", "Subscription/s", moved)).status, 200)
        await self.ask(OPEN, "PUT", "Condition/c", condition | {"language": "de"})
        self.assertEqual(self.world.matcher.unserved, {})
        self.assertEqual((await self.queue.health("default", "s")).last_event_number, 1)

    async def test_numbers_are_those_of_what_is_visible(self) -> None:
        await self.ask(OPEN, "PUT", "SubscriptionTopic/t1", topic())
        self.assertEqual((await self.ask(WARD, "PUT", "Subscription/s", subscription(id="s"))).status, 201)
        self.assertEqual((await self.ask(EHR, "PUT", "Subscription/w", subscription(id="w"))).status, 201)
        for id, patient in (("a", "p1"), ("b", "p2"), ("c", "p1")):
            await self.ask(OPEN, "PUT", f"Encounter/{id}", encounter(id, "in-progress", patient))
        narrow = Caller("eve", "x", WARD.scopes, patient="p2")
        for caller, url, expected in (
            (WARD, "s", "2"), (OPEN, "s", "2"), (EHR, "s", "2"), (narrow, "s", None),
            (WARD, "w", None), (EHR, "w", "3"), (PLAIN, "w", "3"),
        ):  # fmt: skip
            found = loads((await self.ask(caller, "GET", f"Subscription/{url}/$status")).body)
            (status,) = [one["resource"]["parameter"] for one in found["entry"]]
            numbers = [one["valueString"] for one in status if one["name"] == "events-since-subscription-start"]
            self.assertEqual(numbers, [] if expected is None else [expected], (caller, url))
            for method, operation in (("GET", "$events"), ("POST", "$resend?eventsSinceNumber=9")):
                answer = await self.ask(caller, method, f"Subscription/{url}/{operation}")
                refused = 400 if operation.startswith("$resend") else 200
                self.assertEqual(answer.status, 401 if expected is None else refused, (caller, url, answer.body))
        events = (await self.ask(WARD, "GET", "Subscription/s/$events")).body
        self.assertIn(b"Encounter/a", events)
        self.assertNotIn(b"Encounter/b", events)
        refused = await self.ask(WARD, "PUT", "Subscription/s", subscription(id="s", **HIV))
        self.assertEqual(refused.status, 401)
        self.assertIn(URL, loads((await self.ask(WARD, "GET", "Subscription/s")).body)["criteria"])

    async def test_who_takes_a_subscription_over_begins_anew(self) -> None:
        await self.ask(OPEN, "PUT", "SubscriptionTopic/t1", topic())
        await self.ask(EHR, "PUT", "Subscription/s", subscription(id="s"))
        await self.ask(OPEN, "PUT", "Encounter/a", encounter("a", "in-progress", "p1"))
        mine = subscription(id="s", channel={"endpoint": "https://ward.example.org"})
        self.assertEqual((await self.ask(WARD, "PUT", "Subscription/s", mine)).status, 200)
        await self.ask(OPEN, "PUT", "Encounter/b", encounter("b", "in-progress", "p1"))
        events = (await self.ask(WARD, "GET", "Subscription/s/$events")).body
        self.assertNotIn(b"Encounter/a", events)
        self.assertIn(b'"event-number","valueString":"1"', events)
        self.assertIn(b'"events-since-subscription-start","valueString":"1"', events)
        health = await self.queue.health("default", "s")
        self.assertEqual((health.last_event_number, [one.since for one in health.writers]), (2, [1]))
