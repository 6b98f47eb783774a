"""The work of a message with many groups grows with their number: from the map to the write, first and told again.

Lines of Python are counted, and steps of the map: nothing here depends on time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from twisted.internet.defer import ensureDeferred
from twisted.trial.unittest import TestCase

from ipf.hl7.message import Message
from tests.corpus import samples
from tests.flows.omitted_fields import Feed, Lines

MOST = 4.5
"""Of four times as many groups; four is what cannot be avoided."""
FEW, MANY = 8, 32
HEAD = "MSH|^~\\&|LAB|H|||20260101||{}|1|P|2.5.1\rPID|1||P1^^^H^MR||A^B||19800101|M\r"
ORC, OBR = "ORC|{1}|P{0}|F{0}\r", "OBR|{0}|P{0}|F{0}|C{0}^Test {0}^L|||20260101\r"
RESULT = "OBX|1|NM|X{0}^Result {0}^L||1|mg|||||F\r"
ORGANISM = "OBX|{0}|CE|600-7^Bacteria^LN|{0}|B{0}^Organism {0}^L||||||F\r"
SUSCEPTIBILITY = f"OBR|1|P{{0}}|F{{0}}|S^Susc^L{'|' * 22}600-7&Bacteria&LN^{{0}}|||P^F\r" + RESULT
SAME = "ORC|NW|P1|F1\rOBR|{0}|P1|F1|C{0}^Test {0}^L|||20260101\r"
ORDERS = ORC.replace("{1}", "NW") + OBR
SHAPES: dict[str, tuple[str, str, str]] = {
    "panels": ("ORU^R01^ORU_R01", "", ORC.replace("{1}", "RE") + OBR + RESULT),
    "panels of one number": ("ORU^R01^ORU_R01", "", SAME.replace("NW", "RE") + RESULT),
    "panels of one organism": ("ORU^R01^ORU_R01", "OBR|1|P|F|C^Culture^L\r" + ORGANISM.format(1),
                               SUSCEPTIBILITY.replace("LN^{0}", "LN^1")),
    "results of one number": ("ORU^R01^ORU_R01", "OBR|1|P|F|C^T^L|||2026\r", RESULT.strip() + "||||||||||NUM1\r"),
    "laboratory orders": ("OML^O21^OML_O21", "", ORDERS + "SPM|1|S{0}||BLD\r"),
    "specimens of one number": ("OML^O21^OML_O21", ORDERS.format(1), "SPM|{0}|S1||B{0}^Kind {0}^L\r"),
    "orders": ("ORM^O01^ORM_O01", "", ORDERS),
    "orders of one number": ("ORM^O01^ORM_O01", "", SAME),
    "replaced orders": ("ORM^O01^ORM_O01", "", "ORC|RP|Q{0}\r" + ORC.replace("{1}", "RO") + OBR),
    "vaccinations": ("VXU^V04^VXU_V04", "", "ORC|RE|P{0}|F{0}\rRXA|0|1|2026||V{0}^Vaccine {0}^CVX|1|mL\r" + RESULT),
    "vaccinations of one number": ("VXU^V04^VXU_V04", "", "ORC|RE|P1|F1\rRXA|0|1|2026||V{0}^Name {0}^CVX|1|mL\r"),
    "charges": ("DFT^P03^DFT_P03", "", "FT1|{0}|T{0}||20260101||CG|C{0}^Charge {0}^L\r"),
    "pharmacy orders": ("RDE^O11^RDE_O11", "", ORC.replace("{1}", "NW") + "RXE|1^BID|D{0}^Drug {0}^L|1||mg\rRXR|PO\r"),
    "appointments": ("SIU^S12^SIU_S12", "SCH|A1|B1||||R|||30|min|||||||||||||||Booked\r",
                     "RGS|{0}\rAIS|1||S{0}^Service {0}^L|20260101\rAIP|1||D{0}^Doc\r"),
    "orders of one control": ("OML^O21^OML_O21", "ORC|NW|P1|F1\r", OBR),
    "values of a result": ("ORU^R01^ORU_R01", "OBR|1|P|F|C^T^L\rOBX|1|CWE|X^X^L||0^None^L", "~V{0}^Value {0}^L"),
    "problems": ("PPR^PC1^PPR_PC1", "", "PRB|AD|20260101|C{0}^Problem {0}^L|I{0}\r" + RESULT),
    "insurances": ("ADT^A08^ADT_A01", "PV1|1|I\r", "IN1|{0}|PL{0}^Plan {0}|CO{0}|Company {0}\r"),
    "next of kin": ("ADT^A08^ADT_A01", "PV1|1|I\r", f"NK1|{{0}}|A{{0}}^B|SPO{'|' * 30}N{{0}}^^^H\r"),
}  # fmt: skip
"""Type, what stands once, and what stands many times."""
CHOSEN = ("panels of one organism", "orders of one number")
PLAIN = (
    "panels",
    "panels of one organism",
    "laboratory orders",
    "orders",
    "vaccinations",
    "charges",
    "pharmacy orders",
)


def message(shape: str, count: int) -> Lines:
    """A message with so many groups."""
    kind, once, group = SHAPES[shape]
    text = HEAD.format(kind) + once + "".join(group.format(number) for number in range(1, count + 1))
    return [line.split("|") for line in text.strip().split("\r")]


def lines_of(work: Callable[[], object]) -> int:
    """The lines that are executed, without those of the store in memory."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if event == "call" and _is_of_fake(frame):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def _is_of_fake(frame: FrameType | None) -> bool:
    """Whether the store in memory called it: it looks at every resource, which a database does not."""
    for _ in range(12):
        name = "" if frame is None else frame.f_code.co_filename
        if frame is None or "/ipf/rest/write/" in name or "/tests/fakes/" in name:
            return "/tests/fakes/" in name
        frame = frame.f_back
    return False


def tell(feed: Feed, told: Lines) -> None:
    """Convert and store a message."""
    failures: list[Any] = []
    ensureDeferred(feed.tell(told)).addErrback(failures.append)
    for failure in failures:
        failure.raiseException()


def steps(shape: str, count: int) -> int:
    """The steps of the map for so many groups."""
    parsed = Message.parse("\r".join("|".join(line) for line in message(shape, count)).encode())
    _, run = samples.library().program_for(parsed.message_type).run(parsed, b"key")
    return run.limit - run.steps_left


def works(shape: str, counts: tuple[int, int]) -> Iterator[tuple[str, list[int]]]:
    """The lines of few and of many groups: first, and told again."""
    tell(Feed(), message(shape, 2))  # what is computed once
    for what in ("first", "told again"):
        found = []
        for count in counts:
            feed, told = Feed(), message(shape, count)
            if what != "first":
                tell(feed, told)
            found.append(lines_of(lambda feed=feed, told=told: tell(feed, told)))  # type: ignore[misc]
        yield what, found


class GrowthTests(TestCase):
    def test_from_the_map_to_the_write(self) -> None:
        """Those with the most to compare; test_growth_campaign has all."""
        for shape in CHOSEN:
            for what, (few, many) in works(shape, (FEW, MANY)):
                self.assertLess(many, MOST * few, (shape, what))

    def test_steps_of_the_map(self) -> None:
        """Of a hundred groups and of four hundred, within the budget."""
        for shape in PLAIN:
            self.assertLess(steps(shape, 400), MOST * steps(shape, 100), shape)
