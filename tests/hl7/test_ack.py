"""Acknowledgements: echoed fields, errors, and acknowledgement modes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import hl7
from twisted.trial.unittest import TestCase

from ipf.hl7.ack import accepted, acknowledge, acknowledgement_code
from ipf.hl7.header import scan_header
from ipf.hl7.message import Message
from tests.hl7.samples import SAMPLES

NOW = datetime(2024, 1, 15, 9, 30, 1, 5, UTC)

# MSH-15, MSH-16 -> answers where the outcome is AA, AE, AR
MODES = {
    ("", ""): ("AA", "AE", "AR"),
    ("AL", ""): ("CA", "CE", "CR"),
    ("AL", "NE"): ("CA", "CE", "CR"),
    ("AL", "AL"): ("CA", "CE", "CR"),
    ("SU", ""): ("CA", None, None),
    ("SU", "AL"): ("CA", "AE", "AR"),
    ("SU", "ER"): ("CA", "AE", "AR"),
    ("ER", ""): (None, "CE", "CR"),
    ("ER", "NE"): (None, "CE", "CR"),
    ("ER", "AL"): ("AA", "CE", "CR"),
    ("NE", ""): (None, None, None),
    ("NE", "NE"): (None, None, None),
    ("NE", "AL"): ("AA", "AE", "AR"),
    ("NE", "SU"): ("AA", None, None),
    ("NE", "ER"): (None, "AE", "AR"),
    ("", "AL"): ("AA", "AE", "AR"),
    ("", "NE"): (None, None, None),
    ("", "SU"): ("AA", None, None),
    ("", "ER"): (None, "AE", "AR"),
    ("XX", ""): ("CA", "CE", "CR"),
}


class ModeTests(TestCase):
    def test_modes(self) -> None:
        for (accept, application), expected in MODES.items():
            found = tuple(acknowledgement_code(accept, application, code) for code in ("AA", "AE", "AR"))
            self.assertEqual(found, expected, (accept, application))


class AcknowledgeTests(TestCase):
    def ack(self, msh: str, code: str = "AA", **said: str | None) -> bytes:
        return acknowledge(scan_header(msh.encode()), code, now=NOW, control_id="OUR1", **said)

    def test_accepted(self) -> None:
        ack = self.ack(r"MSH|^~\&|REG|HOSP|IPF|HUB|2024||ADT^A04^ADT_A01|C1|P^T|2.4")
        self.assertEqual(
            ack,
            b"MSH|^~\\&|IPF|HUB|REG|HOSP|20240115093001+0000||ACK^A04^ACK|OUR1|P^T|2.4\rMSA|AA|C1\r",
        )

    def test_cached_parts_give_the_same_acknowledgement(self) -> None:
        """In every mode, for every sample and for characters that are not ASCII; the time is that of its second."""
        texts = [f"MSH|^~\\&|REG|HOSP|IPF|HUB|2024||ADT^A04|C1|P|2.4|||{one}|{two}||" for one, two in MODES]
        lines = [text.encode() for text in (*texts, *SAMPLES.values())]
        lines += [b"MSH|^~\\&|REG||||||ADT^A04"]
        lines += ["MSH|^~\\&|RÉG||||2024||ADT^A04|C1|P|2.6||||||8859/1".encode("latin-1")]
        for line in lines:
            for number, moment in enumerate((NOW, NOW + timedelta(seconds=0.5), NOW + timedelta(seconds=1), NOW)):
                header = scan_header(line)
                code = acknowledgement_code(header.accept_ack, header.application_ack, "AA")
                expected = code and acknowledge(header, code, now=moment, control_id=f"OUR{number}")
                self.assertEqual(accepted(header, now=moment, control_id=f"OUR{number}"), expected, line)
        east = NOW.astimezone(timezone(timedelta(hours=2)))
        self.assertIn(b"|20240115113001+0200|", accepted(scan_header(lines[0]), now=east, control_id="OUR1") or b"")
        self.assertIn(b"|20240115093001+0000|", accepted(scan_header(lines[0]), now=NOW, control_id="OUR1") or b"")

    def test_separators_characters_and_version_are_the_senders(self) -> None:
        ack = acknowledge(
            scan_header("MSH#!*?@#RÉG#HOSP#IPF#HUB#2024##ADT!A04#C?F?1#P#2.6######8859/1".encode("latin-1")),
            "AR",
            text="an # in it",
            error_code="101",
            location="PID-3.1",
            now=NOW,
            control_id="OUR1",
        )
        msh, msa, err, _ = ack.split(b"\r")
        self.assertEqual(
            msh.decode("latin-1"), "MSH#!*?@#IPF#HUB#RÉG#HOSP#20240115093001+0000##ACK!A04!ACK#OUR1#P#2.6######8859/1"
        )
        self.assertEqual(msa, b"MSA#AR#C?F?1")
        self.assertEqual(err, b"ERR##PID!1!3!1!1#101!Required field missing!HL70357#E####an ?F? in it")

    def test_python_hl7_reads_it(self) -> None:
        for name, text in SAMPLES.items():
            raw = acknowledge(
                scan_header(text.encode()), "AE", text="no", error_code="207", location="MSH-9", now=NOW, control_id="1"
            )
            theirs = hl7.parse(raw)
            sent = hl7.parse(text.encode())
            self.assertEqual(str(theirs.segment("MSA")[1]), "AE", name)
            self.assertEqual(str(theirs.segment("MSA")[2]), str(sent.segment("MSH")[10]), name)
            self.assertEqual(str(theirs.segment("MSH")[12]), str(sent.segment("MSH")[12]), name)
            self.assertEqual(str(theirs.segment("ERR")[8]), "no", name)

    def test_error_fields_before_v2_5(self) -> None:
        ack = self.ack(
            r"MSH|^~\&|REG|HOSP|IPF|HUB|2024||ADT^A04|C1|P|2.3", "AR", text="why", error_code="101", location="MSH-10"
        )
        message = Message.parse(ack)
        (msa,) = message.segments("MSA")
        (err,) = message.segments("ERR")
        self.assertEqual(msa.fields[3], "why")
        self.assertEqual(err.fields[1], "MSH^1^10^101&Required field missing&HL70357")
        self.assertEqual((err.fields[2], err.fields[4], err.fields[8]), ("MSH^1^10", "E", "why"))

    def test_without_a_header(self) -> None:
        ack = acknowledge(
            None, "AR", text="what | is this", error_code="100", location="MSH", now=NOW, control_id="OUR1"
        )
        message = Message.parse(ack)
        self.assertEqual((message.message_type, message.control_id), ("ACK", "OUR1"))
        self.assertEqual(message.segments("MSA")[0].fields[1:3], ["AR", ""])
        self.assertEqual(message.segments("ERR")[0].children("ERR_8")[0].text, "what | is this")

    def test_minimal_header(self) -> None:
        self.assertEqual(
            self.ack(r"MSH|^~\&|REG", "AR").split(b"\r")[:2],
            [b"MSH|^~\\&|||REG||20240115093001+0000||ACK|OUR1|P|2.5.1", b"MSA|AR|"],
        )
