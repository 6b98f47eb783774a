"""A message that uses up the budget of its map fails permanently; the converter goes on with the next patient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.mapping.library.maps import Library
from ipf.pipeline.convert.convert import Converter
from ipf.ports import Claimed, Mapped, Status
from ipf.rest.write.unit import Unit, UnitResult
from tests.mapping.runtime.test_budget import chain
from tests.pipeline.convert import test_convert as stage

HEAD = """
/// url = "urn:site:map:ADT_A01"
/// types = "ADT_A01"
group ADT_A01(source src : ADT_A01, target bundle : Bundle) {
  src.PID as pid -> bundle.entry as e, e.resource = create('Patient') as patient then {
    pid.PID_3 as cx -> patient.identifier as id then { cx.CX_1 as v -> id.value = v; };
    pid.PID_2 as cx then g0(pid, patient) "worst";
  };
}
"""
MAPS = HEAD + chain(27, 3, "p.PID_5 as v -> t.language = v;")


class LibraryMapper:
    """The mapping service of a converter process."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def has_map(self, message_type: str) -> bool:
        """See `ports.Mapper`."""
        return self.library.has_map(message_type)

    async def transform(self, message: Claimed) -> Mapped:
        """See `ports.Mapper`."""
        return self.library.transform(message)


def message(number: int, pid: str) -> Claimed:
    """A claimed ADT^A01."""
    head = f"MSH|^~\\&|APP|FAC|RCV|RF|20260101120000||ADT^A01^ADT_A01|C{number}|P|2.5.1"
    return replace(stage.message(number), raw="\r".join((head, pid)).encode())


class BudgetTests(TestCase):
    async def submit(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        """The FHIR store."""
        self.submitted += units
        return [UnitResult() for _ in units]

    async def nothing(self) -> None:
        """No pause."""

    async def test_the_next_patient_is_converted(self) -> None:
        self.submitted: list[Unit] = []
        folder = Path(self.mktemp())
        (folder / "messages").mkdir(parents=True)
        (folder / "messages" / "ADT_A01.fml").write_text(MAPS, encoding="utf-8")
        inbox = stage.ScriptedInbox([message(1, "PID|1|X|P1"), message(2, "PID|1||P2")])
        metrics = stage.RecordingMetrics()
        converter = Converter(
            inbox,  # type: ignore[arg-type]
            LibraryMapper(Library.load(folder, compiled=False)),
            self.submit,
            worker="w",
            backoff=stage.BACKOFF,
            passthrough_types=[],
            clock=lambda: stage.NOW,
            notifier=metrics,  # type: ignore[arg-type]
            metrics=metrics,
            pause=self.nothing,
            wait=self.nothing,
        )
        await converter.step()
        ends = {end.id: end for end in inbox.settled}
        self.assertEqual((ends[1].status, ends[1].permanent), (Status.FAILED, True))
        self.assertRegex(
            str(ends[1].error), r"failed: g\d+ \(urn:site:map:ADT_A01, line \d+\): the budget of \d+ steps"
        )
        self.assertIs(ends[2].status, Status.DELIVERED)
        self.assertEqual([one.correlation_id for one in self.submitted], [message(2, "").correlation_id])
        self.assertEqual([one.lower() for one in metrics.permanent], ["costly"])
