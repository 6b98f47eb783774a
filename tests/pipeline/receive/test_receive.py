"""The ingest rules, without sockets."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import TestCase

from ipf.errors import StoreUnreachable
from ipf.hl7.framing import Junk, Oversize, Unfinished
from ipf.hl7.header import Header, scan_header
from ipf.hl7.message import Message
from ipf.hl7.ordering import ordering_key
from ipf.hl7.queries import is_query
from ipf.pipeline.receive import receive
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.pipeline.receive.receive import MllpListener, Receiver
from ipf.telemetry.logs import record
from tests.pipeline.plain_inbox import PlainInbox

NOW = datetime(2024, 1, 15, 9, 30, tzinfo=UTC)
LISTENER = MllpListener("main")


def adt(control_id: str = "C1", trigger: str = "A04", rest: str = "", pid: str = "PID|1||77^^^HOSP^MR\r") -> bytes:
    return f"MSH|^~\\&|REG|HOSP|IPF|HUB|2024||ADT^{trigger}|{control_id}|P|2.5.1{rest}\r{pid}".encode()


class ReceiveCase(TestCase):
    def setUp(self) -> None:
        self.inbox = PlainInbox()
        self.clock = Clock()
        self.counted: list[tuple[str, str, str]] = []
        self.logged: list[str] = []
        self.lines: list[str] = []
        self.receiver = self.make()
        globalLogPublisher.addObserver(self.note)
        self.addCleanup(globalLogPublisher.removeObserver, self.note)

    def note(self, event: Any) -> None:
        if "event" in event:
            self.logged.append(event["event"])
            self.lines.append(record(event)["message"])

    def make(self, **settings: Any) -> Receiver:
        inbox: Any = self.inbox
        numbers = count(1)
        return Receiver(
            inbox,
            GroupCommit(inbox, self.clock),
            self.clock,
            now=lambda: NOW,
            new_correlation_id=lambda: f"00000000-0000-7000-8000-{next(numbers):012}",
            observe=lambda *counted: self.counted.append(counted),
            **settings,
        )

    def start(self, frame: bytes, listener: MllpListener = LISTENER) -> Deferred[bytes | None]:
        return Deferred.fromCoroutine(self.receiver.receive(frame, listener, "10.0.0.1:4000"))

    def answer(self, frame: bytes, listener: MllpListener = LISTENER) -> bytes | None:
        """The acknowledgement sent by the end of the reactor turn."""
        answer = self.start(frame, listener)
        self.clock.advance(0)
        return self.successResultOf(answer)

    def ack(self, frame: bytes, listener: MllpListener = LISTENER) -> tuple[str, str, Message]:
        """MSA-1, MSA-2 and the acknowledgement."""
        raw = self.answer(frame, listener)
        assert raw is not None
        message = Message.parse(raw)
        msa = message.segments("MSA")[0].fields
        return msa[1], msa[2], message

    def err(self, message: Message) -> tuple[str, str, str]:
        """ERR-2, the code in ERR-3, ERR-8."""
        fields = message.segments("ERR")[0].fields
        return fields[2], fields[3].split("^")[0], fields[8]


class AcceptedTests(ReceiveCase):
    def test_stored_then_acknowledged(self) -> None:
        self.inbox.hold = True
        answer = self.start(adt())
        self.clock.advance(0)
        self.assertNoResult(answer)
        self.inbox.release()
        self.assertIn(b"\rMSA|AA|C1\r", self.successResultOf(answer) or b"")
        (row,) = self.inbox.order
        self.assertEqual((row.source_system, row.source_id, row.message_type), ("REG", "C1", "ADT_A04"))
        self.assertEqual((row.raw, row.charset, row.listener, row.received_at), (adt(), "utf-8", "main", NOW))
        self.assertEqual(row.correlation_id, "00000000-0000-7000-8000-000000000001")
        self.assertEqual(self.counted, [("stored", "REG", "HL7V2_MLLP")])

    def test_a_batch_is_received_message_by_message(self) -> None:
        body = adt("C1") + adt("C2", rest="|||NE|NE") + adt("", "A08") + adt("C1")
        answer = self.answer(b"BHS|^~\\&|REG|HOSP|IPF|HUB|2024||||B1\r" + body + b"BTS|4\r")
        assert answer is not None
        lines = answer.decode().rstrip("\r").split("\r")
        self.assertEqual(lines[0].split("|")[2:4] + lines[0].split("|")[11:], ["IPF", "HUB", "B1"])
        self.assertEqual([line for line in lines if line.startswith("MSA")], ["MSA|AA|C1", "MSA|AR|", "MSA|AA|C1"])
        self.assertEqual(lines[-1], "BTS|3")
        self.assertEqual([one.source_id for one in self.inbox.order], ["C1", "C2"])

    def test_a_batch_that_is_cut_off_is_refused_as_a_whole(self) -> None:
        code, _, message = self.ack(b"BHS|^~\\&\r" + adt("C1") + adt("C2") + b"BTS|3\r")
        self.assertEqual((code, self.err(message)[2]), ("AR", "BTS-1 says 3 messages, there are 2"))
        self.assertEqual(self.inbox.order, [])
        self.assertEqual(len(self.inbox.rejects), 1)

    def test_duplicates_are_accepted_and_make_no_row(self) -> None:
        for _ in range(3):
            self.assertEqual(self.ack(adt())[:2], ("AA", "C1"))
        self.assertEqual((len(self.inbox.order), self.logged), (1, []))

    def test_same_key_with_other_content_is_accepted_with_a_warning(self) -> None:
        self.ack(adt())
        self.assertEqual(self.ack(adt(pid="PID|1||78\r"))[:2], ("AA", "C1"))
        self.assertEqual((len(self.inbox.order), self.logged), (1, ["conflicting_duplicate"]))
        self.assertEqual(self.counted[-1], ("conflicting_duplicate", "REG", "HL7V2_MLLP"))

    def test_character_sets(self) -> None:
        name = "PID|1||77||Müller\r"
        listener = MllpListener("latin", fallback_charset="cp1252", protocol="OTHER")
        cases = [
            (adt("1", pid=name), "utf-8"),
            (adt("2", pid=name).decode().encode("cp1252"), "cp1252"),
            (adt("3", rest="||||||8859/1", pid=name).decode().encode("latin-1"), "iso8859-1"),
            (adt("4", pid=name).decode().encode("utf-16"), "utf-16"),
        ]
        for raw, codec in cases:
            self.assertEqual(self.ack(raw, listener)[0], "AA")
            self.assertEqual((self.inbox.order[-1].charset, self.inbox.order[-1].raw), (codec, raw))
            self.assertEqual(self.inbox.order[-1].source_protocol, "OTHER")
            self.assertEqual(Message.parse(raw, codec).children("PID")[0].children("PID_5")[0].text, "Müller")

    def test_each_acknowledgement_has_its_own_control_id(self) -> None:
        ids = {self.ack(adt(str(n)))[2].control_id for n in range(5)}
        self.assertEqual(len(ids), 5)
        self.assertTrue(all(len(one) <= 20 for one in ids))


class EnhancedModeTests(ReceiveCase):
    def test_accept_acknowledgement_after_the_commit(self) -> None:
        cases = [("|||AL|NE", "CA"), ("|||AL|AL", "CA"), ("|||SU", "CA"), ("|||NE|AL", "AA"), ("||||AL", "AA")]
        for number, (rest, code) in enumerate(cases):
            self.assertEqual(self.ack(adt(str(number), rest=rest))[0], code, rest)

    def test_no_acknowledgement_is_due(self) -> None:
        for number, rest in enumerate(("|||NE|NE", "|||NE", "|||ER|NE", "||||NE", "||||ER")):
            self.assertIsNone(self.answer(adt(str(number), rest=rest)), rest)
        self.assertEqual(len(self.inbox.order), 5)

    def test_errors(self) -> None:
        self.assertEqual(self.ack(adt("", rest="|||ER|NE"))[0], "CR")
        self.assertEqual(self.ack(adt("", rest="|||AL|NE"))[0], "CR")
        self.assertIsNone(self.answer(adt("", rest="|||SU|NE")))
        self.inbox.fail = StoreUnreachable()
        self.assertEqual(self.ack(adt("9", rest="|||AL|NE"))[0], "CE")


class RejectedTests(ReceiveCase):
    def test_missing_fields_are_named_and_the_reject_is_stored(self) -> None:
        cases = [
            (b"hello", "", "MSH^1", "100"),
            (b"", "", "MSH^1", "100"),
            (adt(""), "", "MSH^1^10", "101"),
            (adt("C1", trigger=""), "C1", "MSH^1^9^1^2", "101"),
            (adt().replace(b"|REG|", b"||"), "C1", "MSH^1^3^1^1", "101"),
            (adt("C" * 300), "C" * 300, "MSH^1^10", "102"),
            (adt("C\x001"), "C\x001", "MSH^1^10", "102"),
        ]
        for raw, control_id, place, number in cases:
            code, echoed, message = self.ack(raw)
            self.assertEqual((code, echoed, *self.err(message)[:2]), ("AR", control_id, place, number), raw)
            self.assertEqual(self.inbox.rejects[-1].raw, raw)
            self.assertEqual((self.inbox.rejects[-1].peer, self.inbox.rejects[-1].listener), ("10.0.0.1:4000", "main"))
        self.assertEqual((self.inbox.order, self.logged), ([], ["rejected"] * len(cases)))

    def test_ae_when_the_reject_cannot_be_stored(self) -> None:
        self.inbox.fail = StoreUnreachable()
        self.assertEqual(self.ack(b"hello")[0], "AE")
        self.flushLoggedErrors(StoreUnreachable)

    def test_too_large(self) -> None:
        answers: list[bytes | None] = []
        for_listener = self.receiver.for_listener(LISTENER)
        for_listener.oversize(Oversize(adt() + b"x" * 70_000, 20_000_000), "peer", answers.append)
        (ack,) = answers
        self.assertIn(b"\rMSA|AR|C1\r", ack or b"")
        (kept,) = self.inbox.rejects
        self.assertEqual((kept.size, len(kept.raw)), (20_000_000, 65_536))

    def test_unframed_bytes_are_stored_and_not_acknowledged(self) -> None:
        for_listener = self.receiver.for_listener(LISTENER)
        for_listener.lost(Unfinished(b"MSH|", 4), "peer", "cut")
        for_listener.lost(Junk(b"GET /", 500), "peer", "junk")
        self.assertEqual(
            [(one.reason, one.raw, one.size) for one in self.inbox.rejects],
            [("cut", b"MSH|", 4), ("junk", b"GET /", 500)],
        )

    def test_received_acknowledgement_is_not_acknowledged(self) -> None:
        raw = b"MSH|^~\\&|REG|HOSP|IPF|HUB|2024||ACK^A04^ACK|C1|P|2.5\rMSA|AA|OUR1\r"
        self.assertIsNone(self.answer(raw))
        self.assertEqual((len(self.inbox.rejects), self.inbox.order), (1, []))


class UnforeseenTests(ReceiveCase):
    """One message with which something fails that nobody foresaw, at each step of its way."""

    STEPS = ("scan_header", "is_batch", "invalid_key", "ordering_key", "codec_for")

    def test_it_is_kept_and_the_next_one_is_taken(self) -> None:
        for number, step in enumerate((*self.STEPS, "apply_profile", "map_missing", "submit")):
            self.receiver = self.make()
            calls = count()

            def failing(*given: Any, calls: Any = calls, original: Any = None) -> Any:
                if next(calls) == 0:
                    raise ZeroDivisionError("Hansen")
                return original(*given) if original is not None else given[-1]

            if step in self.STEPS:
                original = getattr(receive, step)
                self.patch(receive, step, partial(failing, original=original))
            elif step == "apply_profile":
                self.receiver.apply_profile = failing
            elif step == "map_missing":
                self.patch(self.receiver, "_map_missing", partial(failing, original=lambda message_type: False))
            else:
                self.patch(self.receiver.commit, "submit", partial(failing, original=self.receiver.commit.submit))
            before = len(self.inbox.rejects)
            code, id, answer = self.ack(adt(f"bad{number}"))
            self.assertEqual((code, id), ("AE", f"bad{number}"), step)
            self.assertEqual(self.err(answer)[2], "unexpected ZeroDivisionError", step)
            self.assertEqual([one.raw for one in self.inbox.rejects[before:]], [adt(f"bad{number}")], step)
            self.assertEqual(self.ack(adt(f"good{number}"))[0], "AA", step)
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1, step)
            self.assertNotIn("Hansen", str(self.lines))

    def test_in_a_batch_the_others_are_taken(self) -> None:
        self.patch(self.receiver, "_map_missing", lambda message_type: 1 // (message_type != "ADT_A08") == 0)
        raw = b"BHS|^~\\&\r" + adt("1") + adt("2", "A08") + adt("3") + b"BTS|3\r"
        answer = self.answer(raw)
        assert answer is not None
        codes = [line.split(b"|")[1] for line in answer.split(b"\r") if line.startswith(b"MSA")]
        self.assertEqual(codes, [b"AA", b"AE", b"AA"])
        self.assertEqual([one.source_id for one in self.inbox.order], ["1", "3"])
        self.flushLoggedErrors(ZeroDivisionError)


class NotStoredTests(ReceiveCase):
    def test_log_names_the_message_that_was_not_stored(self) -> None:
        """By its source id, so that an operator can request it again."""
        self.ack(adt("C1", trigger=""))
        self.answer(b"hello")
        self.inbox.fail = StoreUnreachable()
        self.ack(adt("C2"))
        self.assertEqual(self.logged, ["rejected", "rejected", "not_taken"])
        for line, system, source_id in zip(self.lines, ("REG", "null", "REG"), ("C1", "null", "C2"), strict=True):
            self.assertIn(f" source_system={system} source_id={source_id} ", line)
        self.assertIn('reason="the store cannot be reached"', self.lines[-1])

    def test_store_unreachable(self) -> None:
        self.inbox.fail = StoreUnreachable()
        code, echoed, message = self.ack(adt())
        self.assertEqual((code, echoed, self.err(message)), ("AE", "C1", ("", "207", "the store cannot be reached")))
        self.inbox.fail = None
        self.assertEqual(self.ack(adt())[0], "AA")
        self.assertEqual([result for result, *_ in self.counted], ["unavailable", "stored"])

    def test_store_times_out(self) -> None:
        self.inbox.hold = True
        answer = self.start(adt())
        self.clock.advance(9.9)
        self.assertNoResult(answer)
        self.clock.advance(0.2)
        self.assertIn(b"\rMSA|AE|C1\r", self.successResultOf(answer) or b"")

    def test_row_refused_by_the_store_becomes_a_reject(self) -> None:
        self.inbox.poison = {"C1"}
        code, _, message = self.ack(adt())
        self.assertEqual((code, self.err(message)[1]), ("AE", "207"))
        self.assertEqual((len(self.inbox.rejects), self.logged), (1, ["store_failed"]))

    def test_missing_map(self) -> None:
        installed: set[str] = set()
        self.receiver = self.make(map_missing=lambda kind: kind == "ADT_A01" and kind not in installed)
        code, echoed, message = self.ack(adt(trigger="A01"))
        self.assertEqual((code, echoed), ("AE", "C1"))
        self.assertIn("ADT_A01", self.err(message)[2])
        self.assertEqual((self.inbox.order, self.inbox.rejects), ([], []))
        self.assertEqual(self.ack(adt("C2"))[0], "AA")
        installed.add("ADT_A01")
        self.assertEqual(self.ack(adt(trigger="A01"))[0], "AA")
        self.assertEqual(len(self.inbox.order), 2)

    def test_query(self) -> None:
        """AE says that queries are not served; nothing is stored."""
        self.receiver = self.make(map_missing=is_query)
        frame = b"MSH|^~\\&|REG|HOSP|||2026||QBP^Q22^QBP_Q21|Q1|P|2.5\rQPD|IHE PDQ Query|1|@PID.5.1^MARLOWE\rRCP|I\r"
        code, echoed, message = self.ack(frame)
        self.assertEqual((code, echoed, self.err(message)[1]), ("AE", "Q1", "200"))
        self.assertIn("queries are not served here: QBP_Q22", self.err(message)[2])
        self.assertEqual((self.inbox.order, self.inbox.rejects), ([], []))

    def test_vendor_profile_applies(self) -> None:
        """Its maps, tenant and charset apply to the message; it may set a control id."""

        def apply_profile(frame: bytes, header: Header, listener: MllpListener) -> MllpListener:
            header.source_id = header.source_id or "made"
            return MllpListener(listener.name, "iso8859-2", "west", frozenset({"ADT_A01"}))

        self.receiver = self.make(map_missing=lambda kind: kind in ("ADT_A01", "ADT_A08"))
        self.receiver.apply_profile = apply_profile
        self.assertEqual(self.ack(adt(trigger="A01"))[0], "AA")
        self.assertEqual(self.ack(adt(trigger="A08"))[0], "AE")
        self.assertEqual(self.ack(adt("", pid="PID|1||77||K\u00f3s\r").replace(b"\xc3\xb3", b"\xf3"))[:2], ("AA", ""))
        stored = [(one.source_id, one.tenant, one.charset) for one in self.inbox.order]
        self.assertEqual(stored, [("C1", "west", "utf-8"), ("made", "west", "iso8859-2")])
        self.receiver.oversize(Oversize(adt("C9"), 99_999_999), LISTENER, "10.0.0.1:4000", lambda answer: None)
        self.assertEqual(self.inbox.rejects[-1].tenant, "west")


class OrderingTests(TestCase):
    def key(self, pid: str, ordering: str = "patient", system: str = "REG", end: str = "\r") -> int | None:
        raw = f"MSH|^~\\&|{system}||||||ADT^A01|1{end}EVN|A01{end}{pid}{end}PV1|1|I|x^^^y".encode()
        return ordering_key(raw, scan_header(raw), ordering)

    def test_patient(self) -> None:
        one = self.key("PID|1||77^^^HOSP^MR~88^^^B||A^B")
        assert one is not None
        self.assertTrue(0 <= one < 2**63)
        same = ("PID|2||77^^^HOSP^PI||Other", "PID|||77^^^HOSP", "PID|1|99|77^X^^HOSP~1")
        other = ("PID|1||77^^^OTHER", "PID|1||78^^^HOSP", "PID|1||77", "PID|1|77^^^HOSP2")
        for pid in same:
            self.assertEqual(self.key(pid), one, pid)
        for pid in other:
            self.assertNotEqual(self.key(pid), one, pid)
        self.assertNotEqual(self.key("PID|1||77^^^HOSP", system="LAB"), one)
        self.assertEqual(self.key("PID|1|77^^^HOSP"), one)  # PID-2, as before v2.3

    def test_line_ends(self) -> None:
        for end in ("\n", "\r\n"):
            self.assertEqual(self.key("PID|1||77^^^HOSP", end=end), self.key("PID|1||77^^^HOSP"))

    def test_no_ordering_without_a_patient(self) -> None:
        for pid in ("NK1|1", "PID|1", "PID", "PID|1||", 'PID|1||""', "PID|1||^^^HOSP"):
            self.assertIsNone(self.key(pid), pid)

    def test_sender_and_none(self) -> None:
        self.assertEqual(self.key("PID|1||1", "sender"), self.key("NK1|1", "sender"))
        self.assertNotEqual(self.key("PID|1||1", "sender"), self.key("PID|1||1", "sender", "LAB"))
        self.assertIsNone(self.key("PID|1||1", "none"))

    def test_tenants_have_separate_keys(self) -> None:
        raw = b"MSH|^~\\&|REG||||||ADT^A01|1\rPID|1||77^^^HOSP\r"
        keys = {ordering_key(raw, scan_header(raw), "patient", tenant) for tenant in ("default", "west", "north")}
        self.assertEqual(len(keys), 3)
        self.assertIn(self.key("PID|1||77^^^HOSP"), keys)
