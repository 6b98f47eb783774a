"""Subscribers and their operator from the text of the interface specification alone, on a started service.

Each step names the section and the sentence that it checks.  `tests/flows/subscriber.py` has the clients.

Source: ../shared/spec/interface-specification.md; its last word is ../shared/spec/decisions.md.
"""

from __future__ import annotations

import json
import socket
from typing import Any

from ipf.subscriptions.guide import CONTENT
from tests.flows import idp
from tests.flows.subscriber import (
    JSON,
    SECRET,
    SUBSCRIPTION_TOPIC,
    TOPIC,
    SpecificationCase,
    entries_of,
    lan_address,
)

GROUP = "flows"
SHAPES, SURFACE, STATES = "Notification shapes", "FHIR surface", "FHIR Subscription status"
ERRORS, EVENTS, SECURITY = "Errors", "Subscription notifications", "Channel security"
ADMINISTRATION, FIELDS, AUTHENTICATION = "Subscription administration", "FHIR Subscription", "Authentication"
MINIMUM = "system/Subscription.crus"


class DefaultModeTests(SpecificationCase):
    """No authentication, channel security `strict`, one partition."""

    def test_a_subscriber_and_the_operator(self) -> None:
        self.begin()
        self._refusals()
        self._registration()
        self._shapes()
        self._headers()
        self._topics()
        self._error_and_the_way_out()
        self._operator()

    def patient(self, id: str) -> Any:
        """A created or updated Patient."""
        return self.fhir("PUT", f"Patient/{id}", {"resourceType": "Patient", "id": id, "identifier": [{"value": id}]})

    def _refusals(self) -> None:
        with self.says(SURFACE, "CapabilityStatement; `fhirVersion` 4.0.1; anonymous-accessible"):
            self.assertEqual(self.fhir("GET", "metadata")["fhirVersion"], "4.0.1")
        plain = {"type": "rest-hook", "endpoint": "http://127.0.0.1:9/hook", "payload": JSON}
        with self.says(ERRORS, "OperationOutcome with one issue per failure: not HTTPS, no Authorization"):
            status, refused = self.ask("POST", "/fhir/Subscription", self.subscription(plain))
            self.assertEqual((status, refused["resourceType"], len(refused["issue"])), (422, "OperationOutcome", 2))
        with self.says(ERRORS, "`rest-hook` without endpoint"):
            without = self.channel("/none", endpoint=None)
            self.assertEqual(self.ask("POST", "/fhir/Subscription", self.subscription(without))[0], 422)

        with self.says(SECURITY, "The check runs on Subscription create and update"):
            port, name = self.service.http_port, socket.gethostname()
            itself = self.channel("/own", endpoint=f"https://{name}:{port}/hook")
            status, refused = self.ask("POST", "/fhir/Subscription", self.subscription(itself))
            self.assertEqual(status, 422, "its name resolves to this host, and the port is the service's own")
            self.assertIn("IPF_HTTP_LISTEN", refused["issue"][0]["diagnostics"])
            gone = self.channel("/gone", endpoint="https://gone.invalid/hook")
            self.assertEqual(self.ask("POST", "/fhir/Subscription", self.subscription(gone))[0], 201)

    def _registration(self) -> None:
        with self.says(SURFACE, "201 with created resource and server id"):
            status, made = self.ask("POST", "/fhir/Subscription", self.subscription(self.channel("/first")))
            self.assertEqual((status, made["status"], bool(made["id"])), (201, "requested", True))
        with self.says(STATES, "Asynchronous, usually within a second; Server starts monitoring"):
            self.becomes(made["id"], "active")
        with self.says(SURFACE, "Every status change as resource versions"):
            history = self.fhir("GET", f"Subscription/{made['id']}/_history")["entry"]
            statuses = [(one["resource"]["meta"]["versionId"], one["resource"]["status"]) for one in history]
            self.assertEqual(statuses, [("2", "active"), ("1", "requested")])
        with self.says(EVENTS, "`email`: accepted at registration"):
            mail = {"type": "email", "endpoint": "mailto:ward@example.org", "header": [f"Authorization: {SECRET}"]}
            self.assertEqual(self.ask("POST", "/fhir/Subscription", self.subscription(mail))[0], 201)
        self.patient("first")
        self.notified("/first")

    def _shapes(self) -> None:
        criteria = "Patient?identifier=shapes"
        self.register(self.channel("/content"), criteria)
        self.register(self.channel("/empty", payload=None), criteria)
        self.register(self.channel("/message", type="message"), criteria)
        self.patient("shapes")
        with self.says(SHAPES, "HTTP PUT to {callback_url}/<ResourceType>/<id> with the resource as body"):
            (put,) = self.notified("/content")
            self.assertEqual((put.method, put.path), ("PUT", "/content/Patient/shapes"))
            self.assertEqual(json.loads(put.body)["identifier"], [{"value": "shapes"}])
            self.assertEqual(put.headers["content-type"], "application/fhir+json; charset=UTF-8")
            self.assertEqual(put.headers["authorization"], SECRET)
        with self.says(SHAPES, "HTTP POST to {callback_url} with empty body (`Content-Length: 0`)"):
            (post,) = self.notified("/empty")
            self.assertEqual((post.method, post.path, post.body), ("POST", "/empty", b""))
            self.assertEqual((post.headers["content-length"], post.headers["authorization"]), ("0", SECRET))
        with self.says(SHAPES, "Bundle of type `message` posted to the endpoint"):
            (message,) = self.notified("/message")
            self.assertEqual((message.method, json.loads(message.body)["type"]), ("POST", "message"))
        with self.says("Correlation", "forward it on outbound requests (FHIR server to subscriber)"):
            self.assertTrue(put.headers["x-correlation-id"])

    def _headers(self) -> None:
        with self.says(FIELDS, "`<Header-Name>: <value>`, attached verbatim to every outbound notification"):
            own = "Content-Type: application/json", "X-Correlation-Id: of-the-subscriber", "X-Key: a:b"
            self.register(self.channel("/headers", *own), "Patient?identifier=headers")
            self.patient("headers")
            (sent,) = self.notified("/headers")
            found = [sent.headers[name] for name in ("content-type", "x-correlation-id", "x-key", "authorization")]
            self.assertEqual(found, ["application/json", "of-the-subscriber", "a:b", SECRET])
        for name in ("Host", "Content-Length", "Transfer-Encoding", "Connection"):
            broken = self.subscription(self.channel("/broken", f"{name}: 1"))
            self.assertEqual(self.ask("POST", "/fhir/Subscription", broken)[0], 422, f"{name} breaks the framing")

    def _topics(self) -> None:
        with self.says(FIELDS, "a fresh deployment returns zero of them"):
            self.assertEqual(self.fhir("GET", "SubscriptionTopic")["total"], 0)
        self.fhir("POST", "SubscriptionTopic", SUBSCRIPTION_TOPIC)
        with self.says(SURFACE, "Bundle of topics (`total`, `entry[].resource` with `url`, `title`, `status`)"):
            (entry,) = self.fhir("GET", "SubscriptionTopic")["entry"]
            self.assertEqual([entry["resource"][name] for name in ("url", "title", "status")],
                             [TOPIC, "Patients", "active"])  # fmt: skip
        self._activation()
        id = self.register(self.channel("/topic"), TOPIC)
        for name in ("topic-1", "topic-2"):
            self.patient(name)
        with self.says(SHAPES, "Bundle of type `history`; first entry a `SubscriptionStatus`, second the resource"):
            first, second = self.notified("/topic", 2)
            bundle = json.loads(first.body)
            self.assertEqual((first.method, bundle["type"], bool(bundle["timestamp"])), ("POST", "history", True))
            status, changed = entries_of(first.body)
            named = status["resourceType"], status["status"], status["type"], status["topic"]
            self.assertEqual(named, ("SubscriptionStatus", "active", "event-notification", TOPIC))
            self.assertEqual(status["subscription"]["reference"], f"Subscription/{id}")
            self.assertEqual((changed["resourceType"], changed["id"]), ("Patient", "topic-1"))
            self.assertTrue(bundle["entry"][1]["fullUrl"].endswith("Patient/topic-1"))
        with self.says(SHAPES, "`eventNumber` as string; increases monotonically per subscription"):
            events = [entries_of(one.body)[0]["notificationEvent"][0] for one in (first, second)]
            self.assertEqual([one["eventNumber"] for one in events], ["1", "2"])
            self.assertEqual(events[0]["focus"]["reference"], "Patient/topic-1")

    def _activation(self) -> None:
        level = {"_payload": {"extension": [{"url": CONTENT, "valueCode": "id-only"}]}}
        self.hook.status = 503
        with self.says(STATES, "still `requested` after 30 seconds indicates failed activation; `error` may say why"):
            made = self.fhir("POST", "Subscription", self.subscription(self.channel("/refuses", **level), TOPIC))
            item = self.wait(lambda: (one := self._health(made["id"]))["last_error"] and one)
            self.assertRegex(item["last_error"], r"HTTP status 503 \(handshake \d+, the next in [0-9.]+ s\)")
            tried = r"the handshake failed (once|\d+ times) and is repeated for 30 s: HTTP status 503"
            shown = self.wait(lambda: "error" in (one := self.fhir("GET", f"Subscription/{made['id']}")) and one)
            self.assertEqual(shown["status"], "requested")
            self.assertRegex(shown["error"], tried)
            failed = self.becomes(made["id"], "error")
            self.assertRegex(failed["error"], r"the handshake failed \d+ times in \d+ s: HTTP status 503")
        self.hook.status = 200
        with self.says(STATES, "Subscriber PUTs the resource with status `requested`; Re-activation as above"):
            self.fhir("PUT", f"Subscription/{made['id']}", {**failed, "status": "off"})
            self.fhir("PUT", f"Subscription/{made['id']}", {**failed, "status": "requested"})
            self.assertNotIn("error", self.becomes(made["id"], "active"))
            self.fhir("PUT", f"Subscription/{made['id']}", {**failed, "status": "off"})

    def _error_and_the_way_out(self) -> None:
        id = self.register(self.channel("/dead"), "Patient?identifier=dead")
        self.hook.status = 503
        self.patient("dead")
        with self.says(EVENTS, "After the retry budget the Subscription status becomes `error`"):
            failed = self.becomes(id, "error")
            self.assertTrue(failed["error"])
        with self.says("Subscription health item", "Forced to `failure` when status is `error`; the error text"):
            item = self._health(id)
            self.assertEqual((item["last_attempt_outcome"], item["active"]), ("failure", False))
            self.assertEqual(item["last_error"], failed["error"])
        self.hook.status = 200
        with self.says(STATES, "Subscriber PUTs the resource with status `requested` after endpoint is fixed"):
            self.assertEqual(failed["channel"]["header"], ["Authorization: ***"])
            fixed = {**failed, "status": "requested"}
            fixed["channel"] = {**failed["channel"], "endpoint": f"{self.hook.url}/alive"}
            self.fhir("PUT", f"Subscription/{id}", fixed)
            self.becomes(id, "active")
            (sent,) = self.notified("/alive")
            self.assertEqual((sent.path, sent.headers["authorization"]), ("/alive/Patient/dead", SECRET))

    def _health(self, id: str) -> Any:
        items = self.admin("GET", "health")["items"]
        return next(one for one in items if one["id"] == f"Subscription/{id}")

    def _operator(self) -> None:
        id = self.register(self.channel("/operated"), "Patient?identifier=operated")
        with self.says("Subscription health item", "every field of the table"):
            item = self._health(id)
            self.assertEqual((item["active"], item["status"], item["channel_type"]), (True, "active", "rest-hook"))
            self.assertEqual(item["endpoint"], f"{self.hook.url}/operated")
            self.assertEqual(item["criteria"], "Patient?identifier=operated")
        with self.says(ADMINISTRATION, "200 the full FHIR R4 Subscription resource as JSON"):
            self.assertEqual(self.admin("GET", f"{id}/resource")["resourceType"], "Subscription")
        with self.says(STATES, "`off`: Delivery paused"):
            self.assertEqual(self.admin("PATCH", f"{id}/status", {"status": "off"})["status"], "off")
            self.patient("operated")
        with self.says(ADMINISTRATION, "200 a health item showing the new state"):
            self.assertIn(
                self.admin("PATCH", f"{id}/status", {"status": "requested"})["status"], ("requested", "active")
            )
            self.becomes(id, "active")
            self.assertEqual(self.hook.at("/operated"), [])
        self.patient("operated-2")
        self.fhir("PUT", "Patient/operated", {"resourceType": "Patient", "id": "operated", "active": True,
                                              "identifier": [{"value": "operated"}]})  # fmt: skip
        with self.says("Subscription history response", "items newest first, `outcome` always populated"):
            self.notified("/operated")
            page = self.wait(lambda: (one := self.admin("GET", f"{id}/history"))["total"] and one)
            self.assertEqual((page["subscription_id"], page["limit"], page["offset"]), (f"Subscription/{id}", 50, 0))
            self.assertEqual(page["items"][0]["outcome"], "success")
        with self.says(ERRORS, "Body lacks `status` or value not one of the four; no Subscription with that id"):
            for path, body, expected in ((id, {}, 400), (id, {"status": "on"}, 400), ("none", {"status": "off"}, 404)):
                asked = "PATCH", f"/admin/subscriptions/{path}/status", body
                self.assertEqual(self.ask(*asked, content_type="application/json")[0], expected)
            self.assertEqual(self.ask("GET", "/admin/subscriptions/none/history")[0], 404)


class LanTests(SpecificationCase):
    """A subscriber on an address of the hospital's network."""

    def test_a_subscriber_on_a_private_address(self) -> None:
        self.begin(lan_address())
        with self.says(FIELDS, "Absolute HTTPS URL for `rest-hook` and `message`"):
            self.register(self.channel("/lan"), "Patient?identifier=lan")
            self.fhir("PUT", "Patient/lan", {"resourceType": "Patient", "id": "lan", "identifier": [{"value": "lan"}]})
            (sent,) = self.notified("/lan")
            self.assertEqual(sent.path, "/lan/Patient/lan")
        with self.says(SECURITY, "an endpoint that is no valid address stays refused: link-local, unspecified"):
            for host in ("169.254.169.254", "0.0.0.0"):
                channel = self.channel("/", endpoint=f"https://{host}/hook")
                self.assertEqual(self.ask("POST", "/fhir/Subscription", self.subscription(channel))[0], 422, host)


class StrictTests(SpecificationCase):
    """Bearer tokens of a real issuer."""

    async def test_clients_with_their_scopes(self) -> None:
        provider = idp.start()
        self.addCleanup(provider.stop)
        self.begin(SUBSCRIPTION_SERVICE_AUTH_ISSUER=provider.issuer)
        self.provider = provider
        self.reader = provider.token("good", f"{MINIMUM} system/Patient.rs")
        self.minimum = provider.token("ro", MINIMUM)
        self.writer = provider.token("es", "system/*.cruds")
        self.fhir("POST", "SubscriptionTopic", SUBSCRIPTION_TOPIC, self.writer)
        self._who_may_register()
        told, topic = self._the_minimum_scope()
        read = self.register(self.channel("/read"), token=self.reader)
        self._notifications("one", 1)
        self._status_changes(read, told)
        self._notifications("two", 2)
        self._the_missing_scope(told)
        await self._websockets()
        self.fhir("GET", f"Subscription/{topic}", None, self.minimum)

    def patient(self, id: str) -> None:
        """A Patient that another system writes."""
        self.fhir("PUT", f"Patient/{id}", {"resourceType": "Patient", "id": id}, self.writer)

    def _who_may_register(self) -> None:
        with self.says(SURFACE, "anonymous-accessible"):
            self.assertEqual(self.ask("GET", "/fhir/metadata", token="")[0], 200)
        with self.says(AUTHENTICATION, "Reasons for a 401 on registration: missing scope, token not trusted"):
            body = self.subscription(self.channel("/none"))
            for token in ("", "no.jwt.token", self.provider.token("good", "system/Patient.cruds")):
                self.assertEqual(self.ask("POST", "/fhir/Subscription", body, token)[0], 401)

    def _the_minimum_scope(self) -> tuple[str, str]:
        with self.says(AUTHENTICATION, "Minimum for registering a Subscription: `system/Subscription.crus`"):
            body = self.subscription(self.channel("/minimum"))
            told = self.fhir("POST", "Subscription", body, self.minimum, Prefer="return=OperationOutcome")
            (warning,) = [one for one in told["issue"] if one["severity"] == "warning"]
            self.assertIn("system/Patient.r", warning["diagnostics"])
            (found,) = self.fhir("GET", "Subscription?criteria=Patient?", None, self.minimum)["entry"]
        id = str(found["resource"]["id"])
        with self.says(FIELDS, "error: text set by the server"):
            self.assertIn("system/Patient.r", self.becomes(id, "active", self.minimum)["error"])
            (item,) = [one for one in self.admin("GET", "health")["items"] if one["id"] == f"Subscription/{id}"]
            self.assertIn("system/Patient.r", item["last_error"])
            health = self.ask("GET", "/actuator/health", token="")[1]["components"]["subscriptions"]
            self.assertEqual(health["details"]["without_content"], 1)
        return id, self.register(self.channel("/minimum-topic"), TOPIC, self.minimum)

    def _notifications(self, patient: str, count: int) -> None:
        """Each client gets what its own scopes allow, whoever changed the status."""
        self.patient(patient)
        with self.says(EVENTS, "A notification is a signal to refresh: id-only, without the right to read"):
            sent = self.notified("/minimum", count)[-1]
            self.assertEqual((sent.method, sent.path, sent.body), ("POST", "/minimum", b""))
            self.assertEqual(sent.headers["authorization"], SECRET)
        with self.says(SHAPES, "Bundle with the SubscriptionStatus, and no content without the right to read"):
            sent = self.notified("/minimum-topic", count)[-1]
            (status,) = entries_of(sent.body)
            self.assertEqual((status["resourceType"], status["topic"]), ("SubscriptionStatus", TOPIC))
            self.assertEqual(status["notificationEvent"][0]["eventNumber"], str(count))
            self.assertNotIn(b"Patient/", sent.body)
        with self.says(SHAPES, "HTTP PUT with the resource as body, with the right to read"):
            sent = self.notified("/read", count)[-1]
            self.assertEqual((sent.method, sent.path), ("PUT", f"/read/Patient/{patient}"))

    def _status_changes(self, read: str, told: str) -> None:
        """By another client, by a narrower token of the creator, and by the operator."""
        with self.says(STATES, "Operator or subscriber sets `off` (FHIR update or the admin status PATCH)"):
            narrower = self.provider.token("good", MINIMUM)
            for id, token in ((read, narrower), (read, self.minimum), (told, self.writer)):
                shown = self.fhir("GET", f"Subscription/{id}", None, token)
                self.fhir("PUT", f"Subscription/{id}", {**shown, "status": "off"}, token)
                self.fhir("PUT", f"Subscription/{id}", {**shown, "status": "requested"}, token)
                self.becomes(id, "active", token)
            for status in ("off", "requested"):
                self.admin("PATCH", f"{read}/status", {"status": status})
            self.becomes(read, "active", self.reader)
            self.assertNotIn("error", self.fhir("GET", f"Subscription/{read}", None, self.reader))

    def _the_missing_scope(self, told: str) -> None:
        with self.says(SURFACE, "PUT: Update (also used to set status back to `requested`)"):
            token = self.provider.token("ro", f"{MINIMUM} system/Patient.r")
            shown = self.fhir("GET", f"Subscription/{told}", None, token)
            self.fhir("PUT", f"Subscription/{told}", {**shown, "status": "requested"}, token)
            self.assertNotIn("error", self.becomes(told, "active", token))
            count = len(self.hook.at("/minimum"))
            self.patient("three")
            sent = self.notified("/minimum", count + 1)[-1]
            self.assertEqual((sent.method, sent.path), ("PUT", "/minimum/Patient/three"))

    async def _websockets(self) -> None:
        channel = {"type": "websocket", "payload": JSON}
        mine = self.register(channel, "Patient?_id=socket", self.reader)
        pinged = self.register(channel, "Patient?_id=socket", self.minimum)
        with self.says(SECURITY, "WebSocket subscriptions require an authenticated session"):
            stranger = await self.websocket()
            stranger.sendMessage(f"bind {mine}".encode())
            self.assertTrue((await stranger.received.get()).startswith("error"))
        with self.says(SURFACE, "`bind <subscription-id>`; the server replies `bound <subscription-id>`"):
            callers = {}
            for id, token in ((mine, self.reader), (pinged, self.minimum)):
                callers[id] = caller = await self.websocket(f"bearer-{token}")
                caller.sendMessage(f"bind {id}".encode())
                self.assertEqual(await caller.received.get(), f"bound {id}")
        self.patient("socket")
        with self.says(SURFACE, "sends `ping <subscription-id>`; the resource body follows as a separate message"):
            self.assertEqual(await callers[mine].received.get(), f"ping {mine}")
            self.assertEqual(json.loads(await callers[mine].received.get())["id"], "socket")
        with self.says(SURFACE, "`ping` alone, without the right to read"):
            self.assertEqual(await callers[pinged].received.get(), f"ping {pinged}")
            self.patient("socket-2")
            self.fhir("PUT", "Patient/socket", {"resourceType": "Patient", "id": "socket", "active": True}, self.writer)
            self.assertEqual(await callers[pinged].received.get(), f"ping {pinged}")


class TenancyTests(SpecificationCase):
    """Partitions by a tenant claim; and the subscription scope implies reading what matches."""

    def test_tenants_and_bare_ids(self) -> None:
        provider = idp.start()
        self.addCleanup(provider.stop)
        self.begin(
            SUBSCRIPTION_SERVICE_AUTH_ISSUER=provider.issuer,
            SUBSCRIPTION_SERVICE_MULTITENANCY="enabled",
            SUBSCRIPTION_SERVICE_SUBSCRIBERS_READ="true",
            SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW="127.0.0.0/8",
        )
        tokens = {name: provider.token(f"tenant-{name}", "system/*.cruds") for name in ("a", "b")}
        ids = {}
        for name, token in tokens.items():
            minimum = provider.token(f"tenant-{name}", MINIMUM)
            ids[name] = self.register(self.channel(f"/{name}"), token=minimum)
            self.assertNotIn("error", self.fhir("GET", f"Subscription/{ids[name]}", None, token))
        for name, token in tokens.items():
            self.fhir("PUT", f"Patient/{name}", {"resourceType": "Patient", "id": name}, token)
        with self.says("Multi-tenancy", "tenants cannot see each other's data; no tenant segment in the path"):
            for name, other in (("a", "b"), ("b", "a")):
                (sent,) = self.notified(f"/{name}")
                self.assertEqual(sent.path, f"/{name}/Patient/{name}", "the subscription scope implies reading")
                for place in (f"Patient/{other}", f"Subscription/{ids[other]}"):
                    self.assertEqual(self.ask("GET", f"/fhir/{place}", None, tokens[name])[0], 404)
        with self.says(ADMINISTRATION, "`{id}` is the bare id (not `Subscription/<id>`)"):
            for name, id in ids.items():
                self.assertEqual(self.admin("GET", f"{id}/resource")["id"], id)
                self.assertEqual(self.admin("GET", f"{id}/history")["subscription_id"], f"Subscription/{id}")
                for status in ("off", "requested"):
                    self.assertEqual(self.admin("PATCH", f"{id}/status", {"status": status})["tenant"], name)
                self.becomes(id, "active", tokens[name])
                self.assertEqual(self.admin("GET", f"{id}/resource?tenant={name}")["id"], id)
                self.assertEqual(
                    self.ask("GET", f"/admin/subscriptions/{id}/resource?tenant=default", token="")[0], 404
                )
