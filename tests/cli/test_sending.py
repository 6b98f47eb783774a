"""The command `send`, against the real receiver and against receivers that follow a script."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from twisted.internet import reactor as _reactor
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import TestCase

from ipf.cli import sending
from ipf.cli.api import Api
from ipf.cli.mllp_sender import read_answer
from ipf.cli.output import Form, Output
from ipf.fhir.model.json import loads
from ipf.hl7.framing import frame
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.pipeline.receive.receive import MllpListener, Receiver
from ipf.wire.mllp.protocol import MllpFactory
from tests.fakes.inbox import MemoryInbox
from tests.reference import ROOT
from tests.waiting import PATIENCE

reactor: Any = _reactor
NOW = datetime(2026, 11, 23, tzinfo=UTC)


def message(control_id: str, accept: str = "", application: str = "", kind: str = "ADT^A01") -> bytes:
    return f"MSH|^~\\&|LAB||IPF||20261123||{kind}|{control_id}|P|2.5|||{accept}|{application}\rPID|1||7\r".encode()


def ack(code: str, control_id: str, text: str = "") -> bytes:
    err = f"\rERR||||E||||{text}" if text else ""
    return f"MSH|^~\\&|IPF||LAB||20261123||ACK|1|P|2.5\rMSA|{code}|{control_id}{err}\r".encode()


class Scripted(Protocol):
    """Answers the n-th message with the n-th list of the script; None closes the connection."""

    def __init__(self, script: Sequence[list[bytes] | None], seen: list[bytes]) -> None:
        self._script = iter(script)
        self._seen = seen
        self._buffer = b""

    def dataReceived(self, data: bytes) -> None:
        self._buffer += data
        while b"\x1c\r" in self._buffer and self.transport is not None:
            one, _, self._buffer = self._buffer.partition(b"\x1c\r")
            self._seen.append(one.removeprefix(b"\x0b"))
            answers = next(self._script, [])
            if answers is None:
                self.transport.loseConnection()
                return
            for answer in answers:
                self.transport.write(frame(answer))


class SendingTests(TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.inbox = MemoryInbox()
        self.seen: list[bytes] = []

    def file(self, name: str, *messages: bytes) -> str:
        path = self.folder / name
        path.write_bytes(b"".join(messages))
        return str(path)

    async def listen(self, factory: Any) -> str:
        port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return f"127.0.0.1:{port.getHost().port}"

    async def real(self) -> str:
        commit = GroupCommit(self.inbox, reactor)
        receiver = Receiver(self.inbox, commit, reactor, now=lambda: NOW, new_correlation_id=lambda: "c")
        factory = MllpFactory("lab", receiver.for_listener(MllpListener("lab", "cp1252", "default")), reactor)
        self.addCleanup(self.cancel_timers)
        self.addCleanup(factory.stop)
        return await self.listen(factory)

    def cancel_timers(self) -> None:
        """Group commit looks for writes that take too long once more, in ten seconds."""
        for call in reactor.getDelayedCalls():
            if getattr(call.func, "__name__", "") == "_expire":
                call.cancel()

    async def scripted(self, *script: list[bytes] | None) -> str:
        return await self.listen(Factory.forProtocol(lambda: Scripted(script, self.seen)))  # type: ignore[arg-type]

    async def send(self, target: str, *files: str, quiet: float = 0.2, seconds: float = PATIENCE) -> tuple[bool, Any]:
        """Whether all were accepted, and the report as JSON."""
        written = io.StringIO()
        self.patch(__import__("sys"), "stdout", written)
        api = Api("http://127.0.0.1:1", reactor=reactor)
        given: dict[str, Any] = {"connections": 1, "repeat": 1, "fresh_ids": False, "seconds": seconds, "quiet": quiet}
        good = await sending.send(api, Output(Form.JSON), files, target, **given)
        return good, loads(written.getvalue())

    async def test_acknowledgement_modes_of_the_real_receiver(self) -> None:
        """It waits for what MSH-15 and MSH-16 ask for, and for nothing else."""
        modes = [("", ""), ("AL", "NE"), ("AL", "AL"), ("NE", "AL"), ("NE", "NE"), ("ER", "NE"), ("SU", "NE")]
        sent = [message(f"M{number}", *mode) for number, mode in enumerate(modes)]
        good, report = await self.send(await self.real(), self.file("modes.hl7", *sent))
        self.assertEqual((good, report["codes"]), (True, {"AA": 2, "CA": 3}), report)
        self.assertEqual((report["sent"], report["answered"], report["without_acknowledgement"]), (7, 5, 2))
        self.assertEqual(len(self.inbox.rows), 7)

    async def test_it_goes_on_after_refusals_and_names_them(self) -> None:
        first = self.file("a.hl7", message("M1"), message(""), message("M3", "AL"))
        second = self.file(
            "b.hl7", message("M4", "AL", kind=""), message("M5", "ER", kind=""), message("M6", "NE", "NE")
        )
        good, report = await self.send(await self.real(), first, second)
        self.assertEqual((good, report["sent"], report["not_sent"]), (False, 6, 0), report)
        refused = [(one["file"][-5:], one["number"], one["control_id"], one["code"]) for one in report["refusals"]]
        self.assertEqual(refused, [("a.hl7", 2, "", "AR"), ("b.hl7", 1, "M4", "CR"), ("b.hl7", 2, "M5", "CR")])
        self.assertTrue(all(one["text"] for one in report["refusals"]))
        self.assertEqual([row.message.source_id for row in self.inbox.rows.values()], ["M1", "M3", "M6"])

    async def test_commit_and_application_acknowledgements(self) -> None:
        """The application acknowledgement comes after the commit, perhaps after the next message's."""
        target = await self.scripted(
            [ack("CA", "M1")],
            [ack("AA", "M1"), ack("CA", "M2"), ack("AE", "M2", "bed unknown")],
            [ack("CE", "M3", "full")],
        )
        sent = [message(f"M{number}", "AL", "AL") for number in (1, 2, 3)]
        good, report = await self.send(target, self.file("both.hl7", *sent))
        self.assertEqual((good, report["codes"], report["answered"]), (False, {"CA": 2, "AA": 1, "AE": 1, "CE": 1}, 3))
        found = [(one["number"], one["code"], one["text"]) for one in report["refusals"]]
        self.assertEqual(found, [(2, "AE", "bed unknown"), (3, "CE", "full")])

    async def test_silence_on_success_only(self) -> None:
        """MSH-15 SU: a receiver that says nothing has refused."""
        target = await self.scripted([], [ack("CA", "M2")])
        sent = [message("M1", "SU", "NE"), message("M2", "SU", "NE")]
        good, report = await self.send(target, self.file("su.hl7", *sent))
        self.assertEqual((good, report["codes"]), (False, {"CA": 1}))
        self.assertEqual([one["control_id"] for one in report["refusals"]], ["M1"])

    async def test_a_connection_that_is_lost(self) -> None:
        """What was sent without an answer, and what was not sent."""
        sent = self.file("lost.hl7", *(message(f"M{number}") for number in (1, 2, 3, 4)))
        good, report = await self.send(await self.scripted([ack("AA", "M1")], None), sent)
        self.assertEqual((good, report["sent"], report["answered"], report["not_sent"]), (False, 2, 1, 2))
        self.assertEqual([one["control_id"] for one in report["unanswered"]], ["M2"])
        self.assertIn("closed the connection", report["unanswered"][0]["text"])
        self.assertEqual(report["first_not_sent"], {"file": sent, "number": 3, "control_id": "M3"})

    async def test_no_answer_in_time_and_no_listener(self) -> None:
        sent = self.file("silent.hl7", message("M1"), message("M2"))
        good, report = await self.send(await self.scripted([]), sent, seconds=0.2)
        self.assertEqual((good, report["not_sent"], report["unanswered"][0]["control_id"]), (False, 1, "M1"))
        self.assertIn("no acknowledgement within 0.2 s", report["failures"][0])
        good, report = await self.send("127.0.0.1:1", sent)
        self.assertEqual((good, report["sent"], report["not_sent"], report["unanswered"]), (False, 0, 2, []))
        self.assertIn("refused", report["failures"][0].lower())

    async def test_bytes_are_sent_as_they_are(self) -> None:
        """Batches, frames, line ends, bytes of any character set; headers and trailers of batches are no segments."""
        batch = b"FHS|^~\\&|A\nBHS|^~\\&|A\n%bBTS|1\nBHS|^~\\&|A\n%bBTS|1\nFTS|1\n"
        latin = "MSH|^~\\&|A|||||X|M1\rPID|1|Grün\r".encode("latin-1")
        japanese = b"MSH|^~\\&|A|||||X|M2\rPID|1|\x1b$B;3ED\x1b(B\rNTE|1||BTS|x\r"
        content = batch % (latin.replace(b"\r", b"\n"), japanese.replace(b"\r", b"\r\n"))
        framed = b"\x0b" + latin + b"\x1c\r\x0b" + japanese + b"\x1c\r"
        target = await self.scripted()
        await self.send(target, self.file("batch.hl7", content, b"\r"), seconds=0.1)
        for given in (content, framed, b"\xef\xbb\xbf" + content):
            self.assertEqual(list(sending.split(given)), [latin, japanese])
        self.assertEqual(self.seen, [latin])

    async def test_the_lines_of_each_acknowledgement(self) -> None:
        """`--each` names file, number and MSH-10; so does every error."""
        said, errors = io.StringIO(), io.StringIO()
        output = Output(console=Console(file=said, width=240), errors=Console(file=errors, width=240))
        sent = self.file("each.hl7", message("M1"), message("M2"))
        target = await self.scripted([ack("AA", "M1")], [ack("AE", "M2", "no map")])
        api = Api("http://127.0.0.1:1", reactor=reactor)
        good = await sending.send(api, output, (sent,), target, 1, 1, False, PATIENCE, each=True)
        self.assertFalse(good)
        self.assertIn(f"{sent} message 1 (MSH-10 M1): AA\n", said.getvalue())
        self.assertIn(f"{sent} message 2 (MSH-10 M2): AE no map\n", said.getvalue())
        self.assertEqual(errors.getvalue(), f"error: {sent} message 2 (MSH-10 M2): AE no map\n")

    def test_answers_with_other_separators(self) -> None:
        self.assertEqual(read_answer(b"MSH#^~\\&#A\rMSA#AE#M1#old text\r"), ("AE", "old text", "M1"))

    def test_answers_that_are_no_hl7(self) -> None:
        """What arrived is shown; an acknowledgement without MSA acknowledges nothing."""
        for answer in (b"nothing", b"", b"MSH", b"MSA|AA|M1", b"HTTP/1.1 400 Bad Request"):
            self.assertEqual(read_answer(answer), ("none", answer.decode(), ""))
        self.assertEqual(read_answer(b"MSH|^~\\&|A\rERR||||E||||no"), ("none", "no", ""))

    async def test_the_examples_of_the_documentation(self) -> None:
        """Each program of docs/how-to/send-messages.md, and the command, against the real receiver."""
        port = (await self.real()).partition(":")[2]
        page = (ROOT / "docs/how-to/send-messages.md").read_text()
        programs = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
        outputs = [await self._program([sys.executable, "-c", one.replace("2575", port)]) for one in programs]
        self.assertEqual(outputs, ["AA\n", "AA\nAA\n"])
        stored = [row.message for row in self.inbox.rows.values()]
        self.assertEqual([one.source_id for one in stored], ["MSG00001", "MSG00002", "MSG00003"])
        self.assertTrue(all("Sample^Zoë".encode() in one.raw for one in stored))
        (command,) = re.findall(r"`(mllp_send .+?)`", page)
        sent = self.file("message.hl7", message("M4").replace(b"\r", b"\n"))
        words = command.replace("2575", port).replace("message.hl7", sent).split()
        self.assertIn("MSA|AA|M4", await self._program([str(Path(sys.executable).with_name(words[0])), *words[1:]]))

    async def _program(self, words: list[str]) -> str:
        """What a program prints; it must succeed."""
        environment = {"PATH": "/usr/bin:/bin", "PYTHONUTF8": "1"}
        output, errors, status = await getProcessOutputAndValue(words[0], words[1:], environment)
        self.assertEqual((status, errors), (0, b""))
        return output.decode()
