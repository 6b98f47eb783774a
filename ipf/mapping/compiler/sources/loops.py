"""The loops of rules: a source becomes a loop that runs the body of the rule for each item.

Nearly all rules of a message map read one numbered child of an HL7 v2 node, which is usually absent.  These loops are
written as statements, so an absent field costs one list access; other sources use `Fetch` closures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ipf.errors import Category, Problem
from ipf.hl7.message import number_of
from ipf.mapping.compiler.conversions import as_text
from ipf.mapping.compiler.emit import FRAME, Block, Writer, var
from ipf.mapping.compiler.sources.paths import LIST_MODES, Fetch, Items, Walk
from ipf.mapping.compiler.v2 import reader, text_reader
from ipf.mapping.runtime.budget import FEW
from ipf.mapping.runtime.run import Frame
from ipf.mapping.runtime.trace import RulePosition

Test = Callable[[Frame, Any], bool | None]
TestSource = Callable[[Writer, str], str]
"""Writes a condition on an item, given as an expression."""


def spend(steps: int, at: RulePosition, *, is_leaf: bool = False) -> Block:
    """Count steps of the run (`runtime.budget`); it ends where they are used up.

    `at`: the rule that takes them.  `is_leaf`: only count, in a loop or group that neither loops in a loop nor calls
    others, and so takes no more steps than there are items; the next group or loop ends the run.
    """

    def write(writer: Writer) -> None:
        writer.place(at)
        writer.line(f"r.steps_left -= {steps}")
        if not is_leaf:
            writer.line(f"if r.steps_left < 0: r.exhausted({writer.constant(at)})")

    return write


def each(fetch: Fetch, slot: int, body: Block, cost: Block) -> Block:
    """`body` for every fetched item.  `cost`: counts the steps of each."""

    def write(writer: Writer) -> None:
        with writer.inside(f"for {var(slot)} in {writer.constant(fetch)}({FRAME})"):
            cost(writer)
            writer.body(body)

    return write


def when(context: int, test: TestSource, body: Block) -> Block:
    """`src where (...)`: once, or not at all."""

    def write(writer: Writer) -> None:
        with writer.inside(f"if {test(writer, f'{var(context)}')}"):
            writer.body(body)

    return write


@dataclass(frozen=True, slots=True)
class Children:
    """Numbered or named children of the HL7 v2 node in slot `context`, one after another in slot `slot`.

    `only_text`: their texts, not the nodes.  `test`: only those that pass it.  `only_first`: only the first of these.
    """

    context: int
    name: str
    slot: int
    only_text: bool = False
    test: TestSource | None = None
    only_first: bool = False


def each_child(found: Children, body: Block, cost: Block) -> Block:
    """`body` for every one of these children.  `cost`: counts the steps of each, before its test."""
    number, context, slot, test = number_of(found.name), found.context, found.slot, found.test
    read = text_reader(found.name) if found.only_text else reader(found.name)

    def write_body(writer: Writer) -> None:
        writer.body(body)
        if found.only_first:
            writer.line("break")

    def write_loop(writer: Writer, children: str) -> None:
        with writer.inside(f"for {var(slot)} in {children}"):
            cost(writer)
            if test is None:
                write_body(writer)
            else:
                with writer.inside(f"if {test(writer, f'{var(slot)}')}"):
                    write_body(writer)

    def write(writer: Writer) -> None:
        if number:
            there, raw = writer.has_child(f"{var(context)}", number)
            with writer.inside(f"if {there}"):
                write_loop(writer, f"{writer.constant(read)}({var(context)}, {raw})")
        else:
            write_loop(writer, f"{var(context)}.children({found.name!r})")

    return write


def items_of(walks: Sequence[Walk], slot: int) -> Fetch:
    """Items reached from the variable in `slot`, step by step."""
    first, *further = walks

    def fetch(frame: Frame) -> Items:
        items = _counted(frame, first(frame[slot]))
        for walk in further:
            items = _counted(frame, [inner for outer in items for inner in walk(outer)])
        return items

    return fetch


def _counted(frame: Frame, items: Items) -> Items:
    """The items; many of them count as steps, also where no rule runs for them."""
    if len(items) > FEW:
        frame[0].spend(len(items))
    return items


def traced_items_of(steps: Sequence[tuple[str, Walk]], slot: int) -> Fetch:
    """The same for a trace: every item on the way gets its path."""

    def fetch(frame: Frame) -> Items:
        trace = frame[0].trace
        items: list[Any] = [frame[slot]]
        for name, walk in steps:
            below: list[Any] = []
            for owner in items:
                found = walk(owner)
                trace.found(owner, name, found)
                below += found
            _counted(frame, below)
            items = below
        return items

    return fetch


def each_traced(fetch: Fetch, slot: int, path: int, body: Block, cost: Block) -> Block:
    """`each` for a trace, with the path of the item in slot `path`."""

    def write(writer: Writer) -> None:
        with writer.inside(f"for {var(slot)} in {writer.constant(fetch)}({FRAME})"):
            cost(writer)
            writer.line(f"{var(path)} = r.trace.path({var(slot)})")
            writer.body(body)

    return write


def context_as_items(slot: int) -> Fetch:
    """The variable itself, as the only item."""
    return lambda frame: (frame[slot],)


def with_default(fetch: Fetch, value: Any) -> Fetch:
    """`default 'x'`"""
    default = (value,)
    return lambda frame: fetch(frame) or default


def with_computed_default(fetch: Fetch, first: Callable[[Frame, Any], Any]) -> Fetch:
    """`default (expression)`"""

    def run(frame: Frame) -> Items:
        found = fetch(frame)
        if found:
            return found
        value = first(frame, None)
        return () if value is None else (value,)

    return run


def with_cardinality(fetch: Fetch, least: int, most: int | None, place: str) -> Fetch:
    """`min..max`, `only_one`"""
    wanted = f"{least}..{'*' if most is None else most}"

    def run(frame: Frame) -> Items:
        found = fetch(frame)
        if len(found) < least or (most is not None and len(found) > most):
            raise Problem(Category.MAPPING, f"found {len(found)} times where {wanted} is asked for", place)
        return found

    return run


def filtered(fetch: Fetch, test: Test) -> Fetch:
    """`where`"""
    return lambda frame: [item for item in fetch(frame) if test(frame, item)]


def checked(fetch: Fetch, test: Test, place: str) -> Fetch:
    """`check`"""

    def run(frame: Frame) -> Items:
        found = fetch(frame)
        if not all(test(frame, item) for item in found):
            raise Problem(Category.MAPPING, "the check of this rule failed", place)
        return found

    return run


def logged(fetch: Fetch, text: Callable[[Frame, Any], Any]) -> Fetch:
    """`log`"""

    def run(frame: Frame) -> Items:
        found = fetch(frame)
        frame[0].logs += [said for item in found if (said := as_text(text(frame, item)))]
        return found

    return run


def picked(fetch: Fetch, mode: str) -> Fetch:
    """`first`, `last`, `not_first`, `not_last`"""
    pick = LIST_MODES[mode]
    return lambda frame: pick(fetch(frame))
