"""MLLP to resources to a web hook, and what operators see of it."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from tests.flows.engine import EngineTestCase, from_sender
from tests.traffic.messages_results import oru

FAMILY = "engine"
QUERY = ("QBP^Q22^QBP_Q21", "Q1")
PID = b"PID|1||P9^^^GENERAL^MR||Hansen^Ola\r"


def other(sender: str, event: str, control_id: str) -> bytes:
    """A message of another kind."""
    return f"MSH|^~\\&|{sender}|GENERAL|IPF|IPF|20260102||{event}|{control_id}|P|2.5\r".encode() + PID


class MessageFlowTests(EngineTestCase):
    def hooked(self, place: str, criteria: str, **channel: str) -> None:
        """Subscribe a web hook of this place."""
        self.subscribe({"type": "rest-hook", "endpoint": f"{self.engine.hook.url}/{place}", **channel}, criteria)

    def notified(self, place: str, count: int) -> list[Any]:
        """So many notifications at this place."""
        return self.wait(lambda: len(sent := self.engine.hook.at(f"/{place}")) >= count and sent, f"{count} at {place}")

    def test_messages_become_resources_and_notifications(self) -> None:
        """What `bin/demo` shows: created, repeated, changed; with and without content."""
        self.hooked("told", "Patient?identifier=MSG1", payload="application/fhir+json")
        self.hooked("empty", "Encounter?identifier=VMSG1")
        first = from_sender("MSGS", "M1", "MSG1", "+4711")
        ((head, acknowledged),) = self.send(first)
        self.assertEqual(acknowledged, b"MSA|AA|M1")
        self.assertEqual(head.split(b"|")[2:6], [b"IPF", b"IPF", b"MSGS", b"GENERAL"])
        patient = json.loads(self.notified("told", 1)[0].body)
        self.assertEqual((patient["resourceType"], patient["meta"]["versionId"]), ("Patient", "1"))
        self.assertEqual(self.notified("empty", 1)[0].body, b"")
        answers = self.send(first, from_sender("MSGS", "M2", "MSG1", "+4722"))
        self.assertEqual([answer[1] for answer in answers], [b"MSA|AA|M1", b"MSA|AA|M2"])
        changed = json.loads(self.notified("told", 2)[1].body)
        self.assertEqual((changed["id"], changed["meta"]["versionId"]), (patient["id"], "2"))
        self.assertEqual([one["source_id"] for one in self.listed("source_system=MSGS")], ["M2", "M1"])
        self.assertEqual([one["id"] for one in self.found("Patient?identifier=MSG1")], [patient["id"]])
        self.assertEqual(len(self.found(f"Encounter?subject=Patient/{patient['id']}")), 1)

    def test_metrics_of_all_processes_are_one_page(self) -> None:
        """The converter process counts transformations, the main process notifications."""
        self.hooked("counted", "Patient?identifier=MSG2")
        self.send(from_sender("COUNTED", "C1", "MSG2"))
        self.notified("counted", 1)
        received, delivered = (
            f'interface_engine_ingested_messages_total{{source_protocol="HL7V2_MLLP",source_system="COUNTED",'
            f'status="{status}"}} 1.0'
            for status in ("RECEIVED", "DELIVERED")
        )
        expected = (
            re.escape(received), re.escape(delivered), r'fhir_subscription_delivery_total\{outcome="success"\} [1-9]',
            r'interface_engine_transform_duration_seconds_count\{outcome="success"\} [1-9]',
            "fhir_subscription_active [1-9]", "interface_engine_dlq_current_size [0-9]",
        )  # fmt: skip

        def missing() -> list[str]:
            text = self.ask("GET", "/actuator/prometheus")
            return [one for one in expected if not re.search(one, text)]

        self.wait(lambda: not missing(), "the metrics are there")
        priorities = {os.getpriority(os.PRIO_PROCESS, one) for one in self.engine.converters}
        self.assertEqual(priorities, {os.getpriority(os.PRIO_PROCESS, self.engine.pid) + 3})

    def test_operators_find_and_replay_messages(self) -> None:
        """Found by what stands in it, what it did, what a replay would do, and the replay."""
        self.send(from_sender("OPER", "OP1", "MSG3", "+4711"), from_sender("OPER", "OP2", "MSG3", "+4722"))
        self.row("OPER", "OP2", "DELIVERED")
        (message,) = self.wait(lambda: self.listed("text=op1&patient=msg3"), "found by its text")
        for event in ("transformed", "delivered"):
            self.line(f"event={event}", message["correlation_id"])
        path = f"/admin/messages/{message['id']}"
        effects = self.wait(lambda: (one := self.ask("GET", f"{path}/effects"))["effects_status"] != "pending" and one)
        self.assertEqual((effects["effects_status"], bool(effects["transform"]["map"])), ("delivered", True))
        made = {one["resource_type"]: (one["id"], one["action"]) for one in effects["fhir_resources_created"]}
        (patient,) = self.found("Patient?identifier=MSG3")
        self.assertEqual(made["Patient"], (patient["id"], "created"))
        replay, asked = "/admin/messages/replay", {"ids": [message["id"]]}
        dry = self.ask("POST", replay, asked | {"dry_run": True})
        (outcome,) = [one for one in dry["items"][0]["resources"] if one["resource_type"] == "Patient"]
        self.assertEqual((outcome["outcome"], outcome["id"]), ("updated", patient["id"]))
        self.assertTrue(all(one["path"].startswith("Patient.telecom") for one in outcome["differences"]), outcome)
        job = self.ask("POST", replay, asked)
        self.assertEqual(job["total"], 1)
        self.wait(lambda: self.ask("GET", f"/admin/jobs/{job['id']}")["status"] == "done", "the replay is done")

    def test_what_no_map_takes(self) -> None:
        """Passed through, given up, refused; an operator tries again, and deletes."""
        sent = (other("ODD", "ADT^A04", "A4"), other("ODD", "ZZZ^Z01", "Z1"), b"this is no HL7\r", other("ODD", *QUERY))
        passed, unmapped, refused, asked = self.send(*sent)
        self.assertEqual((passed[1], unmapped[1]), (b"MSA|AA|A4", b"MSA|AA|Z1"))
        self.assertEqual(refused[1].split(b"|")[1], b"AR")
        self.assertTrue(any(segment.startswith(b"ERR|") for segment in refused))
        self.assertIn(b"queries are not served here", b"".join(asked))
        self.assertIn(len(b"this is no HL7\r"), {one["size"] for one in self.ask("GET", "/admin/rejects")["items"]})
        passed_row = self.row("ODD", "A4", "DELIVERED")
        self.assertIsNone(passed_row["last_error"])
        whole = self.ask("GET", f"/admin/messages/{passed_row['id']}")
        (traced,) = self.ask("GET", f"/admin/observe/trace/{passed_row['correlation_id']}")["messages"]
        self.assertEqual({one["passed_through"] for one in (whole, traced)}, {"IPF_PASSTHROUGH_TYPES"})
        dead = self.row("ODD", "Z1", "DEAD_LETTER")
        self.assertEqual(dead["attempt_count"], 2)
        self.assertRegex(dead["last_error"], "^mapping ZZZ_Z01 of ODD failed: no StructureMap")
        self.assertIn("No attempt can succeed as it is: ", dead["last_error"])
        self.assertEqual(len(self.listed("source_system=ODD")), 2)
        self.said(passed_row, dead)
        path = f"/admin/messages/{dead['id']}"
        again = self.ask("POST", f"{path}/retry")
        self.assertEqual((again["status"], again["attempt_count"]), ("RECEIVED", 0))
        self.row("ODD", "Z1", "DEAD_LETTER")
        self.ask("DELETE", path)
        self.assertEqual(self.engine.get(path)[0], 404)

    def said(self, passed: dict[str, Any], dead: dict[str, Any]) -> None:
        """The lines of the log that the interface specification lists, with their fields; what each record has."""
        of = f"message_id={dead['id']} source_system=ODD source_id=Z1 message_type=ZZZ_Z01 attempt_count="
        why = 'stage=matchbox last_error="mapping ZZZ_Z01 of ODD failed: '
        tried = self.line(f"event=retry_scheduled {of}1 backoff_ms=50 {why}")
        given_up = self.line(f"event=dlq {of}2 {why}")
        self.assertEqual((tried["level"], given_up["level"]), ("INFO", "WARN"))
        self.assertEqual({one["correlation_id"] for one in (tried, given_up)}, {dead["correlation_id"]})
        through = self.line(f"event=passthrough .*message_id={passed['id']}")
        for token in ("message_type=ADT_A04", "source_id=A4", "source_system=ODD", "setting=IPF_PASSTHROUGH_TYPES"):
            self.assertIn(token, through["message"])
        self.line('event=rejected .*size=15 reason="MSH: .+"$')
        for one in self.records():
            self.assertEqual({"@timestamp", "level", "logger_name", "message", "schema_version"} - set(one), set(), one)

    def line(self, pattern: str, correlation_id: str | None = None) -> Any:
        """The record of the log whose message begins so; what another process logs takes a moment."""

        def found() -> list[Any]:
            return [one for one in self.records() if re.match(pattern, one["message"])
                    and correlation_id in (None, one.get("correlation_id"))]  # fmt: skip

        return self.wait(found, pattern)[0]

    def records(self) -> list[Any]:
        """The log so far."""
        lines = self.engine.log_path.read_bytes().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    def test_results_are_corrected_in_place(self) -> None:
        """Report and observations by search; the subscriber to one code is notified of that code only."""
        self.hooked("glucose", "Observation?code=http://loinc.org|2345-7", payload="application/fhir+json")
        first = oru(6, "R1", "RES1")
        self.assertEqual(self.send(first)[0][1], b"MSA|CA|R1")
        notified = json.loads(self.notified("glucose", 1)[0].body)
        self.assertEqual((notified["code"]["coding"][0]["code"], notified["meta"]["versionId"]), ("2345-7", "1"))
        (report,) = self.found("DiagnosticReport?identifier=FR1")
        self.assertEqual((report["status"], len(report["result"])), ("final", 6))
        patient = report["subject"]["reference"]
        self.assertEqual(len(self.found(f"Observation?patient={patient}")), 6)
        corrected = first.replace(b"|R1|P|2.5.1", b"|R2|P|2.5.1").replace(b"|5.6|", b"|9.9|")
        self.assertEqual(self.send(corrected)[0][1], b"MSA|CA|R2")
        again = json.loads(self.notified("glucose", 2)[1].body)
        self.assertEqual((again["id"], again["meta"]["versionId"]), (notified["id"], "2"))
        self.assertEqual(again["valueQuantity"]["value"], 9.9)
        self.assertEqual(len(self.found(f"Observation?patient={patient}")), 6)
        self.assertEqual(len(self.engine.hook.at("/glucose")), 2)

    def test_values_that_fhir_cannot_hold_are_stored_as_text(self) -> None:
        """From the socket: never another value, no failed message; a document is never encoded twice."""
        sent = (
            ("SN", "≥^5", {"valueQuantity": {"value": 5, "comparator": ">=", "unit": "mg/dL"}}),
            ("SN", " < ^5", {"valueQuantity": {"value": 5, "comparator": "<", "unit": "mg/dL"}}),
            ("SN", "GE^5", {"valueString": "GE 5 mg/dL"}),
            ("NM", " 7.2", {"valueQuantity": {"value": 7.2, "unit": "mg/dL"}}),
            ("NM", "1,5", {"valueString": "1,5"}),
            ("TS", "20140630120030+1500", {"valueString": "20140630120030+1500"}),
            ("TS", "20140630120030Z", {"valueString": "20140630120030Z"}),
            ("TM", "2400", {"valueString": "2400"}),
        )
        results = [f"OBX|{n}|{kind}|C{n}^X^L||{value}|mg/dL|||||F" for n, (kind, value, _) in enumerate(sent, 1)]
        documents = [f"OBX|9|ED|P^Report^L||^AP^PDF^{name}^JVBERi0xLjQK||||||F" for name in ("BASE-64", "")]
        head = "MSH|^~\\&|VALUES|GENERAL|IPF|IPF|20260102||ORU^R01^ORU_R01|{}|P|2.5.1|||||||UNICODE UTF-8"
        mails = "^NET^INTERNET^a@b.example~^PRN^INET^c@d.example~^NET^internet^e@f.example"
        pid = f"PID|1||VAL1^^^GENERAL^MR||Hansen^Ola||||||||{mails}"
        order = "OBR|1||VAL1|T^Test^L"
        self.send("\r".join((head.format("V1"), pid, order, *results, *documents, "")).encode())
        self.assertIsNone(self.row("VALUES", "V1", "DELIVERED")["last_error"])
        (patient,) = self.found("Patient?identifier=VAL1")
        self.assertEqual([one["system"] for one in patient["telecom"]], ["email"] * 3)
        stored = {one["code"]["coding"][0]["code"]: one for one in self.found(f"Observation?patient={patient['id']}")}
        for number, (kind, value, expected) in enumerate(sent, 1):
            found = {name: one for name, one in stored[f"C{number}"].items() if "value" in name}
            self.assertEqual(found, expected, (kind, value))
        (report,) = self.found("DiagnosticReport?identifier=VAL1")
        self.assertEqual([one["data"] for one in report["presentedForm"]], ["JVBERi0xLjQK"] * 2)
        shown = self.found(f"Observation?patient={patient['id']}&code=P")
        self.assertEqual([one["code"]["coding"][0]["display"] for one in shown], ["Report"] * 2)
        self.assertEqual([one["extension"][0]["valueAttachment"]["data"] for one in shown], ["JVBERi0xLjQK"] * 2)
        self.assertEqual(
            {f"Observation/{one['id']}" for one in shown} - {one["reference"] for one in report["result"]}, set()
        )
        damaged = "OBX|1|ED|P^Report^L||^AP^PDF^uuencode^JVBERi0xLjQK||||||F"
        self.send("\r".join((head.format("V2"), pid, order, damaged, "")).encode())
        self.assertIn("ED-4", self.row("VALUES", "V2", "FAILED")["last_error"])
