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
from ipf.mapping.library.installation import Installation
from ipf.mapping.library.trials import request_of
from ipf.ports import Json
from ipf.rest.operations.mapping_service import mapping_handler
from tests.fakes import MemoryInbox, MemoryUnmappedCodes
from tests.flows.test_mapping import MAP, maps_folder
from tests.mapping.library.test_installation import at_once, load
from tests.mapping.library.test_maps import claimed
from tests.mapping.runtime.test_budget import chain
from tests.pipeline.test_worker import MemoryNotifier
from tests.rest.operations.test_mapping_service import request_of as request_to

RAW = b"MSH|^~\\&|APP|F|||2026||ADT^A01^ADT_A01|M1|P|2.5\rPID|1||P1|||||F|||||555\r"
LIMITED = "import ipf.app.maps.trial as trial; trial.PROCESSOR_SECONDS = {seconds}; trial.MEMORY = {memory}; "
SPINNING = "trial.run_trial = lambda *given: [None for _ in iter(int, 1)]; trial.main()"
GREEDY = "trial.run_trial = lambda *given: bytearray(1 << 40); trial.main()"


def worst() -> str:
    """27 groups that call the next one three times, for each ADT^A01."""
    head = MAP.partition("group ")[0]
    text = f"{head}group main(source src : ADT_A01, target tgt : Bundle) {{ src.PID as p then {{ "
    text += "src -> tgt.entry as e, e.resource = create('Patient') as t then g0(p, t) 'go'; }; }\n"
    return text + chain(27, 3, "p.PID_5 as v -> t.language = v;")


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
        text = worst()
        made = await self.trials()(request_of(text, [claimed(RAW)]))
        self.assertIn("budget of", made["mistake"]["message"])
        self.assertRegex(made["mistake"]["message"], r"^g\d+.*line \d+")
        compared = await self.trials()(request_of(text, [claimed(RAW)], compares=True))
        self.assertIn("budget of", compared["differing"][0]["after"]["mistake"]["message"])

    async def test_transform_with_maps_of_the_request(self) -> None:
        """The same answers as in the service itself; the worst map is refused with the rule that used up the budget."""
        installation = Installation(
            lambda installed, fresh: load(installed, self.folder), MemoryUnmappedCodes(MemoryInbox()), at_once
        )
        await installation.start()
        here = mapping_handler(installation, MemoryNotifier(), at_once)
        apart = mapping_handler(installation, MemoryNotifier(), at_once, apart=self.trials())
        for text, status in (
            (MAP.replace("patient.telecom", "patient.contact as c, c.telecom"), 200),
            (MAP.replace("patient.gender", "patient.sex"), 422),
            (worst(), 400),
        ):
            parts = [{"name": "map", "valueString": text}, {"name": "content", "valueString": RAW.decode()}]
            body = {"resourceType": "Parameters", "parameter": parts}
            asked = request_to("POST", "StructureMap/$transform", body, "application/fhir+json")
            expected, answer = await here(asked), await apart(asked)
            self.assertEqual(answer.status, status, answer.body)
            self.assertEqual((expected.status, expected.body), (answer.status, answer.body))
        self.assertIn(b"budget of", answer.body)
        self.assertIn(b"too-costly", answer.body)

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
