"""Converter processes: start, log lines, restart, hang and stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from ipf.app.maps.check import encoded
from ipf.app.stages.processes import START_TIMEOUT, Child, ConverterProcesses
from ipf.errors import Category, Problem
from ipf.telemetry.heartbeat import BEAT_FD


class FakeTransport:
    """The transport of a child process."""

    def __init__(self) -> None:
        self.closed: list[int] = []
        self.signals: list[str] = []

    def closeChildFD(self, number: int) -> None:
        self.closed.append(number)

    def signalProcess(self, name: str) -> None:
        self.signals.append(name)


class FakeReactor(Clock):
    """A clock that records spawned processes and starts none."""

    def __init__(self) -> None:
        super().__init__()
        self.spawned: list[tuple[Child, Mapping[str, str], FakeTransport]] = []

    def spawnProcess(self, child: Any, executable: str, args: list[str], env: Any, childFDs: Any) -> FakeTransport:
        transport = FakeTransport()
        child.transport = transport
        self.spawned.append((child, env, transport))
        return transport


class ProcessesTests(TestCase):
    def setUp(self) -> None:
        self.reactor = FakeReactor()
        self.lines: list[bytes] = []
        self.lost_names: list[str] = []
        self.processes = ConverterProcesses(
            self.reactor,  # type: ignore[arg-type]
            2,
            lambda name: {"IPF_CONVERTER_NAME": name},
            write_lines=self.lines.append,
            lost=self.lost,
            worker_name="host:1",
        )
        self.processes.start()

    async def lost(self, name: str) -> None:
        self.lost_names.append(name)

    def child(self, number: int) -> Child:
        return self.reactor.spawned[number][0]

    def test_each_has_its_own_name(self) -> None:
        names = [env["IPF_CONVERTER_NAME"] for _, env, _ in self.reactor.spawned]
        self.assertEqual(names, ["host:1:1", "host:1:2"])
        self.assertEqual((self.processes.running, self.processes.wanted), (2, 2))

    def test_started_when_each_has_begun_or_ended(self) -> None:
        started = Deferred.fromCoroutine(self.processes.started())
        self.child(0).childDataReceived(BEAT_FD, b".")
        self.assertTrue(self.processes.are_starting)
        self.assertNoResult(started)
        self.child(1).processEnded(Failure(ProcessTerminated(1)))
        self.assertFalse(self.processes.are_starting)
        self.successResultOf(started)
        self.reactor.advance(START_TIMEOUT)

    def test_a_child_refuses_the_maps_of_the_start(self) -> None:
        """The start ends with its Problem; the child is not started again."""
        started = Deferred.fromCoroutine(self.processes.started())
        line = encoded(Problem(Category.MAPPING, "no such element", "ADT_A01.fml:8:3"))
        self.child(0).childDataReceived(BEAT_FD, line[:10])
        self.child(0).childDataReceived(BEAT_FD, line[10:])
        self.child(0).processEnded(Failure(ProcessDone(0)))
        problem = self.failureResultOf(started, Problem).value
        self.assertEqual((problem.category, str(problem)), (Category.MAPPING, "ADT_A01.fml:8:3: no such element"))
        self.reactor.advance(5)
        self.assertEqual(len(self.reactor.spawned), 2)
        Deferred.fromCoroutine(self.processes.stop(10))
        self.child(1).processEnded(Failure(ProcessDone(0)))

    def test_a_child_that_never_begins_does_not_hold_the_start_for_ever(self) -> None:
        started = Deferred.fromCoroutine(self.processes.started())
        self.reactor.advance(START_TIMEOUT - 1)
        self.assertNoResult(started)
        self.reactor.advance(1)
        self.successResultOf(started)
        self.assertFalse(self.processes.are_starting)

    def test_lines_are_passed_on_whole(self) -> None:
        self.child(0).childDataReceived(1, b'{"a":1}\n{"b"')
        self.child(1).childDataReceived(1, b'{"c":3}\n')
        self.child(0).childDataReceived(1, b":2}\n")
        self.assertEqual(self.lines, [b'{"a":1}\n', b'{"c":3}\n', b'{"b":2}\n'])

    def test_an_endless_line_is_cut(self) -> None:
        for _ in range(5):
            self.child(0).childDataReceived(2, b"x" * 100_000)
        self.assertEqual(len(self.lines), 1)

    def test_an_ended_process_is_recovered_and_restarted(self) -> None:
        self.child(0).childDataReceived(1, b"last words")
        self.child(0).processEnded(Failure(ProcessTerminated(signal=9)))
        self.assertEqual(self.lost_names, ["host:1:1"])
        self.assertEqual(self.lines, [b"last words\n"])
        self.assertEqual(self.processes.running, 1)
        self.reactor.advance(1)
        self.assertEqual((self.processes.running, len(self.reactor.spawned)), (2, 3))
        self.assertEqual(self.reactor.spawned[2][1]["IPF_CONVERTER_NAME"], "host:1:1")

    def test_a_hanging_process_is_killed(self) -> None:
        """It sent heartbeats and then none; a process that has sent none yet is still loading."""
        for _ in range(4):
            self.child(0).childDataReceived(BEAT_FD, b".")
            self.reactor.pump([5.0] * 3)
        self.assertEqual(self.lines, [], "a heartbeat is not a log line")
        self.reactor.pump([5.0] * 9)
        self.assertEqual([transport.signals for _, _, transport in self.reactor.spawned], [[], []])
        self.reactor.pump([5.0])
        self.assertEqual([transport.signals for _, _, transport in self.reactor.spawned], [["KILL"], []])

    def test_stop_closes_standard_input_and_waits(self) -> None:
        waiting = Deferred.fromCoroutine(self.processes.stop(5))
        self.assertEqual([transport.closed for _, _, transport in self.reactor.spawned], [[0], [0]])
        for number in (0, 1):
            self.child(number).processEnded(Failure(ProcessDone(0)))
        self.assertTrue(waiting.called)
        self.reactor.advance(10)
        self.assertEqual(len(self.reactor.spawned), 2)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_a_process_that_does_not_end_is_killed(self) -> None:
        Deferred.fromCoroutine(self.processes.stop(5))
        self.reactor.advance(5)
        self.assertEqual([transport.signals for _, _, transport in self.reactor.spawned], [["KILL"], ["KILL"]])
