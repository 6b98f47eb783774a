"""A watched folder: each message of each file is received as over MLLP, then the file moves to `done` or `failed`.

Input: files with one message, several, or batches.  Output: rows of the inbox; the file in `done`, or in `failed`
beside a report that names each message which was not accepted, and why.

A file is read when its size and time did not change for a whole round, so that nobody still writes it; names that begin
with a point or end in `.tmp`, `.part` or `.filepart` are left alone.  A lock keeps other processes from the same file.
Crash: the file is where it was, it is read again, and messages that were stored are recognised.  While the store cannot
be reached the file stays.  A batch that is cut off is not taken at all.

Whatever fails with one file, its report included, the next one is taken: the file moves to `failed` or, if it cannot be
moved, is left alone.  Source: docs/how-to/receive-messages.md "Files".
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.hl7.answers import AckAnswer, answers_of
from ipf.hl7.batches import content_of
from ipf.pipeline.equal_failures import EqualFailures, reason_of
from ipf.ports import Clock
from ipf.ports.threads import RunInThread

log = Logger()

DONE, FAILED = "done", "failed"
MOST_BYTES = 256 * 1024 * 1024
"""Bytes of a file; it is read into memory."""
_PARTIAL = (".tmp", ".part", ".filepart")
_REPORT = ".report.txt"
_LONGEST_NAME = 255  # bytes
_AT_ONCE = 64  # messages that wait for one commit
_NO_MESSAGE = AckAnswer("", "", "it is an acknowledgement; these are not received")
_LATER = StoreUnreachable().text
_UNEXPECTED = "unexpected "
_RECOGNISED = "The others are stored, and are recognised when the file is given again."

Receive = Callable[[bytes], Awaitable[bytes | None]]
"""The acknowledgement of one message."""


@dataclass(frozen=True, slots=True)
class Taken:
    """One message of a file.  `number`: from 1."""

    number: int
    answer: AckAnswer


class FileSource:
    """One folder.  `name`: of the source, for the log."""

    def __init__(self, name: str, folder: Path, receive: Receive, run_in_thread: RunInThread, now: Clock) -> None:
        self.name = name
        self._folder = folder
        self._receive = receive
        self._run_in_thread = run_in_thread
        self._now = now
        self._seen: dict[str, tuple[int, int]] = {}
        self._stuck: dict[str, tuple[int, int]] = {}
        self._reason = ""
        self._equal = EqualFailures()
        self.taken = self.failed = 0
        self.last_error: str | None = None

    @property
    def problem(self) -> str | None:
        """What keeps files from being taken now; without their names, which may tell of whom they are."""
        if "" in self._stuck:
            return f"the folder cannot be read: {self._reason}"
        if self._equal.problem is not None:
            return self._equal.problem
        stuck = sum(self._seen.get(name) == state for name, state in self._stuck.items())
        return f"files that cannot be opened or moved: {stuck} ({self._reason})" if stuck else None

    async def poll(self) -> None:
        """Take the files that are complete, the oldest first; what the file system refuses is logged once."""
        try:
            names, unreadable = await self._run_in_thread(self._complete)
        except OSError as error:
            self._leave("", _why(error), (0, 0))
            return
        self._stuck.pop("", None)
        for name, failure in unreadable:
            self._leave(name, _why(failure), self._seen[name])
        for name in names:
            try:
                if not await self._take(name):
                    return  # the store cannot be reached: later
            except StoreUnreachable:
                return
            except OSError as error:
                self._leave(name, _why(error), self._seen[name])
            except Exception as error:
                await self._set_aside(name, error)

    async def _set_aside(self, name: str, error: Exception) -> None:
        """A file with which something failed that is not foreseen: to `failed`, or it is left alone."""
        reason = reason_of(error)
        log.failure("event=file_failed source={source} file={file}", event="file_failed", source=self.name,
                    file=shown(name))  # fmt: skip
        self._equal.failed(reason)
        try:
            await self._moved(name, FAILED, [f"it was not taken, or not completely: {reason}", _RECOGNISED])
        except Exception as failed:
            self._leave(name, _why(failed), self._seen[name])

    def _leave(self, name: str, reason: str, state: tuple[int, int]) -> None:
        """A file that cannot be opened or moved is left alone until it changes, or the service is started again."""
        if self._stuck.get(name) == state:
            return
        self._stuck[name], self._reason = state, reason
        log.warn("event=file_stuck source={source} file={file}: {reason}", event="file_stuck", source=self.name,
                 file=shown(name or str(self._folder)), reason=reason)  # fmt: skip

    def _complete(self) -> tuple[list[str], list[tuple[str, OSError]]]:
        """The files that rest, and those of which nothing can be read."""
        found, before = {}, self._seen
        unreadable = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    found[entry.name] = -1, -1
                    unreadable.append((entry.name, error))
                    continue
                if S_ISREG(status.st_mode) and not entry.name.startswith(".") and not entry.name.endswith(_PARTIAL):
                    found[entry.name] = status.st_size, status.st_mtime_ns
        self._seen = found
        resting = (name for name in found if found[name] == before.get(name) != self._stuck.get(name))
        return sorted(resting, key=lambda name: (found[name][1], name)), unreadable

    async def _take(self, name: str) -> bool:
        """Receive one file; False when it must be tried again later."""
        file = await self._run_in_thread(lambda: self._locked(name))
        if file is None:
            return True
        with closing(file):
            try:
                raw = await self._run_in_thread(lambda: _read(file))
                content = await self._run_in_thread(lambda: content_of(raw))
            except Problem as problem:
                return await self._refuse(name, problem, file)
            taken = await self._receive_all(content.messages)
            if taken is None:
                text = "event=file_waits source={source} file={file}: the store cannot be reached"
                log.warn(text, event="file_waits", source=self.name, file=shown(name))
                return False
            await self._finish(name, taken)
        return True

    def _locked(self, name: str) -> BinaryIO | None:
        """The file, locked for this process; None when another one has it, or moved it."""
        path = self._folder / name
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                return file
        except (BlockingIOError, FileNotFoundError):
            pass
        file.close()
        return None

    async def _receive_all(self, messages: list[bytes]) -> list[Taken] | None:
        """What became of each message; None when the store could not take one."""
        taken: list[Taken] = []
        for start in range(0, len(messages), _AT_ONCE):
            part = messages[start : start + _AT_ONCE]
            received = gatherResults([Deferred.fromCoroutine(_awaited(self._receive(one))) for one in part])
            for acknowledgement in await received:
                taken.append(Taken(len(taken) + 1, _answer(acknowledgement)))
            if any(one.answer.text == _LATER for one in taken):
                return None
        return taken

    async def _refuse(self, name: str, problem: Problem, file: BinaryIO) -> bool:
        """A file that is no messages, or a batch that is cut off: kept among the rejects, and in `failed`."""
        head = await self._run_in_thread(lambda: _head(file))
        answers = answers_of(await self._receive(head) or b"") if head.strip() else []
        if any(one.text == _LATER for one in answers):
            return False
        await self._moved(name, FAILED, [f"nothing of it was taken: {problem}"])
        return True

    async def _finish(self, name: str, taken: list[Taken]) -> None:
        refused = [one for one in taken if not one.answer.is_good]
        if not refused:
            await self._moved(name, DONE, [])
            self.taken += 1
            self._equal.worked()
            log.info("event=file_taken source={source} file={file} messages={messages}", event="file_taken",
                     source=self.name, file=shown(name), messages=len(taken))  # fmt: skip
            return
        lines = [
            f"{len(refused)} of {len(taken)} messages were not accepted",
            _RECOGNISED,
            "",
        ]
        unforeseen = [one.answer.text for one in refused if one.answer.text.startswith(_UNEXPECTED)]
        if unforeseen:
            self._equal.failed(unforeseen[0])
        else:
            self._equal.worked()
        for one in refused:
            lines.append(f"message {one.number}, MSH-10 {one.answer.control_id}: {one.answer.code} {one.answer.text}")
        await self._moved(name, FAILED, lines)

    async def _moved(self, name: str, to: str, report: list[str]) -> None:
        if report:
            log.warn("event=file_failed source={source} file={file}: {reason}", event="file_failed", source=self.name,
                     file=shown(name), reason=report[0])  # fmt: skip
        await self._run_in_thread(lambda: self._move(name, to, report))
        if report:
            self.failed, self.last_error = self.failed + 1, report[0]

    def _move(self, name: str, to: str, report: list[str]) -> None:
        """The report first: a file in `failed` always has one."""
        target = self._folder / to
        target.mkdir(exist_ok=True)
        kept = name
        if (target / name).exists():
            kept = _named(name, f".{self._now().strftime('%Y%m%dT%H%M%S%f')}")
        if report:
            head = f"{shown(name)}, source {self.name}, {self._now().isoformat(timespec='seconds')}"
            text = "\n".join([head, *report, ""]).encode("utf-8", "backslashreplace")
            (target / _named(kept, _REPORT)).write_bytes(text)
        (self._folder / name).rename(target / kept)


async def _awaited(receiving: Awaitable[bytes | None]) -> bytes | Exception | None:
    """The acknowledgement of one message, or what failed with it: the others are received all the same."""
    try:
        return await receiving
    except StoreUnreachable:
        raise
    except Exception as error:
        log.failure("event=message_failed", event="message_failed")
        return error


def _answer(acknowledgement: bytes | Exception | None) -> AckAnswer:
    if isinstance(acknowledgement, Exception):
        return AckAnswer("", "", reason_of(acknowledgement))
    (answer,) = answers_of(acknowledgement or b"") or [_NO_MESSAGE]
    return answer


def shown(name: str) -> str:
    """The name of a file as text: bytes that are no UTF-8 as `\\udcff`."""
    return name.encode("utf-8", "backslashreplace").decode()


def _named(name: str, suffix: str) -> str:
    """A name with a suffix, within what a file system takes."""
    return os.fsdecode(os.fsencode(name)[: _LONGEST_NAME - len(suffix)] + suffix.encode())


def _why(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) else reason_of(error)


def _read(file: BinaryIO) -> bytes:
    if os.fstat(file.fileno()).st_size > MOST_BYTES:
        raise Problem(Category.TOO_LARGE, f"the file has more than {MOST_BYTES} bytes")
    return file.read()


def _head(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read(MOST_BYTES)
