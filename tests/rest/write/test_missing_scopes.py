"""A creator that may not read what its Subscription matches is told so, in memory and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipf.fhir.model.json import dumps, loads
from ipf.fhir.xml.writer import from_xml, to_xml
from ipf.ports import OPEN, Answer, Caller, Json
from ipf.rest.http.exchange import VALIDATION
from ipf.rest.operations.subscription_status import set_status, set_topic_failure
from ipf.subscriptions.guide import HEARTBEAT
from ipf.subscriptions.matching import MatchingIndex
from ipf.subscriptions.topic_failures import failing_topic
from tests.rest.interactions.test_transaction import bundle, entry
from tests.rest.world import OnMemory, OnSharedPostgres, Suite
from tests.rest.write.test_topics import URL, subscription, topic

MINIMUM = "system/Subscription.crus"
LACKS_PATIENT = (
    "the client that registered it may not read Patient: notifications are sent without content; "
    "the missing scope is system/Patient.r"
)
FAILING = (
    "the topic http://a (version 1) cannot be evaluated: rule: reason; changes since now may not have been notified"
)

# (scopes, patient, criteria, types that the creator may not read)
TABLE: list[tuple[str, str | None, str, Sequence[str]]] = [
    (MINIMUM, None, "Patient?", ["Patient"]),
    (MINIMUM, None, "Patient?gender=male", ["Patient"]),
    (f"{MINIMUM} system/Observation.rs", None, "Patient?", ["Patient"]),
    (f"{MINIMUM} system/Patient.cud", None, "Patient?", ["Patient"]),
    (f"{MINIMUM} system/Patient.r", None, "Patient?", []),
    (f"{MINIMUM} system/Patient.s", None, "Patient?", []),
    (f"{MINIMUM} system/*.read", None, "Patient?", []),
    (f"{MINIMUM} system/Patient.rs?gender=male", None, "Patient?", []),
    (f"{MINIMUM} patient/Patient.rs", "p1", "Patient?", []),
    (MINIMUM, None, URL, ["Encounter"]),
    (f"{MINIMUM} system/Encounter.r", None, URL, []),
]


def client(scopes: str, name: str = "ada", patient: str | None = None) -> Caller:
    """A client with a token of these scopes."""
    return Caller(name, f"{name}-app", tuple(scopes.split()), patient=patient, issuer="https://idp")


class MissingScopesSuite(Suite):
    """From the request to the answer and the stored row."""

    async def ask(self, caller: Caller, method: str, url: str, body: Any = None, **headers: str) -> Answer:
        """A request of a caller."""
        self.world.caller = caller
        answer: Answer = await self.world.send(method, url, body, **headers)
        self.assertIn(answer.status, (200, 201), answer.body)
        return answer

    async def error(self) -> str | None:
        """`Subscription.error` as it is stored."""
        text: str | None = (await self.world.body("Subscription/s")).get("error")
        return text

    def warned(self, answer: Answer) -> list[str]:
        """The warnings in the header of the answer."""
        text = dict(answer.headers).get(VALIDATION)
        return [one["diagnostics"] for one in loads(text.encode())["issue"]] if text else []

    async def test_the_answer_and_the_resource_name_the_scope(self) -> None:
        await self.ask(OPEN, "PUT", "SubscriptionTopic/t1", topic())
        for number, (scopes, patient, criteria, types) in enumerate(TABLE):
            more = {} if criteria == URL else {"channel": {"_payload": None}}
            made = subscription(id=f"s{number}", criteria=criteria, **more)
            caller = client(scopes, patient=patient)
            answer = await self.ask(caller, "PUT", f"Subscription/s{number}", made)
            expected = [text for one in types for text in [LACKS_PATIENT.replace("Patient", one)]]
            stored = await self.world.body(f"Subscription/s{number}")
            case = scopes, criteria
            self.assertEqual([one for one in self.warned(answer) if "may not read" in one], expected, case)
            self.assertEqual([one for one in [stored.get("error")] if one], expected, case)
            self.assertEqual(loads(answer.body).get("error"), stored.get("error"), case)

    async def test_every_answer_of_a_write(self) -> None:
        made = subscription(criteria="Patient?", channel={"_payload": None})
        told = await self.ask(client(MINIMUM), "PUT", "Subscription/s", made, prefer="return=OperationOutcome")
        issues = [(one["severity"], one["diagnostics"]) for one in loads(told.body)["issue"]]
        self.assertIn(("warning", LACKS_PATIENT), issues)
        for kind in ("transaction", "batch"):
            whole = bundle(kind, entry("PUT", "Subscription/s", made | {"language": kind}))
            (one,) = loads((await self.ask(client(MINIMUM), "POST", "", whole)).body)["entry"]
            found = [issue["diagnostics"] for issue in one["response"]["outcome"]["issue"]]
            self.assertIn(LACKS_PATIENT, found)

    async def test_it_follows_the_creator(self) -> None:
        """A change of status by anybody leaves it; the scope, or another creator, ends it."""
        made = subscription(criteria="Patient?", channel={"_payload": None})
        ada, bob = client(MINIMUM), client("system/*.cruds", "bob")
        await self.ask(ada, "PUT", "Subscription/s", made)
        patch = {"content_type": "application/json-patch+json"}
        for caller, method, body in (
            (bob, "PUT", made | {"status": "off"}),
            (bob, "PUT", made),
            (bob, "PATCH", [{"op": "replace", "path": "/status", "value": "off"}]),
            (ada, "PUT", made | {"error": "what a client writes here is not kept"}),
        ):
            await self.ask(caller, method, "Subscription/s", body, **(patch if method == "PATCH" else {}))
            self.assertEqual(await self.error(), LACKS_PATIENT)
        await self.ask(client(f"{MINIMUM} system/Patient.r"), "PUT", "Subscription/s", made)
        self.assertIsNone(await self.error())
        await self.ask(ada, "PUT", "Subscription/s", made | {"status": "off"})
        self.assertIsNone(await self.error(), "a narrower token changes the status, not the grants")
        await self.ask(ada, "PUT", "Subscription/s", made | {"criteria": "Patient?active=true"})
        self.assertEqual(await self.error(), LACKS_PATIENT)
        await self.ask(
            bob, "PUT", "Subscription/s", made | {"channel": {**made["channel"], "endpoint": "https://b.org"}}
        )
        self.assertIsNone(await self.error())

    async def test_what_another_client_read_is_a_change_of_status(self) -> None:
        """In JSON and XML, with masks, filters, a content level and extensions of the channel."""
        await self.ask(OPEN, "PUT", "SubscriptionTopic/t1", topic())
        beat = {"url": HEARTBEAT, "valueUnsignedInt": 30}
        made = subscription("patient=Patient/p1", channel={"extension": [beat]}, end="2040-01-01T00:00:00Z")
        ada, bob = client(MINIMUM), client("system/*.cruds", "bob")
        await self.ask(ada, "PUT", "Subscription/s", made)
        before = await self.stored()
        for kind in ("application/fhir+xml", "application/fhir+json"):
            for status in ("off", "requested"):
                shown = await self.ask(bob, "GET", "Subscription/s", accept=kind)
                self.assertIn(b"***", shown.body)
                read = from_xml(shown.body) if "xml" in kind else loads(shown.body)
                changed = {**read, "status": status}
                body = to_xml(changed) if "xml" in kind else dumps(changed)
                await self.ask(bob, "PUT", "Subscription/s", body, content_type=kind)
                after = await self.stored()
                self.assertEqual((after["status"], after["channel"]), (status, before["channel"]))
                self.assertEqual(await self.error(), LACKS_PATIENT.replace("Patient", "Encounter"), kind)

    async def test_it_survives_the_changes_of_the_service(self) -> None:
        """Activation, an error with its end, and a failing topic."""
        made = subscription(criteria="Patient?", channel={"_payload": None})
        await self.ask(client(MINIMUM), "PUT", "Subscription/s", made)
        parts = self.world.store, self.world.matcher, lambda: self.world.now

        async def status(status: str, error: str | None) -> None:
            await set_status(self.world.tenant, "s", status, error, *parts)

        await status("active", None)
        self.assertEqual((await self.error(), (await self.stored())["status"]), (LACKS_PATIENT, "active"))
        await set_topic_failure(self.world.tenant, "s", FAILING, *parts)
        self.assertIsNotNone(failing_topic(await self.error()))
        await set_topic_failure(self.world.tenant, "s", None, *parts)
        self.assertEqual(await self.error(), LACKS_PATIENT)
        await status("error", "the handshake failed")
        self.assertEqual(await self.error(), "the handshake failed")
        await status("requested", None)
        self.assertEqual(await self.error(), LACKS_PATIENT)
        await self.world.repository.refresh()
        self.assertGreaterEqual(self.world.matcher.without_content, 1)

    async def stored(self) -> Json:
        """The stored Subscription."""
        found: Json = await self.world.body("Subscription/s")
        return found

    async def test_a_restart_keeps_the_creator_of_a_paused_subscription(self) -> None:
        """What does not fire is not matched, but its creator is known."""
        made = subscription(criteria="Patient?", channel={"_payload": None})
        await self.ask(client(MINIMUM), "PUT", "Subscription/s", made | {"status": "off"})
        self.world.matcher = MatchingIndex()
        await self.ask(client("system/*.cruds", "bob"), "PUT", "Subscription/s", made)
        self.assertEqual(await self.error(), LACKS_PATIENT)

    async def test_not_with_the_setting_nor_without_authentication(self) -> None:
        made = subscription(criteria="Patient?", channel={"_payload": None})
        for matcher in (MatchingIndex(subscribers_read=True), MatchingIndex(has_grants=False)):
            self.world.matcher = matcher
            await self.ask(client(MINIMUM), "PUT", "Subscription/s", made)
            self.assertIsNone(await self.error())


class OnMemoryTests(MissingScopesSuite, OnMemory):
    pass


class OnPostgresTests(MissingScopesSuite, OnSharedPostgres):
    """SQL keeps the creator, also of a Subscription that does not fire."""
