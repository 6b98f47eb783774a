"""`ipfctl` against a service that responds from a table: requests, output, exit status, and what errors say to do."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.protocol import Factory, Protocol

import ipf.cli.replays
from ipf.cli import sending
from ipf.fhir.model.json import loads
from tests.cli.answers import ANSWERS, JOB, TRIED
from tests.cli.service import AgainstAService
from tests.service_process import ROOT
from tests.vendor_profiles.samples import EXAMPLE, example

reactor: Any = _reactor
NOWHERE = "http://127.0.0.1:1"


class CtlTests(AgainstAService):
    async def test_what_is_shown(self) -> None:
        """Each row: a command, its exit status, words of what is written."""
        file = self.file("b.fml", "map text")
        archive = self.file("acme.tgz", "tar")
        for words, status, texts in (
            (
                "status",
                1,
                [
                    "DOWN",
                    "inbox",
                    "12 x mapping ADT_A01 of LAB failed: no map (3f1c)",
                    "1 message waits for another attempt: messages list --status FAILED",
                    "1 message cannot succeed without a change",
                    "Subscription/s1",
                    "since noon",
                    "1 identity conflict needs a decision",
                ],
            ),
            ("messages list --status dead_letter --limit 5 --type adt^a08^ADT_A01", 0, ["no map", "1 message\n"]),
            ("messages show 7", 0, ["ORU_R01", "PID|1\n"]),
            ("messages retry 7", 0, ["7 is converted again"]),
            ("messages retry 8 7", 1, ["7 is converted again"]),
            ("messages discard 7 --yes", 0, ["7 is deleted"]),
            ("dead-letters list", 0, ["no map", "1 dead letter\n"]),
            ("messages trace 7", 0, ["correlation id c-1", "resources", "p1", "7 is DEAD_LETTER: retry when"]),
            ("messages replay 7 --dry-run", 0, ["1 message; nothing", "Patient/p1", "New 19", "and 3 more"]),
            ("messages trace c-3", 0, ["fields of 9 that are not in its resources", "DG1[2]"]),
            ("messages trace c-4", 0, ["DELIVERED"]),  # its mapping trace is 404
            ("messages trace c-2", 0, ["Patient/a", "ambiguous", "7 waits for a decision: identity list"]),
            ("messages effects 7", 0, ["delivered", "fhir_resources_created", "updated", "success"]),
            ("identity list --status open", 1, ["Patient/a, Patient/b", "1 identity conflict\n"]),
            (
                "identity show 3",
                0,
                ["urn:mrn|MR|4711", "Kari Hansen", "1970-05-17", "merge: they are one person", "identity answer 3"],
            ),
            (
                "identity answer 3 --take Patient/a --reason checked",
                0,
                ["3: take Patient/a", "retried: 2 messages; converted again: 1 later message"],
            ),
            ("identity answer 3 --apart", 0, ["2 messages"]),
            ("identity answers", 0, ["urn:mrn|MR|4711", "take", "1 answer\n"]),
            ("identity revoke 5 --tenant north", 0, ["5 is revoked"]),
            (
                "patients merge Patient/b Patient/a --reason checked --tenant north",
                0,
                ["12 resources (Encounter 2, Observation 10) now refer to Patient/a instead of Patient/b"],
            ),
            (
                "patients unmerge Patient/b Patient/a",
                0,
                ["12 resources (Encounter 2, Observation 10) refer to Patient/b again instead of Patient/a"],
            ),
            ("patients forget Patient/a1", 0, ["Patient/a1: an erasure removes", "fhir 3", "audit: the law"]),
            ("subscriptions list", 1, ["since noon"]),
            ("subscriptions test Subscription/s1", 1, ["handshake", "503"]),
            ("subscriptions set Subscription/s1 off", 0, ["off"]),
            ("codes list", 0, ["=1+1", "1 unmapped code\n"]),
            ("codes map 4 --to 2345-7 --system http://loinc.org", 0, ["XX is mapped to 2345-7", "codes requeue 4"]),
            ("codes requeue 4", 0, ["converted again: 1 message, and 2 later ones; retried: 0"]),
            ("codes unmap 6", 0, ["6 is removed"]),
            ("rejects show 2", 0, ["no MSH segment", "this is no HL7\n"]),
            ("rejects list", 0, ["1 to 1 of 3 refused frames"]),
            ("jobs show 9", 0, ["done"]),
            ("maps show urn:map:a", 0, ["// why it is so"]),
            ("maps list", 0, ["urn:map:b", "broken: urn:map:c: line 3, column 1: expected", "1 map of message types"]),
            ("maps remove urn:map:b", 0, ["urn:map:b is removed; no map has this URL now"]),
            (f"maps try {file} --message 7", 0, ["Patient", "OBX-8", "XX", "a warning", "1 resource;"]),
            (
                f"maps compare {file} --type ADT^A01",
                0,
                ["2 messages of ADT_A01: 1 with the same result, 1 with another", "line 3, column 1"],
            ),
            (
                "fields list --sender LAB --kind declared --limit 5",
                0,
                ["LAB", "PV1-40", "17", "a shared place", "1 to 1 of 2 fields"],
            ),
            ("fields forget --sender LAB", 0, ["forgotten: 12 rows"]),
            ("fields list --message 7", 0, ["OBX[2]", "PV1-40"]),
            (
                f"profiles validate {archive}",
                1,
                ["acme", "1 passed, 1 failed", "tests/a.hl7", "no Patient was made", "maps/a.fml", "expected ';'"],
            ),
            ("profiles list", 0, ["acme.tgz", "ADT^A04", "port 2580 msh-4 WEST, EAST", "1 vendor profile\n"]),
            ("profiles reload", 1, ["maps/a.fml"]),
            ("settings list", 0, ["IPF_HOSTS", "a.example, b.example"]),
            ("interfaces list", 1, ["LAB", "1 sender\n", "silent for longer than expected: 1"]),
            ("audit key", 0, ["# key k1", "-----BEGIN PUBLIC KEY-----\nMCow\n"]),
        ):  # fmt: skip
            result = await self.ctl(*words.split())
            self.assertEqual(result.exit_code, status, f"{words}: {result.output}")
            for text in texts:
                self.assertIn(text, result.output, words)
        self.assertIn(
            ("GET", "/admin/messages?message_type=ADT_A08&status=DEAD_LETTER&limit=5&offset=0", b""), self.asked
        )
        taken = b'{"answer":"take","target":"Patient/a","reason":"checked"}'
        self.assertIn(("POST", "/admin/identity-conflicts/3/answer", taken), self.asked)
        self.assertIn(("POST", "/admin/identity-conflicts/3/answer", b'{"answer":"apart"}'), self.asked)
        self.assertIn(("DELETE", "/admin/identity-answers/5?tenant=north", b""), self.asked)
        merged = b'{"source":"Patient/b","target":"Patient/a","reason":"checked"}'
        self.assertIn(("POST", "/admin/patient-merges?tenant=north", merged), self.asked)
        self.assertIn(("GET", "/admin/unread-fields?source_system=LAB&kind=declared&limit=5", b""), self.asked)
        self.assertIn(("DELETE", "/admin/unread-fields?source_system=LAB", b""), self.asked)
        self.assertIn(("PATCH", "/admin/subscriptions/s1/status", b'{"status":"off"}'), self.asked)
        mapped = b'{"code":"2345-7","scope":"sender","system":"http://loinc.org"}'
        self.assertIn(("POST", "/admin/unmapped-codes/4/map", mapped), self.asked)

    async def test_the_last_line_of_an_installation(self) -> None:
        """What is installed, its version, and the messages affected; by the old name as well."""
        file = self.file("b.fml", "map text")
        for words in (["maps", "install", file], ["maps", "--install", file]):
            result = await self.ctl(*words)
            line = (
                "urn:map:b: version 1.4 is installed; messages affected: all later ADT_A01; "
                "1 stored message stays until `ipfctl messages replay --type ADT_A01`\n"
            )
            self.assertEqual((result.exit_code, result.output), (0, line))
        self.assertIn(("POST", "/admin/mapping/install", b'{"map":"map text"}'), self.asked)
        self.assertIn(("GET", "/admin/messages?message_type=ADT_A01&limit=1&tenant=%2A", b""), self.asked)
        self.answers["POST", "/admin/mapping/install"] = (200, {"url": "urn:map:helper", "version": 2})
        said = (await self.ctl("maps", "install", file)).output
        self.assertEqual(said.count("\n"), 1)
        self.assertIn("urn:map:helper: version 2 is installed; no message type uses it by itself", said)

    async def test_errors_say_what_to_do(self) -> None:
        """Exit status 1, the error message of the service or the reason, and the next step."""
        self.answers["GET", "/admin/messages/5"] = (500, {"error": "internal", "message": "internal error"})
        self.answers["GET", "/admin/jobs"] = (404, b"<html>not ipf</html>")
        self.answers["GET", "/admin/config"] = (200, b"<html>not ipf</html>")
        self.answers["POST", "/admin/mapping/try"] = (
            200,
            TRIED | {"mistake": {"line": 3, "column": 7, "message": "no ;"}},
        )
        file = self.file("b.fml", "map text")
        refused = (422, {"error": "bad_request", "message": "candidate.fml:3:1: expected ';'"})
        self.answers["POST", "/admin/mapping/install"] = refused
        for words, given, said, step in (
            ("messages list", {"token": "wrong"}, "a token is needed (HTTP 401)", "has another token"),
            ("messages list", {"token": None}, "a token is needed (HTTP 401)", "set the admin token: --token-file"),
            ("messages retry 7", {"token": None}, "a token is needed (HTTP 401)", "set the admin token: --token-file"),
            ("messages show 9", {}, "there is no such thing (HTTP 404)", "`ipfctl messages list` shows what there is"),
            ("identity show 9", {}, "there is no such thing (HTTP 404)", "`ipfctl identity list` shows what there is"),
            ("messages retry 99", {}, "99: there is no such thing (HTTP 404)", "`ipfctl messages list` shows"),
            ("messages retry 8", {}, "8: message 8 is DELIVERED (HTTP 409)", "`ipfctl messages show 8`"),
            ("messages show 5", {}, "internal error (HTTP 500)", "the log of the service"),
            ("jobs list", {}, "the service refused the request (HTTP 404)", "does --url name an ipf?"),
            ("settings list", {}, f"the response of {self.base} is no JSON", "does --url name an ipf?"),
            ("maps reload", {}, "PID_Patient.fml:3:1", "`ipfctl maps reload --help`"),
            (f"maps install {file}", {}, "candidate.fml:3:1: expected ';'", "`ipfctl maps install --help`"),
            (f"maps try {file} --message 7", {}, "line 3, column 7: no ;", "correct the map at this place"),
            ("identity answer 3", {}, "name exactly one of --merge", "`ipfctl identity answer --help`"),
            ("identity answer 3 --apart --merge Patient/a", {}, "name exactly one of --merge", "--help"),
            ("status", {"base": NOWHERE}, f"{NOWHERE} refuses connections", "--url, or IPFCTL_URL"),
            ("status", {"base": "nonsense"}, "nonsense is no HTTP address", "such as --url http://127.0.0.1:8090"),
            ("status", {"base": "ftp://x"}, "ftp://x is no HTTP address", "such as --url http://127.0.0.1:8090"),
            ("status", {"base": await self.silent()}, "does not respond in time", "--timeout waits for longer"),
            ("status", {"base": await self.silent(closes=True)}, "cannot be reached", "http or https?"),
        ):
            result = await self.ctl("--timeout", "0.5" if "in time" in said else "30", *words.split(), **given)
            self.assertEqual(result.exit_code, 1, f"{words}: {result.output}")
            self.assertEqual(result.stdout, "", words)
            self.assertIn("error: ", result.stderr)
            self.assertIn(said, result.stderr)
            self.assertIn(step, result.stderr)
            self.assertNotIn("Traceback", result.stderr)

    async def test_wrong_usage_is_2(self) -> None:
        file = self.file("b.fml", "map text")
        for words, said in (
            ("messages list --limit many", "'many' is not a valid integer"),
            ("messages list --received-from yesterday", "'yesterday' is no time: write 2026-11-29 18:15"),
            ("sources poll", "Missing argument 'NAME'"),
            ("destinations skip registry", "Missing option '--message'"),
            ("destinations --skip registry", "Missing option '--message'"),
            ("fields forget", "Missing option '--sender'"),
            ("codes map 4", "give either --to CODE or --no-target"),
            (f"maps try {file}", "give either --message NUMBER or --hl7 FILE"),
            ("messages list -o xml", "'xml' is not one of 'table', 'json', 'csv'"),
            ("--token-file /dev/full/x status", "does not exist"),
            ("--timeout -1 status", "is not in the range"),
            ("--timeout 0 status", "is not in the range"),
            ("--timeout nan status", "it is no number"),
        ):
            result = await self.ctl(*words.split())
            self.assertEqual(result.exit_code, 2, f"{words}: {result.output}")
            self.assertIn(said, result.stderr)
        self.assertEqual(self.asked, [])

    async def test_a_question_before_what_cannot_be_undone(self) -> None:
        """Of standard error; `n` does nothing and is exit status 1."""
        result = await self.ctl("messages", "discard", "7", typed="n\n")
        self.assertEqual((result.exit_code, self.asked), (1, []))
        self.assertIn("Delete 1 message permanently?", result.stderr)
        result = await self.ctl("messages", "discard", "7", "8", typed="y\n")
        self.assertIn("Delete 2 messages permanently?", result.stderr)
        self.assertIn(("DELETE", "/admin/messages/7", b""), self.asked)

    async def test_json_is_the_unchanged_response(self) -> None:
        """For scripts: nothing but JSON on standard output."""
        result = await self.ctl("messages", "list", "--json")
        self.assertEqual(loads(result.stdout), ANSWERS["GET", "/admin/messages"][1])

    async def test_status_without_the_token(self) -> None:
        """Health needs no token; the rest says that it does."""
        result = await self.ctl("status", token=None)
        self.assertEqual(result.exit_code, 1)
        for words in (self.base, "messages and subscriptions cannot be queried: a token is needed", "--token-file"):
            self.assertIn(words, result.stdout)

    async def test_a_token_from_a_file(self) -> None:
        file = self.file("token", "secret\n")
        self.assertEqual((await self.ctl("--token-file", file, "messages", "list", token=None)).exit_code, 0)
        file = self.file("binary", b"\xff\xfe\xff")
        result = await self.ctl("--token-file", file, "messages", "list", token=None)
        self.assertEqual(result.exit_code, 2)
        self.assertIn("cannot be read", result.stderr)

    async def test_progress_of_a_job(self) -> None:
        """On standard error of a terminal; standard output has the result alone."""
        self.patch(ipf.cli.replays, "deferLater", self._next_row)
        self.answers["POST", "/admin/dead-letters/retry"] = (202, JOB | {"status": "running", "done": 0})
        self.rows = [JOB | {"status": "running", "done": 1}, JOB | {"status": "running", "done": 2}, JOB]
        result = await self.ctl("dead-letters", "retry", "--fingerprint", "x", "--wait", "-o", "json", terminal=80)
        self.assertEqual(loads(result.stdout), JOB)
        self.assertIn("job 9", result.stderr)
        self.assertIn("3", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", result.stderr))
        self.rows = [JOB]
        self.assertEqual((await self.ctl("dead-letters", "retry", "--fingerprint", "x", "--wait")).stderr, "")

    async def _next_row(self, reactor: Any, seconds: float) -> None:
        self.answers["GET", "/admin/jobs/9"] = (200, self.rows.pop(0))

    async def test_a_file_without_messages_is_reported(self) -> None:
        """Also when other files have messages."""
        empty, sample = self.file("empty.hl7", "hello\r"), str(ROOT / "tests/corpus/a01_minimal.hl7")
        result = await self.ctl("messages", "send", empty, sample, "--to", "127.0.0.1:1", "--seconds", "5")
        self.assertEqual(result.exit_code, 1)
        self.assertIn("empty.hl7 has no MSH segment", result.stderr)

    async def test_a_profile_is_packed(self) -> None:
        """What is written is the archive of the folder; without a manifest there is none."""
        target = Path(self.mktemp()).absolute()
        result = await self.ctl("profiles", "pack", str(EXAMPLE), "-o", str(target))
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertEqual(target.read_bytes(), example())
        for words in (["profiles", "pack"], ["pack-profile"]):
            result = await self.ctl(*words, str(EXAMPLE / "maps"), "-o", str(target))
            self.assertEqual(result.exit_code, 1)
            self.assertIn("no manifest.yaml", result.stderr)

    async def test_the_audit_trail_is_written_to_a_file(self) -> None:
        target = Path(self.mktemp()).absolute()
        result = await self.ctl("audit", "export", "-o", str(target))
        self.assertEqual(result.stdout, f"{target}: 2 lines\n")
        self.assertEqual(target.read_bytes(), ANSWERS["GET", "/admin/audit/export"][1])

    async def test_doctor_finds_what_prevents_a_start(self) -> None:
        """A port in use, a missing map, an invalid setting."""
        taken = self.base.rpartition(":")[2]
        folder = Path(self.mktemp()).absolute()
        (folder / "messages").mkdir(parents=True)
        environment = {
            "IPF_HTTP_LISTEN": f"tcp:{taken}:interface=127.0.0.1", "IPF_MLLP_LISTEN": "tcp:0:interface=127.0.0.1",
            "IPF_MAPS_DIR": str(folder), "IPF_DB_URL": "postgresql://127.0.0.1:1/ipf", "IPF_TYPO": "1",
            "IPF_FHIR_DB_URL": "postgresql://127.0.0.1:1/fhir",
        }  # fmt: skip
        file = folder / "ipf.env"
        file.write_text("# comment\n" + "".join(f"{name}='{value}'\n" for name, value in environment.items()))
        result = await self.ctl("doctor", "--env-file", str(file), base=NOWHERE)
        self.assertEqual(result.exit_code, 1)
        for words in ("IPF_TYPO", "port HTTP", "inbox database", "no map for ADT_A01", "does not seem to run"):
            self.assertIn(words, result.stdout)
        file.write_text("IPF_WORKER_BATCH_SIZE=many\n")
        result = await self.ctl("doctor", "--env-file", str(file))
        self.assertEqual(result.exit_code, 1)
        self.assertIn("IPF_WORKER_BATCH_SIZE", result.stdout)

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

    def file(self, name: str, content: str | bytes) -> str:
        """The path of a file with this content."""
        path = Path(self.mktemp()).absolute()
        path.mkdir()
        path /= name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return os.fspath(path)

    async def silent(self, *, closes: bool = False) -> str:
        """The address of a server that accepts connections and says nothing, or closes them."""
        made: list[Protocol] = []

        class Silent(Protocol):
            def connectionMade(self) -> None:
                made.append(self)
                if closes and self.transport is not None:
                    self.transport.loseConnection()

        port = reactor.listenTCP(0, Factory.forProtocol(Silent), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.addCleanup(lambda: [one.transport.abortConnection() for one in made if one.transport])
        return f"http://127.0.0.1:{port.getHost().port}"
