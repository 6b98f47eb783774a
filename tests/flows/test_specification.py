"""Senders and operators as the specification's text has them, on a started service, over sockets.

Each step names the section of `interface-specification.md` and, in short, the sentence that it checks.
"""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

from tests.flows.far_ends import Hook
from tests.flows.specification import (
    ADMIN,
    Deployment,
    SpecificationTest,
    Websocket,
    admission,
    default_mode,
    hl7,
    with_issuer,
)
from tests.waiting import LIMIT, PATIENCE

GROUP = "flows"
FAMILY = "specification"

LISTED = [
    "id", "received_at", "source_protocol", "source_system", "source_id", "message_type", "status", "attempt_count",
    "last_attempt_at", "last_error", "delivered_at", "correlation_id",
]  # fmt: skip
HEALTH = [
    "id", "active", "channel_type", "endpoint", "delivery_success_count", "delivery_failure_count", "last_attempt_at",
    "last_attempt_outcome", "last_error", "status", "criteria",
]  # fmt: skip


def subscription(**channel: Any) -> dict[str, Any]:
    """A Subscription to every Patient."""
    return {
        "resourceType": "Subscription", "status": "requested", "reason": "specification", "criteria": "Patient?",
        "channel": {"type": "rest-hook", **channel},
    }  # fmt: skip


class SenderTests(SpecificationTest):
    """The sections "Ingest rules" and "MLLP"."""

    timeout = 10 * LIMIT

    def setUp(self) -> None:
        self.ipf = default_mode()

    def test_a_message_is_stored_and_acknowledged(self) -> None:
        """MLLP: the reply is an ACK with the original control id.  Ingest 1: stored before it is acknowledged."""
        head, msa, *_ = self.ipf.send(admission("S1", "SP1"))
        self.assertEqual(head.split(b"|")[8], b"ACK^A01^ACK")
        self.assertEqual(msa.split(b"|")[:3], [b"MSA", b"AA", b"S1"])
        (row,) = self.ipf.ask("GET", "/admin/messages?source_id=S1")[1]["items"]
        self.assertEqual((row["source_system"], row["source_protocol"]), ("WARD", "HL7V2_MLLP"))
        self.assertEqual(self.ipf.message("S1", "DELIVERED")["message_type"], "ADT_A01")
        found = self.ipf.ask("GET", "/fhir/Patient?identifier=SP1")[1]
        self.assertEqual(found["total"], 1)

    def test_a_repeat_makes_no_row(self) -> None:
        """Ingest 3: a repeat of system and control id is acknowledged AA and creates no new row."""
        for _ in range(2):
            self.assertEqual(self.ipf.send(admission("S2", "SP2"))[1].split(b"|")[1:3], [b"AA", b"S2"])
        self.assertEqual(self.ipf.ask("GET", "/admin/messages?source_id=S2")[1]["total"], 1)

    def test_senders_are_on_the_lan(self) -> None:
        """MLLP: a TCP listener, reachable on a trusted LAN.  127.0.0.2 is reached if all interfaces are."""
        self.assertEqual(self.ipf.send(admission("S3", "SP3"), host="127.0.0.2")[1].split(b"|")[1], b"AA")
        started = self.ipf.line("event=started")["message"]
        self.assertIn(f"MLLP 127.0.0.1:{self.ipf.service.mllp_port} (all interfaces)", started)
        self.assertIn("IPF_MLLP_LISTEN listens on all interfaces, unless it names one", started)

    def test_a04_is_passed_through(self) -> None:
        """Ingest 5: ADT^A04 does not call the mapping service.  Log events: its line names type, id and application."""
        pid = "PID|1||SP4^^^GENERAL^MR||Hansen^Kari||19700315|F"
        self.assertEqual(self.ipf.send(hl7("ADT^A04", "S4", pid))[1].split(b"|")[1], b"AA")
        row = self.ipf.message("S4", "DELIVERED")
        self.assertIsNone(row["last_error"])
        line = self.ipf.line("source_id=S4")["message"]
        for token in ("event=passthrough", "message_type=ADT_A04", "source_system=WARD", "IPF_PASSTHROUGH_TYPES"):
            self.assertIn(token, line)
        self.assertEqual(self.ipf.ask("GET", "/fhir/Patient?identifier=SP4")[1]["total"], 0)
        trace = self.ipf.ask("GET", f"/admin/observe/trace/{row['correlation_id']}")[1]
        self.assertEqual(trace["messages"][0]["passed_through"], "IPF_PASSTHROUGH_TYPES")

    def test_what_cannot_be_mapped_is_a_dead_letter(self) -> None:
        """States: FAILED until the attempts are used up, then DEAD_LETTER.  Log events: the lines, level and fields."""
        self.assertEqual(self.ipf.send(hl7("ZZZ^Z01", "S5"))[1].split(b"|")[1], b"AA")
        row = self.ipf.message("S5", "DEAD_LETTER")
        self.assertEqual(row["attempt_count"], 5)
        self.assertTrue(row["last_error"].startswith("mapping ZZZ_Z01 of WARD failed: "), row["last_error"])
        fields = f"message_id={row['id']} source_system=WARD source_id=S5 message_type=ZZZ_Z01 attempt_count="
        tried, dead = self.ipf.line(f"event=retry_scheduled {fields}1"), self.ipf.line(f"event=dlq {fields}5")
        self.assertEqual((tried["level"], dead["level"]), ("INFO", "WARN"))
        for one in (tried, dead):
            self.assertIn("stage=matchbox", one["message"])  # a failure line names the stage and a reason
            self.assertIn("last_error=", one["message"])
            self.assertEqual(one["correlation_id"], row["correlation_id"])
        self.assertIn("backoff_ms=20", tried["message"])

    def test_what_is_no_hl7_is_refused(self) -> None:
        """Errors, HL7 ACK codes: AR is an option; decisions section 4: what is no HL7 v2 gets it with an ERR."""
        segments = self.ipf.send(b"this is no HL7\r")
        self.assertEqual(segments[1].split(b"|")[1], b"AR")
        self.assertTrue(any(one.startswith(b"ERR|") for one in segments))


class OperatorTests(SpecificationTest):
    """The sections of the admin API, the observability API, health, logs and limits, without a token."""

    timeout = 10 * LIMIT

    def setUp(self) -> None:
        self.ipf = default_mode()

    def test_the_list_of_messages(self) -> None:
        """Message administration: newest first, `total` of the filter.  Limits: limit, offset."""
        for number in range(3):
            self.ipf.send(admission(f"L{number}", "LP1", sender="LIST"))
        status, page = self.ipf.ask("GET", "/admin/messages?source_system=LIST")
        self.assertEqual((status, page["total"], page["limit"], page["offset"]), (200, 3, 50, 0))
        self.assertEqual([one["source_id"] for one in page["items"]], ["L2", "L1", "L0"])
        self.assertEqual(list(page["items"][0])[: len(LISTED)], LISTED)
        for query, limit, offset in (
            ("limit=0", 1, 0), ("limit=9999", 500, 0), ("limit=50&offset=37", 50, 0), ("limit=2&offset=3", 2, 2),
            ("offset=-4", 50, 0),
        ):  # fmt: skip
            page = self.ipf.ask("GET", f"/admin/messages?{query}")[1]
            self.assertEqual((page["limit"], page["offset"]), (limit, offset), query)
        self.assertEqual(self.ipf.ask("GET", "/admin/messages?status=LOST")[0], 400)

    def test_one_message(self) -> None:
        """Message administration: the single row has the payload; retry and delete as the matrix says."""
        self.ipf.send(admission("O1", "OP1"))
        row = self.ipf.message("O1", "DELIVERED")
        path = f"/admin/messages/{row['id']}"
        status, whole = self.ipf.ask("GET", path)
        self.assertEqual(status, 200)
        self.assertIn("|ADT^A01^ADT_A01|O1|", whole["raw_message"])
        self.assertIn("next_attempt_at", whole)
        for method, action, code in (("POST", f"{path}/retry", "retry"), ("DELETE", path, "delete")):
            status, conflict = self.ipf.ask(method, action)
            self.assertEqual((status, conflict["error"]), (409, f"invalid_state_for_{code}"))
            self.assertEqual((conflict["id"], conflict["currentStatus"]), (row["id"], "DELIVERED"))
        for method, missing in (("GET", "1000000"), ("POST", "1000000/retry"), ("DELETE", "1000000")):
            self.assertEqual(self.ipf.ask(method, f"/admin/messages/{missing}")[0], 404)

    def test_a_dead_letter_is_tried_again_and_deleted(self) -> None:
        """States: retry resets the counters; delete answers 204 without a body."""
        self.ipf.send(hl7("ZZZ^Z02", "O2"))
        path = f"/admin/messages/{self.ipf.message('O2', 'DEAD_LETTER')['id']}"
        status, again = self.ipf.ask("POST", f"{path}/retry")
        self.assertEqual((status, again["status"], again["attempt_count"]), (200, "RECEIVED", 0))
        self.assertEqual((again["last_error"], again["next_attempt_at"]), (None, None))
        self.ipf.message("O2", "DEAD_LETTER")
        self.assertEqual(self.ipf.ask("DELETE", path), (204, ""))
        self.assertEqual(self.ipf.ask("GET", path)[0], 404)

    def test_subscriptions(self) -> None:
        """Subscription administration: health, resource, history, the change of status and its log line."""
        hook = Hook()
        self.addCleanup(hook.stop)
        status, made = self.ipf.ask("POST", "/fhir/Subscription", subscription(type="websocket"))
        self.assertEqual(status, 201)
        path = f"/admin/subscriptions/{made['id']}"

        def item() -> Any:
            found = self.ipf.ask("GET", "/admin/subscriptions/health")[1]
            return next(one for one in found["items"] if one["id"] == f"Subscription/{made['id']}")

        self.wait(lambda: item()["active"] or None, "it is active")
        self.assertEqual(list(item())[: len(HEALTH)], HEALTH)
        self.assertEqual(self.ipf.ask("GET", f"{path}/resource")[1]["resourceType"], "Subscription")
        history = self.ipf.ask("GET", f"{path}/history?limit=50&offset=37")[1]
        self.assertEqual((history["subscription_id"], history["offset"]), (f"Subscription/{made['id']}", 0))
        status, changed = self.ipf.ask("PATCH", f"{path}/status", {"status": "off"})
        self.assertEqual((status, changed["status"], changed["active"]), (200, "off", False))
        self.assertIn(made["id"], self.ipf.line("audit_event=subscription_status_changed")["message"])
        for body in ({}, {"status": "paused"}):
            self.assertEqual(self.ipf.ask("PATCH", f"{path}/status", body)[0], 400)
        for missing in ("none/resource", "none/history"):
            self.assertEqual(self.ipf.ask("GET", f"/admin/subscriptions/{missing}")[0], 404)
        self.assertEqual(self.ipf.ask("PATCH", "/admin/subscriptions/none/status", {"status": "off"})[0], 404)

    def test_observability(self) -> None:
        """Observability API: every response carries `schema_version`, currently 1.0; OpenAPI 3.1."""
        for path in ("system", "throughput?window=24h", "throughput?window=1h", "dlq?limit=20"):
            status, body = self.ipf.ask("GET", f"/admin/observe/{path}")
            self.assertEqual((status, body["schema_version"]), (200, "1.0"), path)
        status, document = self.ipf.ask("GET", "/admin/observe/openapi.json")
        self.assertEqual((status, document["openapi"][:3]), (200, "3.1"))

    def test_log_records(self) -> None:
        """Log record: the REQUIRED fields are on every record; one JSON a line."""
        for one in self.ipf.records():
            self.assertLessEqual({"@timestamp", "level", "logger_name", "message", "schema_version"}, set(one))
            self.assertIn(one["level"], ("TRACE", "DEBUG", "INFO", "WARN", "ERROR"))
            self.assertEqual(one["schema_version"], "1.0")

    def test_health_and_metrics(self) -> None:
        """Other engine HTTP: health on the port of the admin API, for whoever asks; metrics of deliveries."""
        for host in ("127.0.0.1", "load-balancer.example", "10.1.2.3:8090"):
            for path in ("/actuator/health", "/actuator/health/liveness", "/actuator/health/readiness"):
                status, body = self.ipf.ask("GET", path, Host=host)
                self.assertEqual((status, body["status"]), (200, "UP"), (host, path))
        self.assertEqual(self.ipf.ask("GET", "/admin/messages", Host="evil.example")[0], 421)
        metrics = self.ipf.ask("GET", "/actuator/prometheus")[1]
        for outcome in ("success", "failure"):
            self.assertIn(f'fhir_subscription_delivery_total{{outcome="{outcome}"}}', metrics)

    def test_http_without_tokens_is_on_loopback(self) -> None:
        """Authentication: for dev only; a warning once at start.  The line of the start says how to change it."""
        with self.assertRaises(OSError):
            socket.create_connection(("127.0.0.2", self.ipf.service.http_port), PATIENCE).close()
        started = self.ipf.line("event=started")["message"]
        self.assertIn("IPF_HTTP_LISTEN is on loopback until IPF_ADMIN_AUTH_TOKEN is set and", started)
        warned = [one for one in self.ipf.records() if "IPF_ADMIN_AUTH_TOKEN is not set" in one["message"]]
        self.assertEqual([one["level"] for one in warned], ["WARN"])

    def test_audit_events(self) -> None:
        """FHIR AuditEvent resources: writes are audited, reads are not; admin and metadata never are."""
        self.ipf.ask("POST", "/fhir/Basic", {"resourceType": "Basic", "code": {"text": "audited"}})
        self.ipf.ask("GET", "/fhir/Basic?code:text=audited")

        def trail() -> Any:
            found = self.ipf.ask("GET", "/fhir/AuditEvent?_count=100&_sort=-_lastUpdated")[1]
            kinds = [one["resource"]["subtype"][0]["code"] for one in found.get("entry", ())]
            return kinds if "create" in kinds else None

        self.assertNotIn("search", self.wait(trail, "the create is audited"))

    def test_profiles_are_validated(self) -> None:
        """Vendor profile administration: validates an archive without restart; decisions section 3: 400 for none."""
        archive = {"Content_Type": "application/x-gtar"}
        self.assertEqual(self.ipf.ask("POST", "/admin/api/profiles/validate", b"no archive", **archive)[0], 400)
        self.assertEqual(self.ipf.ask("POST", "/admin/api/profiles/reload")[0], 200)


class DefaultModeTests(SpecificationTest):
    """The section "Channel security" with its default, `strict`, and no authentication."""

    timeout = 10 * LIMIT

    def setUp(self) -> None:
        self.ipf = default_mode()

    def test_strict_is_the_default(self) -> None:
        """Errors 422: endpoint not HTTPS, Authorization missing, rest-hook without endpoint; one issue per failure."""
        for channel, words in (
            ({"endpoint": "http://10.1.2.3/hook"}, ("HTTPS", "Authorization")),
            ({"endpoint": "https://10.1.2.3/hook"}, ("Authorization",)),
            ({"header": ["Authorization: Bearer x"]}, ("endpoint",)),
        ):
            status, outcome = self.ipf.ask("POST", "/fhir/Subscription", subscription(**channel))
            self.assertEqual((status, outcome["resourceType"]), (422, "OperationOutcome"))
            texts = [one["diagnostics"] for one in outcome["issue"]]
            self.assertEqual(len(texts), len(words), texts)
            for word, text in zip(words, texts, strict=True):
                self.assertIn(word, text)

    def test_endpoints_on_the_lan(self) -> None:
        """A hospital's LAN: private and loopback addresses; never a port of the service, nor a link-local address."""
        http_port, mllp_port = self.ipf.service.http_port, self.ipf.service.mllp_port
        for host, setting in (
            ("10.1.2.3", ""), ("172.16.0.9:8443", ""), ("192.168.1.20", ""), ("[fd00::9]", ""), ("127.0.0.1:9", ""),
            ("localhost:9", ""), ("emr.hospital.local", ""), ("169.254.169.254", "SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW"),
            ("[::ffff:169.254.169.254]", "SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW"), ("2852039166", "address such as"),
            ("0.0.0.0", "unspecified"), ("224.0.0.1", "multicast"), ("255.255.255.255", "broadcast"),
            (f"127.0.0.1:{http_port}", "IPF_HTTP_LISTEN"), (f"localhost:{mllp_port}", "IPF_MLLP_LISTEN"),
            (f"[::ffff:127.0.0.1]:{http_port}", "IPF_HTTP_LISTEN"),
        ):  # fmt: skip
            sent = subscription(endpoint=f"https://{host}/hook", header=["Authorization: Bearer x"]) | {"status": "off"}
            status, answer = self.ipf.ask("POST", "/fhir/Subscription", sent)
            self.assertEqual(status, 422 if setting else 201, (host, answer))
            if setting:
                self.assertIn(setting, answer["issue"][0]["diagnostics"], host)

    def test_websockets_need_a_session(self) -> None:
        """Channel security: websocket subscriptions require an authenticated session.  Registration and bind say so."""
        prefer = {"Prefer": "return=OperationOutcome"}
        status, outcome = self.ipf.ask("POST", "/fhir/Subscription", subscription(type="websocket"), **prefer)
        self.assertEqual(status, 201)
        (warned,) = [one["diagnostics"] for one in outcome["issue"] if one["severity"] == "warning"]
        self.assertIn("no websocket session can be authenticated", warned)
        made = self.ipf.ask("POST", "/fhir/Subscription", subscription(type="websocket"))[1]
        client = Websocket(self.ipf.service.http_port)
        self.addCleanup(client.close)
        client.send(f"bind {made['id']}")
        self.assertEqual(client.receive(), f"error {warned}")

    def test_email_is_accepted_and_never_sent(self) -> None:
        """Subscription notifications 5: email is accepted at registration but never sent."""
        sent = subscription(type="email", endpoint="mailto:ward@hospital.example") | {"criteria": "Device?"}
        made = self.ipf.ask("POST", "/fhir/Subscription", sent)[1]
        self.ipf.ask("POST", "/fhir/Device", {"resourceType": "Device"})

        def item() -> Any:
            found = self.ipf.ask("GET", "/admin/subscriptions/health")[1]["items"]
            (one,) = [one for one in found if one["id"] == f"Subscription/{made['id']}"]
            return one if one["active"] and not one.get("pending_count") else None

        found = self.wait(item, "it is active, with nothing to send")
        counts = found["delivery_success_count"], found["delivery_failure_count"]
        self.assertEqual((counts, found["last_error"]), ((0, 0), None))
        self.assertIn("IPF_SMTP_URL", found["warnings"][0])


class IssuerTests(SpecificationTest):
    """The section "Authentication": an issuer, an admin token, mode strict, validation mode warn."""

    timeout = 10 * LIMIT

    def setUp(self) -> None:
        self.ipf, self.provider, self.hook = with_issuer()

    def bearer(self, scope: str) -> dict[str, str]:
        """The header of a client with this scope."""
        return {"Authorization": f"Bearer {self.provider.token('good', scope)}"}

    def test_the_issuer_alone_protects_fhir(self) -> None:
        """FHIR surface 1: requests carry a JWT of the issuer; /metadata is anonymous.  Admin: 401 with Bearer."""
        self.assertEqual(self.ipf.head("/fhir/Patient")[0], 401)
        self.assertEqual(self.ipf.head("/fhir/metadata")[0], 200)
        self.assertEqual(self.ipf.ask("GET", "/fhir/Patient", **self.bearer("system/Patient.rs"))[0], 200)
        self.assertEqual(self.ipf.ask("GET", "/fhir/Patient", **self.bearer("system/Basic.r"))[0], 401)
        self.assertEqual(self.ipf.ask("GET", "/fhir/Patient", Authorization="Bearer e.y.J")[0], 401)
        status, headers = self.ipf.head("/admin/messages")
        self.assertEqual((status, headers["www-authenticate"]), (401, "Bearer"))
        self.assertEqual(self.ipf.head("/admin/messages", Authorization="Bearer wrong")[0], 401)
        self.assertEqual(self.ipf.head("/admin/messages", Authorization=f"Bearer {ADMIN}")[0], 200)
        self.assertEqual(self.ipf.head("/admin/observe/openapi.json")[0], 200)

    def test_both_tokens_open_http(self) -> None:
        """Authentication: with both, HTTP is reached as MLLP is."""
        connection = http.client.HTTPConnection("127.0.0.2", self.ipf.service.http_port, timeout=PATIENCE)
        connection.request("GET", "/actuator/health", headers={"Host": "anything.example"})
        self.assertEqual(connection.getresponse().status, 200)
        connection.close()

    def test_a_subscriber_with_https(self) -> None:
        """Subscription notifications: PUT with the body and the registered header; 2xx acknowledges.  In mode strict,
        on an address of the LAN.  Deliveries are not in the audit trail."""
        rights = self.bearer("system/Subscription.crus system/Patient.cruds system/AuditEvent.rs")
        sent = subscription(
            endpoint=self.hook.url, payload="application/fhir+json", header=["Authorization: Bearer cb"]
        )
        status, made = self.ipf.ask("POST", "/fhir/Subscription", sent, **rights)
        self.assertEqual(status, 201)

        def is_active() -> Any:
            found = self.ipf.ask("GET", f"/fhir/Subscription/{made['id']}", **rights)[1]
            return found if found["status"] == "active" else None

        self.wait(is_active, "it is active")
        patient = {"resourceType": "Patient", "identifier": [{"system": "urn:sp", "value": "IS1"}]}
        created = self.ipf.ask("POST", "/fhir/Patient", patient, **rights)[1]
        (request,) = self.wait(lambda: self.hook.at(f"/Patient/{created['id']}") or None, "it is notified")
        self.assertEqual((request.method, request.headers["authorization"]), ("PUT", "Bearer cb"))
        self.assertEqual(request.headers["content-type"], "application/fhir+json; charset=UTF-8")
        self.assertEqual(json.loads(request.body)["id"], created["id"])
        trail = self.ipf.ask("GET", "/fhir/AuditEvent?_count=100&_sort=-_lastUpdated", **rights)[1]
        agents = [one["resource"]["subtype"][0]["code"] for one in trail["entry"]]
        self.assertIn("create", agents)
        self.assertNotIn(self.hook.url, json.dumps(trail))

    def test_validation_mode_warn(self) -> None:
        """Profile validation: `warn` adds findings to the response OperationOutcome, and accepts."""
        rights = self.bearer("system/Patient.cruds")
        wrong = {"resourceType": "Patient", "contact": [{"gender": "other"}]}  # pat-1: a contact has details
        status, outcome = self.ipf.ask("POST", "/fhir/Patient", wrong, Prefer="return=OperationOutcome", **rights)
        self.assertEqual(status, 201)
        self.assertIn("error", [one["severity"] for one in outcome["issue"]], outcome)


class SandboxTests(SpecificationTest):
    """FHIR surface 4: authentication may be disabled by an operator for a sandbox."""

    timeout = 10 * LIMIT

    def test_the_sandbox_is_warned_about(self) -> None:
        ipf = Deployment(
            SUBSCRIPTION_SERVICE_AUTH_ISSUER="https://idp.example.org", SUBSCRIPTION_SERVICE_AUTH_ENABLED="false"
        )
        self.addCleanup(ipf.stop)
        self.assertEqual(ipf.ask("GET", "/fhir/Patient")[0], 200)
        health = ipf.ask("GET", "/actuator/health")[1]
        self.assertEqual(health["status"], "UP")
        self.assertIn("sandbox", health["components"]["authentication"]["details"]["warning"])
        self.assertEqual(ipf.line("this is a sandbox")["level"], "WARN")
        self.assertIn("SUBSCRIPTION_SERVICE_AUTH_ENABLED=false is removed", ipf.line("event=started")["message"])
