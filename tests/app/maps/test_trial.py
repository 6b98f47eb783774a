"""A trial of a map runs in a process of its own, which ends at its limits; more than two at once are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from ipf.app.maps.trial import TrialProcesses
from ipf.app.runtime.process import run_in_thread
from ipf.errors import Category, Problem
from ipf.mapping.library.trials import request_of
from ipf.ports import Json
from tests.flows.test_mapping import MAP, maps_folder
from tests.mapping.library.test_maps import claimed
from tests.mapping.runtime.test_budget import chain

RAW = b"MSH|^~\\&|APP|F|||2026||ADT^A01^ADT_A01|M1|P|2.5\rPID|1||P1|||||F|||||555\r"
LIMITED = "import ipf.app.maps.trial as trial; trial.PROCESSOR_SECONDS = {seconds}; trial.MEMORY = {memory}; "
SPINNING = "trial.run_trial = lambda *given: [None for _ in iter(int, 1)]; trial.main()"
GREEDY = "trial.run_trial = lambda *given: bytearray(1 << 40); trial.main()"


class TrialTests(TestCase):
    def setUp(self) -> None:
        self.folder = maps_folder(Path(self.mktemp()))

    def trials(self, *program: str, most: int = 2) -> TrialProcesses:
        """Trials on the maps of a folder; `program` starts another child."""
        given: dict[str, Sequence[str]] = {"program": program} if program else {}
        return TrialProcesses(reactor, self.folder, lambda: (), run_in_thread, most=most, **given)  # type: ignore[arg-type]

    async def refusal(self, trials: TrialProcesses, request: Json) -> Problem:
        """The Problem of a request."""
        try:
            await trials(request)
        except Problem as problem:
            return problem
        raise self.failureException("the trial was not refused")

    async def test_a_map_is_tried_and_compared(self) -> None:
        other = MAP.replace("patient.gender", "patient.language")
        made = await self.trials()(request_of(None, [claimed(RAW)]))
        self.assertIsNone(made["mistake"])
        self.assertEqual(made["result"]["entry"][0]["resource"]["gender"], "female")
        self.assertTrue(made["steps"])
        compared = await self.trials()(request_of(other, [claimed(RAW)], compares=True))
        self.assertEqual((compared["same"], len(compared["differing"])), (0, 1))

    async def test_the_worst_map_names_its_budget(self) -> None:
        """27 groups that call the next one three times: a trial ends with the rule that used up the budget."""
        groups = chain(27, 3, "p.PID_5 as v -> t.language = v;")
        map_of = MAP.partition("group ")[0]
        text = f"{map_of}group main(source src : ADT_A01, target tgt : Bundle) {{ src.PID as p then {{ "
        text += "src -> tgt.entry as e, e.resource = create('Patient') as t then g0(p, t) 'go'; }; }\n" + groups
        made = await self.trials()(request_of(text, [claimed(RAW)]))
        self.assertIn("budget of", made["mistake"]["message"])
        self.assertRegex(made["mistake"]["message"], r"^g\d+.*line \d+")
        compared = await self.trials()(request_of(text, [claimed(RAW)], compares=True))
        self.assertIn("budget of", compared["differing"][0]["after"]["mistake"]["message"])

    async def test_a_process_ends_at_its_processor_time(self) -> None:
        limited = LIMITED.format(seconds=2, memory=1 << 30) + SPINNING
        problem = await self.refusal(self.trials("-c", limited), request_of(None, [claimed(RAW)]))
        self.assertIs(problem.category, Category.COSTLY)
        self.assertIn("processor time", problem.text)

    async def test_a_process_ends_at_its_memory(self) -> None:
        limited = LIMITED.format(seconds=30, memory=1 << 30) + GREEDY
        problem = await self.refusal(self.trials("-c", limited), request_of(None, [claimed(RAW)]))
        self.assertIs(problem.category, Category.COSTLY)
        self.assertIn("memory", problem.text)

    async def test_more_than_two_are_refused(self) -> None:
        """The third one is refused at once, and the reactor goes on; the next one after these runs."""
        trials = self.trials()
        running: list[Deferred[Any]] = [Deferred.fromCoroutine(trials(request_of(None, [claimed(RAW)]))) for _ in "ab"]
        problem = await self.refusal(trials, request_of(None, [claimed(RAW)]))
        self.assertIs(problem.category, Category.UNAVAILABLE)
        self.assertEqual(problem.rendering.http_status, 503)
        await gatherResults(running)
        self.assertIsNone((await trials(request_of(None, [claimed(RAW)])))["mistake"])
