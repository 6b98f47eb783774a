"""`ipfctl` against a service that responds from a table: requests, output and exit status."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from klein import Klein
from rich.console import Console
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase
from twisted.web.server import Site

from ipf.cli import bulk, configuration, doctor, identity, merges, messages, profiles, sending, subscriptions
from ipf.cli.api import Api, Refused
from ipf.cli.output import Output, shown
from ipf.fhir.model.json import dumps, loads
from tests.service_process import ROOT
from tests.vendor_profiles.samples import EXAMPLE, example
from tests.waiting import turns

ROW = {
    "id": 7, "received_at": "2026-01-01T00:00:00Z", "status": "DEAD_LETTER", "attempt_count": 5, "source_system": "LAB",
    "source_id": "M1", "message_type": "ORU_R01", "last_error": "no map", "correlation_id": "c-1",
    "raw_message": "MSH|^~\\&|LAB\rPID|1",
}  # fmt: skip
HEALTH = {"id": "Subscription/s1", "status": "error", "last_error": "since noon"}
GROUP = {"fingerprint": "3f1c", "count": 12, "sample": "mapping ADT_A01 of LAB failed: no map", "newest_id": 7}
MANY = [{"path": f"Patient.name[{number}]", "stored": "Old", "replayed": f"New {number}"} for number in range(23)]
CHANGED = {"outcome": "updated", "resource_type": "Patient", "id": "p1", "differences": MANY}
PREVIEW = {"message_id": 7, "map_url": "urn:map", "resources": [CHANGED]}
CANDIDATES = [
    {
        "reference": f"Patient/{id}",
        "exists": True,
        "active": None,
        "names": ["Kari Hansen"],
        "birth_date": "1970-05-17",
        "gender": None,
        "identifiers": [{"system": "urn:mrn", "type": "MR", "value": "4711", "use": None}],
        "subject": None,
        "replaced_by": None,
    }
    for id in "ab"
]
IDENTITY = {
    "id": 3,
    "status": "open",
    "kind": "ambiguous",
    "resource_type": "Patient",
    "keys": CANDIDATES[0]["identifiers"],
    "query": "Patient?identifier=urn:mrn|4711",
    "candidates": ["Patient/a", "Patient/b"],
    "message_id": 7,
    "message_status": "FAILED",
    "answer": None,
    "target": None,
    "detected_at": "2026-01-01T00:00:00Z",
    "source_system": "LAB",
    "what_to_do": "merge: they are one person",
}
ANSWERED = {
    **IDENTITY,
    "status": "answered",
    "answer": "take",
    "target": "Patient/a",
    "retried": 2,
    "converted_again": 1,
}
STORED = {"id": 5, "resource_type": "Patient", "key": "urn:mrn|MR|4711", "answer": "take", "target": "Patient/a"}
MERGED = {"source": "Patient/b", "target": "Patient/a", "moved": {"Encounter": 2, "Observation": 10}, "preview": False}
UNREAD = {"kind": "declared", "path": "PV1-40", "reason": "a shared place", "occurrences": 17, "source_system": "LAB"}
CONFLICT = {"error": "invalid_state_for_retry", "message": "message 8 is DELIVERED", "id": 8}
ANSWERS: dict[tuple[str, str], tuple[int, Any]] = {
    ("GET", "/actuator/health"): (503, {"status": "DOWN", "components": {"inbox": {"status": "DOWN", "details": {}}}}),
    ("GET", "/admin/messages"): (200, {"total": 1, "limit": 50, "offset": 0, "items": [ROW]}),
    ("GET", "/admin/messages/7"): (200, ROW),
    ("POST", "/admin/messages/7/retry"): (200, ROW),
    ("POST", "/admin/messages/8/retry"): (409, CONFLICT),
    ("DELETE", "/admin/messages/7"): (204, None),
    ("GET", "/admin/observe/dlq"): (200, {"total": 1, "limit": 20, "items": [ROW]}),
    ("GET", "/admin/observe/trace/c-1"): (200, {"messages": [ROW], "resources": [{"id": "p1", "version_id": 2}]}),
    ("GET", "/admin/observe/trace/c-2"): (200, {"messages": [ROW], "identity_conflicts": [IDENTITY]}),
    ("GET", "/admin/identity-conflicts"): (200, {"total": 1, "limit": 50, "offset": 0, "items": [IDENTITY]}),
    ("GET", "/admin/identity-conflicts/3"): (200, {**IDENTITY, "candidate_resources": CANDIDATES}),
    ("POST", "/admin/identity-conflicts/3/answer"): (200, ANSWERED),
    ("POST", "/admin/patient-merges"): (200, MERGED),
    ("POST", "/admin/patient-merges/undo"): (200, MERGED),
    ("GET", "/admin/identity-answers"): (200, {"total": 1, "limit": 50, "offset": 0, "items": [STORED]}),
    ("DELETE", "/admin/identity-answers/5"): (204, None),
    ("GET", "/admin/dead-letters/errors"): (200, {"total": 1, "items": [GROUP]}),
    ("POST", "/admin/messages/replay"): (200, {"total": 1, "items": [PREVIEW]}),
    ("GET", "/admin/subscriptions/health"): (200, {"total": 1, "items": [HEALTH]}),
    ("GET", "/admin/mapping/source"): (200, {"url": "urn:map:a", "text": "// why it is so"}),
    ("GET", "/admin/mapping"): (200, {"maps": [], "message_types": []}),
    ("POST", "/admin/mapping/install"): (200, {"url": "urn:map:b"}),
    ("POST", "/admin/mapping/remove"): (200, {"url": "urn:map:b"}),
    ("POST", "/admin/subscriptions/s1/test"): (200, {"outcome": "failure", "kind": "handshake", "http_status": 503}),
    ("PATCH", "/admin/subscriptions/s1/status"): (200, {**HEALTH, "status": "off"}),
    ("GET", "/admin/unmapped-codes"): (200, {"total": 0, "items": []}),
    ("GET", "/admin/unread-fields"): (200, {"total": 2, "items": [UNREAD]}),
    ("DELETE", "/admin/unread-fields"): (200, {"forgotten": 12}),
    ("GET", "/admin/messages/7/trace"): (200, {"unread": [{**UNREAD, "segment": "OBX[2]"}]}),
    ("GET", "/admin/observe/trace/c-3"): (200, {"messages": [{**ROW, "id": 9, "status": "DELIVERED"}]}),
    ("GET", "/admin/observe/trace/c-4"): (200, {"messages": [{**ROW, "id": 10, "status": "DELIVERED"}]}),
    ("GET", "/admin/messages/9/trace"): (
        200,
        {"unread": [{"kind": "unread", "path": "DG1", "segment": "DG1[2]"}, UNREAD | {"segment": "PV1"}]},
    ),
    ("POST", "/admin/mapping/reload"): (422, {"error": "bad_request", "message": "PID_Patient.fml:3:1: expected ';'"}),
}

PROBLEM = {"path": "maps/a.fml", "pointer": "3:1", "line": 3, "message": "expected ';'", "severity": "error"}
SERVED = [{"id": "adt", "type": "hl7v2-mllp", "served": True, "reason": None},
          {"id": "api", "type": "sftp", "served": False, "reason": "is not served"}]  # fmt: skip
CASE = {
    "path": "tests/a.hl7",
    "messageType": "ADT^A04",
    "sourceType": None,
    "passed": False,
    "message": "no Patient was made",
}
PROFILE = {"id": "acme", "version": "1.2", "vendor": {"name": "Acme"}}
INGEST = {"port": 2580, "facilityResolver": "msh-4", "facilities": ["WEST", "EAST"]}
ANSWERS["POST", "/admin/api/profiles/validate"] = (200, {
    "valid": False, "profile": PROFILE, "ingest": SERVED, "mappings": [],
    "tests": {"passed": 1, "failed": 1, "cases": [CASE]},
    "problems": [PROBLEM],
})  # fmt: skip
ANSWERS["GET", "/admin/api/profiles"] = (200, {
    "loaded": [{"file": "acme.tgz", "profile": PROFILE, "mappings": [CASE], "ingest": [INGEST]}], "skipped": [],
})  # fmt: skip
ANSWERS["POST", "/admin/api/profiles/reload"] = (200, {
    "loaded": [], "skipped": [{"file": "acme.tgz", "kept": "1.1", "problems": [PROBLEM]}],
})  # fmt: skip

UNKNOWN = (404, {"error": "not_found", "message": "there is no such thing"})


class CtlTests(TestCase):
    """Commands are called as `ipfctl` calls them, on an output that keeps what is written."""

    async def setUp(self) -> None:
        """A service on loopback that answers from the table, and notes what it was asked."""
        self.asked: list[tuple[str, str, bytes]] = []
        app = Klein()

        @app.route("/", branch=True)
        def answer(request: Any) -> bytes:
            path, method = request.path.decode(), request.method.decode()
            self.asked.append((method, request.uri.decode(), request.content.read()))
            if request.getHeader("authorization") != "Bearer secret":
                request.setResponseCode(401)
                return b'{"error":"unauthorized","message":"a token is needed"}'
            status, body = ANSWERS.get((method, path), UNKNOWN)
            request.setResponseCode(status)
            return b"" if body is None else dumps(body)

        port = reactor.listenTCP(0, Site(app.resource()), interface="127.0.0.1")
        self.addCleanup(lambda: Deferred.fromCoroutine(turns()))  # connections that were not kept are still closing
        self.addCleanup(port.stopListening)
        self.api = Api(f"http://127.0.0.1:{port.getHost().port}", "secret", reactor=reactor)
        self.written, self.errors_written = io.StringIO(), io.StringIO()
        self.output = Output(False, Console(file=self.written, width=200), Console(file=self.errors_written, width=200))

    async def test_what_is_shown(self) -> None:
        """Each row: a command, what it returns (None and True are exit status 0), words of what is written."""
        api, output = self.api, self.output
        for asked, ended, words in (
            (
                messages.status(api, output),
                False,
                [
                    "DOWN",
                    "inbox",
                    "12 x mapping ADT_A01 of LAB failed: no map (3f1c)",
                    "1 messages wait",
                    "1 messages cannot succeed as they are",
                    "Subscription/s1",
                    "since noon",
                    "1 identity conflicts wait",
                ],
            ),
            (messages.list_messages(api, output, status="dead_letter", limit=5), None, ["no map", "1 to 1 of 1"]),
            (messages.show(api, output, 7, False), None, ["ORU_R01", "PID|1\n"]),
            (messages.retry(api, output, (7,)), True, ["7 is converted again"]),
            (messages.retry(api, output, (8, 7)), False, ["7 is converted again"]),
            (messages.discard(api, output, (7,), True), True, ["7 is deleted"]),
            (messages.dead_letters(api, output, 20), None, ["no map", "1 of 1"]),
            (
                messages.trace(api, output, "7"),
                None,
                ["correlation id c-1", "resources", "p1", "7 is DEAD_LETTER: retry when"],
            ),
            (
                bulk.replay(api, output, False, message_ids=(7,), dry_run=True, wait=False),
                True,
                ["Patient/p1", "New 19", "and 3 more"],
            ),
            (messages.trace(api, output, "c-3"), None, ["fields of 9 that are not in its resources", "DG1[2]"]),
            (messages.trace(api, output, "c-4"), None, ["DELIVERED"]),  # its mapping trace is 404
            (
                messages.trace(api, output, "c-2"),
                None,
                ["Patient/a", "ambiguous", "7 waits for an answer: identity list"],
            ),
            (identity.list_conflicts(api, output, status="open"), False, ["Patient/a, Patient/b", "1 to 1 of 1"]),
            (
                identity.show(api, output, 3),
                None,
                ["urn:mrn|MR|4711", "Kari Hansen", "1970-05-17", "merge: they are one person", "identity answer 3"],
            ),
            (
                identity.answer(api, output, 3, None, "Patient/a", False, "checked"),
                None,
                ["3: take Patient/a", "2 messages are retried, 1 later ones converted again"],
            ),
            (identity.answer(api, output, 3, None, None, True, None), None, ["2 messages"]),
            (identity.list_answers(api, output), None, ["urn:mrn|MR|4711", "take"]),
            (identity.revoke(api, output, 5, "north"), None, ["5 is revoked"]),
            (
                merges.merge(api, output, "Patient/b", "Patient/a", "checked", "north", False),
                None,
                ["12 resources (Encounter 2, Observation 10) now refer to Patient/a instead of Patient/b"],
            ),
            (
                merges.unmerge(api, output, "Patient/b", "Patient/a", None, None),
                None,
                ["12 resources (Encounter 2, Observation 10) refer to Patient/b again instead of Patient/a"],
            ),
            (subscriptions.health(api, output), False, ["since noon"]),
            (subscriptions.test(api, output, "Subscription/s1"), False, ["handshake", "503"]),
            (subscriptions.set_status(api, output, "Subscription/s1", "off"), None, ["off"]),
            (configuration.unmapped(api, output, None, 50), None, ["there are none"]),
            (configuration.maps(api, output, False, "urn:map:a"), None, ["// why it is so"]),
            (configuration.maps(api, output, False, None, io.StringIO("map text"), "urn:map:b"), None, ["0 in total"]),
            (
                configuration.unread(api, output, "LAB", None, "declared", None, 5, False),
                None,
                ["LAB", "PV1-40", "17", "a shared place", "1 of 2"],
            ),
            (configuration.unread(api, output, "LAB", None, None, None, 5, True), None, ["12 rows are forgotten"]),
            (configuration.unread(api, output, None, None, None, None, 5, False, 7), None, ["OBX[2]", "PV1-40"]),
            (
                profiles.validate_profile(api, output, io.BytesIO(b"tar")),
                False,
                ["acme", "1 passed, 1 failed", "tests/a.hl7", "no Patient was made", "maps/a.fml", "expected ';'"],
            ),
            (profiles.profiles(api, output, False), True, ["acme.tgz", "ADT^A04", "port 2580 msh-4 WEST, EAST"]),
            (profiles.profiles(api, output, True), False, ["maps/a.fml"]),
        ):
            self.written.seek(0)
            self.written.truncate()
            self.assertIs(await asked, ended)
            for word in words:
                self.assertIn(word, self.written.getvalue())
        self.assertIn("message 8 is DELIVERED", self.errors_written.getvalue())
        self.assertIn("acme.tgz is not in use; version 1.1 stays in use", self.errors_written.getvalue())
        self.assertIn(("GET", "/admin/messages?status=DEAD_LETTER&limit=5", b""), self.asked)
        taken = b'{"answer":"take","target":"Patient/a","reason":"checked"}'
        self.assertIn(("POST", "/admin/identity-conflicts/3/answer", taken), self.asked)
        self.assertIn(("POST", "/admin/identity-conflicts/3/answer", b'{"answer":"apart"}'), self.asked)
        self.assertIn(("DELETE", "/admin/identity-answers/5?tenant=north", b""), self.asked)
        merged = b'{"source":"Patient/b","target":"Patient/a","reason":"checked"}'
        self.assertIn(("POST", "/admin/patient-merges?tenant=north", merged), self.asked)
        self.assertIn(("GET", "/admin/unread-fields?source_system=LAB&kind=declared&limit=5", b""), self.asked)
        self.assertIn(("DELETE", "/admin/unread-fields?source_system=LAB", b""), self.asked)
        self.assertIn(("PATCH", "/admin/subscriptions/s1/status", b'{"status":"off"}'), self.asked)
        self.assertIn(("POST", "/admin/mapping/install", b'{"map":"map text"}'), self.asked)

    async def test_refusals_have_a_hint(self) -> None:
        """The error message of the service, and a hint."""
        unreachable = Api("http://127.0.0.1:1", seconds=2, reactor=reactor)
        for asked, said, hint in (
            (messages.list_messages(Api(self.api.base, "wrong"), self.output), "a token is needed", "--token-file"),
            (messages.show(self.api, self.output, 9, False), "there is no such thing (HTTP 404)", ""),
            (configuration.maps(self.api, self.output, True), "PID_Patient.fml:3:1", ""),
            (identity.answer(self.api, self.output, 3, None, None, False, None), "name exactly one", ""),
            (identity.answer(self.api, self.output, 3, "Patient/a", None, True, None), "name exactly one", ""),
            (messages.status(unreachable, self.output), "http://127.0.0.1:1 refuses connections", "--url"),
        ):
            try:
                await asked
            except Refused as refused:
                self.assertIn(said, str(refused))
                self.assertIn(hint, refused.hint)
            else:
                self.fail(said)

    async def test_json_is_the_unchanged_response(self) -> None:
        """For scripts: nothing but JSON on standard output."""
        written = io.StringIO()
        self.patch(__import__("sys"), "stdout", written)
        await messages.list_messages(self.api, Output(True))
        self.assertEqual(loads(written.getvalue()), ANSWERS["GET", "/admin/messages"][1])

    async def test_status_without_the_token(self) -> None:
        """Health needs no token; the rest says that it does."""
        self.assertFalse(await messages.status(Api(self.api.base, "wrong", reactor=reactor), self.output))
        for words in (self.api.base, "messages and subscriptions cannot be queried: a token is needed", "--token-file"):
            self.assertIn(words, self.written.getvalue())

    async def test_a_file_without_messages_is_reported(self) -> None:
        """Also when other files have messages."""
        folder = Path(self.mktemp())
        folder.mkdir()
        empty = folder / "empty.hl7"
        empty.write_bytes(b"hello\r")
        given = {"target": "127.0.0.1:1", "connections": 1, "repeat": 1, "fresh_ids": False, "seconds": 5.0}
        sample = str(ROOT / "tests/corpus/a01_minimal.hl7")
        self.assertFalse(await sending.send(self.api, self.output, (str(empty), sample), **given))
        self.assertIn("empty.hl7 has no MSH segment", self.errors_written.getvalue())

    def test_times_are_short_in_tables(self) -> None:
        """Milliseconds; other texts stay as they are."""
        for value, text in (
            ("2026-11-21T15:44:40.801898Z", "2026-11-21T15:44:40.801Z"), ("2026-11-21T15:44:40Z",) * 2, ("x",) * 2,
        ):  # fmt: skip
            self.assertEqual(shown(value).plain, text)

    async def test_a_profile_is_packed(self) -> None:
        """What is written is the archive of the folder; without a manifest there is none."""
        target = Path(self.mktemp())
        await profiles.pack_profile(self.api, self.output, EXAMPLE, target)
        self.assertEqual(target.read_bytes(), example())
        with self.assertRaisesRegex(Refused, "no manifest.yaml"):
            await profiles.pack_profile(self.api, self.output, EXAMPLE / "maps", target)

    async def test_doctor_finds_what_prevents_a_start(self) -> None:
        """A port in use, a missing map, an invalid setting."""
        taken = self.api.base.rpartition(":")[2]
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "messages").mkdir()
        environment = {
            "IPF_HTTP_LISTEN": f"tcp:{taken}:interface=127.0.0.1", "IPF_MLLP_LISTEN": "tcp:0:interface=127.0.0.1",
            "IPF_MAPS_DIR": str(folder), "IPF_DB_URL": "postgresql://127.0.0.1:1/ipf", "IPF_TYPO": "1",
            "IPF_FHIR_DB_URL": "postgresql://127.0.0.1:1/fhir",
        }  # fmt: skip
        file = folder / "ipf.env"
        file.write_text("# comment\n" + "".join(f"{name}='{value}'\n" for name, value in environment.items()))
        healthy = await doctor.doctor(Api("http://127.0.0.1:1", seconds=2, reactor=reactor), self.output, file)
        self.assertFalse(healthy)
        shown = self.written.getvalue()
        for words in ("IPF_TYPO", "port HTTP", "inbox database", "no map for ADT_A01", "does not seem to run"):
            self.assertIn(words, shown)
        file.write_text("IPF_WORKER_BATCH_SIZE=many\n")
        self.assertFalse(await doctor.doctor(self.api, self.output, file))
        self.assertIn("IPF_WORKER_BATCH_SIZE", self.written.getvalue())

    def test_messages_of_a_file(self) -> None:
        """Framed or not, whatever ends the lines."""
        for content, found in (
            (b"MSH|^~\\&|A\nPID|1\n", [b"MSH|^~\\&|A\rPID|1\r"]),
            (b"MSH|1\r\nPID|1\r\n\r\nMSH|2\r\n", [b"MSH|1\rPID|1\r", b"MSH|2\r"]),
            (b"\x0bMSH|1\rPID|MSH|\r\x1c\r\x0bMSH|2\r\x1c\r", [b"MSH|1\rPID|MSH|\r", b"MSH|2\r"]),
            (b"nothing here", []),
        ):
            self.assertEqual(list(sending.split(content)), found)
        fresh = sending.with_control_id(b"MSH|^~\\&|A|B|C|D|1||ADT^A01|OLD|P|2.5\rPID|1\r").split(b"\r")
        self.assertEqual((fresh[0].count(b"|"), b"OLD" in fresh[0], fresh[1]), (11, False, b"PID|1"))
