"""Watched folders: what is taken when, where files go, and what a report says."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.errors import StoreUnreachable
from ipf.pipeline.equal_failures import MOST
from ipf.pipeline.receive.files import FileSource
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.pipeline.receive.receive import MllpListener, Receiver
from tests.pipeline.plain_inbox import PlainInbox

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
LISTENER = MllpListener("lab", tells_all=True)
PERSON = "Hansen"
T = TypeVar("T")


def message(id: str, rest: str = "") -> bytes:
    return f"MSH|^~\\&|LAB|H|IPF|H|2026||ORU^R01|{id}|P|2.5.1{rest}\rPID|1||77^^^H^MR\r".encode()


async def at_once(work: Callable[[], T]) -> T:
    """A thread that is none."""
    return work()


class FileSourceTests(TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ipf-files-"))
        self.addCleanup(rmtree, self.folder, ignore_errors=True)
        self.inbox, self.clock = PlainInbox(), Clock()
        self.source = self.opened()

    def opened(self) -> FileSource:
        """A source as a process has it after its start."""
        inbox: Any = self.inbox
        receiver = Receiver(
            inbox, GroupCommit(inbox, self.clock), self.clock, now=lambda: NOW, new_correlation_id=lambda: "c"
        )

        async def receive(raw: bytes) -> bytes | None:
            return await receiver.receive(raw, LISTENER, "file")

        return FileSource("lab", self.folder, receive, at_once, lambda: NOW)

    def put(self, name: str, *parts: bytes, age: int = 0) -> None:
        path = self.folder / name
        path.write_bytes(b"".join(parts))
        os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))

    async def look(self, times: int = 2) -> None:
        """Polls; what waits for a commit goes on."""
        for _ in range(times):
            polling = Deferred.fromCoroutine(self.source.poll())
            while not polling.called:
                self.clock.advance(0)
            await polling

    async def test_what_keeps_files_is_told_without_their_names(self) -> None:
        """Until the file is gone; what was refused is an error of the past."""
        (self.folder / "done").symlink_to("nowhere")
        self.put("Hansen.hl7", message("1"))
        await self.look()
        self.assertIn("File exists", self.source.problem or "")
        self.assertNotIn("Hansen", self.source.problem or "")
        for name in ("done", "Hansen.hl7"):
            (self.folder / name).unlink()
        self.put("good.hl7", message("2"))
        self.put("bad.hl7", message("3"), b"MSH|^~\\&|LAB\r")
        await self.look()
        self.assertIsNone(self.source.problem)
        self.assertEqual(self.source.last_error, "1 of 2 messages were not accepted")
        self.assertEqual(self.source.taken, 1)
        rmtree(self.folder)
        await self.look(1)
        self.assertEqual(self.source.problem, "the folder cannot be read: No such file or directory")

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}

    def ids(self) -> list[str]:
        return [one.source_id for one in self.inbox.order]

    async def test_a_file_is_taken_when_it_rests(self) -> None:
        self.put("a.hl7", message("1"), message("2"))
        await self.look(1)
        self.put("a.hl7", message("1"), message("2"), message("3"))
        await self.look(1)
        self.assertEqual(self.ids(), [])
        await self.look(1)
        self.assertEqual((self.ids(), self.files()), (["1", "2", "3"], {"done/a.hl7"}))
        self.assertEqual({one.listener for one in self.inbox.order}, {"lab"})

    async def test_what_is_left_alone(self) -> None:
        names = {".hidden", "b.tmp", "c.part", "d.filepart"}
        for name in names:
            self.put(name, message(name))
        (self.folder / "folder").mkdir()
        (self.folder / "link").symlink_to(self.folder / ".hidden")
        await self.look(3)
        self.assertEqual((self.ids(), self.files() - {"link"}), ([], names))

    async def test_the_oldest_first(self) -> None:
        for name, age in (("b", 1), ("c", 3), ("a", 2), ("z", 3)):
            self.put(name, message(name), age=age)
        await self.look()
        self.assertEqual(self.ids(), ["c", "z", "a", "b"])

    async def test_what_is_refused_is_in_a_report(self) -> None:
        self.put("x.hl7", message("1"), message("").replace(b"R01", b"R03"), message("3", "||||NE|NE"), message("1"))
        await self.look()
        self.assertEqual(self.ids(), ["1", "3"])
        self.assertEqual(self.files(), {"failed/x.hl7", "failed/x.hl7.report.txt"})
        report = (self.folder / "failed/x.hl7.report.txt").read_text().split("\n")
        self.assertEqual(
            report[:2], ["x.hl7, source lab, 2026-03-04T05:06:07+00:00", "1 of 4 messages were not accepted"]
        )
        self.assertTrue(report[4].startswith("message 2, MSH-10 : AR "), report)
        self.assertEqual(len(self.inbox.rejects), 1)

    async def test_a_batch_that_is_cut_off_is_not_taken(self) -> None:
        self.put("cut.hl7", b"BHS|^~\\&\r", message("1"))
        self.put("text.txt", b"dear lab,\nplease find enclosed\n")
        self.put("empty", b"")
        await self.look()
        self.assertEqual(self.ids(), [])
        self.assertIn("BHS has no BTS", (self.folder / "failed/cut.hl7.report.txt").read_text())
        self.assertIn("line 1: stands outside of a message", (self.folder / "failed/text.txt.report.txt").read_text())
        self.assertIn("there is no message in it", (self.folder / "failed/empty.report.txt").read_text())
        self.assertEqual(len(self.inbox.rejects), 2)

    async def test_names_that_are_no_text_or_very_long(self) -> None:
        """Such a name stopped the folder for good, with health UP; so did a report whose name became too long."""
        names = [b"Hans\xe9n.hl7", b"bad \xff.hl7", b"x" * 251 + b".hl7", "\u00e9".encode() * 120 + b".hl7"]
        for number, name in enumerate(names):
            parts = (message(str(number)),) if number != 1 else (b"dear lab\n",)
            path = os.path.join(os.fsencode(self.folder), name)
            Path(os.fsdecode(path)).write_bytes(b"".join(parts) if number < 2 else b"no message\n")
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        self.put("last.hl7", message("9"))
        await self.look()
        self.assertEqual(self.ids(), ["0", "9"])
        left = [one for one in os.scandir(self.folder) if one.is_file()]
        self.assertEqual(left, [])
        reports = [one for one in os.listdir(self.folder / "failed") if one.endswith(".report.txt")]
        self.assertEqual(len(reports), 3)
        self.assertEqual(len(os.listdir(self.folder / "failed")), 6)
        self.assertTrue(os.path.exists(os.path.join(os.fsencode(self.folder), b"done", names[0])))
        self.assertIsNone(self.source.problem)

    async def test_a_file_that_fails_at_any_step_does_not_stop_the_next(self) -> None:
        """Opened, received, moved with its report: it is set aside, or left alone when it cannot be moved."""
        for step in ("_locked", "_receive_all", "_receive", "_finish", "_move"):
            source = self.opened()
            step_of_source = getattr(source, step)

            def guarded(*given: Any, original: Any = step_of_source) -> Any:
                if self.is_bad(given):
                    raise TypeError(PERSON)
                return original(*given)

            self.patch(source, step, guarded)
            self.source = source
            self.inbox.order.clear()
            self.put("bad.hl7", message("bad"), age=5)
            self.put("good.hl7", message(f"good-{step}"))
            await self.look()
            self.assertEqual(self.ids()[-1:], [f"good-{step}"], step)
            self.assertEqual((source.problem is None), step != "_move", step)
            self.assertTrue(self.flushLoggedErrors(TypeError), step)
            if step != "_move":
                report = (self.folder / "failed/bad.hl7.report.txt").read_text()
                self.assertIn("unexpected TypeError", report)
                self.assertNotIn(PERSON, report)
            for path in [*self.folder.rglob("*.hl7*")]:
                path.unlink()

    def is_bad(self, given: tuple[Any, ...]) -> bool:
        """Whether these arguments are of the bad file or its message."""
        return any("bad" in str(one) for one in given if isinstance(one, str | bytes | list))

    async def test_equal_failures_make_the_source_fail(self) -> None:
        """Each file is set aside; health says that it is not the files.  A file that is taken ends it."""
        source = self.source

        async def failing(raw: bytes) -> bytes | None:
            raise ZeroDivisionError

        original = source._receive
        self.patch(source, "_receive", failing)
        for number in range(MOST):
            self.assertIsNone(source.problem)
            self.put(f"{number}.hl7", message(str(number)))
            await self.look()
        self.assertEqual(source.problem, f"{MOST} items in succession failed: unexpected ZeroDivisionError")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), MOST)
        self.patch(source, "_receive", original)
        self.put("good.hl7", message("good"))
        await self.look()
        self.assertIsNone(source.problem)

    async def test_files_wait_for_the_store_and_repeat_nothing(self) -> None:
        self.put("a.hl7", *(message(str(number)) for number in range(100)))
        await self.look(1)
        self.inbox.fail = StoreUnreachable()
        await self.look(2)
        self.assertEqual(self.files(), {"a.hl7"})
        self.inbox.fail = None
        self.source = self.opened()  # the process was killed meanwhile
        await self.look(2)
        self.assertEqual((self.ids(), self.files()), ([str(number) for number in range(100)], {"done/a.hl7"}))

    async def test_what_cannot_be_moved_is_read_once(self) -> None:
        (self.folder / "done").symlink_to("/proc/none")  # no folder can be made there
        self.put("a.hl7", message("1"))
        await self.look(5)
        self.assertEqual((self.ids(), self.inbox.batches.count(1)), (["1"], 1))
        (self.folder / "done").unlink()
        self.put("a.hl7", message("1"), message("2"))
        await self.look(2)
        self.assertEqual((self.ids(), self.files()), (["1", "2"], {"done/a.hl7"}))

    async def test_a_folder_that_is_away(self) -> None:
        away = self.folder.with_name(self.folder.name + "-away")
        self.folder.rename(away)
        await self.look(3)
        away.rename(self.folder)
        self.put("a.hl7", message("1"))
        await self.look(2)
        self.assertEqual(self.ids(), ["1"])

    async def test_another_process_has_the_file(self) -> None:
        self.put("a.hl7", message("1"))
        with (self.folder / "a.hl7").open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            await self.look(3)
            self.assertEqual((self.ids(), self.files()), ([], {"a.hl7"}))
        await self.look(1)
        self.assertEqual(self.files(), {"done/a.hl7"})

    async def test_a_name_that_is_used_again(self) -> None:
        for id in "12":
            self.put("a.hl7", message(id))
            await self.look()
        self.assertEqual(self.files(), {"done/a.hl7", "done/a.hl7.20260304T050607000000"})
