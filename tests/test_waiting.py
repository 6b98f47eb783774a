"""Tests wait for conditions: no module but `tests/waiting.py` sleeps, and what belongs to `bin/test --all` says so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests.runner import plan
from tests.runner.groups import GROUPS

TESTS = Path(__file__).parent
_WORDS = re.compile("sleep|deferLater|pause|timeout = ")
PAUSES = TESTS / "waiting.py"
SLEEPS = frozenset({"sleep", "deferLater", "pause"})
MOST_SECONDS = 60.0
"""A `timeout` of `bin/test`'s tests is at most this (LIMIT on a quiet machine)."""


@cache
def modules() -> dict[str, ast.Module]:
    """The modules under `tests` that may pause or set a limit, by path."""
    texts = {path: path.read_text() for path in sorted(TESTS.rglob("*.py")) if path != PAUSES}
    return {str(path.relative_to(TESTS)): ast.parse(text) for path, text in texts.items() if _WORDS.search(text)}


def sleeps(tree: ast.AST) -> list[int]:
    """Lines that wait for a time: calls of sleep or deferLater, but for one turn of the reactor, and their names."""
    return sorted({node.lineno for node in ast.walk(tree) if _sleeps(node)})


def _sleeps(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = _name(node.func)
        if name == "getattr":
            return any(isinstance(one, ast.Constant) and one.value in SLEEPS for one in node.args)
        return name in SLEEPS and _is_timed(node, 1 if name == "deferLater" else 0)
    if isinstance(node, ast.ImportFrom) and node.module in ("time", "asyncio"):
        return any(one.name == "sleep" for one in node.names)
    return False


def _name(function: ast.expr) -> str:
    """`sleep` of `time.sleep`, `asyncio.sleep` and `sleep`; what a module defines by such a name is no sleep."""
    if isinstance(function, ast.Attribute):
        owner = function.value.id if isinstance(function.value, ast.Name) else ""
        is_sleep = function.attr != "pause" or owner == "postgres"
        return function.attr if is_sleep and owner != "self" else ""
    return function.id if isinstance(function, ast.Name) and function.id != "pause" else ""


def _is_timed(call: ast.Call, place: int) -> bool:
    """Whether the argument at `place`, seconds, is not 0 (one turn) and the clock is the machine's, not the test's."""
    if place and "clock" in ast.unparse(call.args[0]).lower():
        return False
    seconds = call.args[place] if len(call.args) > place else None
    return not (isinstance(seconds, ast.Constant) and seconds.value == 0)


def timeouts(tree: ast.AST) -> Iterator[ast.expr]:
    """What test classes, or their methods, set as `timeout`."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(getattr(target, "id", getattr(target, "attr", "")) == "timeout" for target in targets):
            assert isinstance(node, ast.Assign)
            yield node.value


class WaitingTests(TestCase):
    """By syntax tree."""

    maxDiff = None

    def test_no_test_sleeps(self) -> None:
        """A wait for a time is too short on one machine and too long on all others."""
        found = {path: lines for path, tree in modules().items() if (lines := sleeps(tree))}
        self.assertEqual(found, {})

    def test_groups_are_known(self) -> None:
        self.assertEqual({one.name: one.group for one in plan.modules() if one.group and one.group not in GROUPS}, {})

    def test_only_groups_have_long_limits(self) -> None:
        """What needs minutes does not belong to `bin/test`."""
        short = {f"{one.name.removeprefix('tests.').replace('.', '/')}.py" for one in plan.modules() if not one.group}
        found = {
            path: ast.unparse(seconds)
            for path, tree in modules().items()
            if path in short
            for seconds in timeouts(tree)
            if ast.unparse(seconds) not in ("PATIENCE", "LIMIT")
            and not (isinstance(seconds, ast.Constant) and seconds.value <= MOST_SECONDS)
        }
        self.assertEqual(found, {})

    def test_a_family_is_in_one_group(self) -> None:
        """Its modules run in one process, so they run together or not at all."""
        groups: dict[str, set[str]] = {}
        for one in plan.modules():
            groups.setdefault(one.family or one.name, set()).add(one.group)
        self.assertEqual({family: names for family, names in groups.items() if len(names) > 1}, {})

    def test_what_counts_as_sleep(self) -> None:
        """The check sees each way to sleep, and lets turns of the reactor and methods of other names pass."""
        bad = (
            "time.sleep(1)", "await asyncio.sleep(0.1)", "await deferLater(reactor, 0.1)", "await postgres.pause(1)",
            "await task.deferLater(reactor, seconds, f)", "getattr(time, 'sleep')(1)", "from time import sleep",
            "nap(sleep(3))",
        )  # fmt: skip
        good = (
            "await asyncio.sleep(0)", "await deferLater(reactor, 0, f)", "producer.pause()", "self.sleep(3)",
            "deferLater(self.clock, 5)",
        )  # fmt: skip
        self.assertEqual([one for one in bad if not sleeps(ast.parse(one, mode="exec"))], [])
        self.assertEqual([one for one in good if sleeps(ast.parse(one))], [])
