"""What a run prints: each failure when it happens, and at the end where the time went."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import IO

from tests.runner.pool import Ended

_SLOWEST = 20
_RULE = "=" * 79


class Recorder:
    """Keeps all results, writes each to a file (a JSON line), and prints failures at once."""

    def __init__(self, lines: IO[str]) -> None:
        self.ended: list[Ended] = []
        self._lines = lines
        self._module = ""

    def __call__(self, ended: Ended) -> None:
        """Take one result."""
        self.ended.append(ended)
        self._lines.write(json.dumps({name: getattr(ended, name) for name in Ended.__slots__}) + "\n")
        self._lines.flush()
        if ended.outcome == "failed":
            print(f"\n{_RULE}\nFAILED {ended.id}\n{ended.detail}\n{_RULE}", flush=True)
        if ended.outcome == "skipped":
            print(f"skipped {ended.id}: {ended.detail}", flush=True)
        if len(self.ended) % 100 == 0:
            print(f"{len(self.ended)} tests, now {ended.module}", flush=True)

    def seconds(self) -> dict[str, float]:
        """Seconds of each module."""
        sums: dict[str, float] = defaultdict(float)
        for one in self.ended:
            sums[one.module] += one.seconds
        return sums


def where_time_went(ended: Iterable[Ended]) -> list[str]:
    """Seconds, tests and process starts of each package, and the slowest tests."""
    packages: dict[str, list[Ended]] = defaultdict(list)
    for one in ended:
        packages[".".join(one.module.split(".")[:2])].append(one)
    rows = sorted(packages.items(), key=lambda row: -sum(one.seconds for one in row[1]))
    lines = ["", f"{'seconds':>9} {'tests':>6} {'starts':>7}  package"]
    lines += [_row(name, tests) for name, tests in rows]
    every = [one for tests in packages.values() for one in tests]
    lines += [_row("all", every), "", f"{'seconds':>9} {'starts':>7}  the {_SLOWEST} slowest tests"]
    slowest = sorted(every, key=lambda one: -one.seconds)[:_SLOWEST]
    return lines + [f"{one.seconds:9.1f} {one.starts:7}  {one.id}" for one in slowest]


def _row(name: str, tests: list[Ended]) -> str:
    seconds, starts = sum(one.seconds for one in tests), sum(one.starts for one in tests)
    return f"{seconds:9.1f} {len(tests):6} {starts:7}  {name}"


def failures(ended: Iterable[Ended]) -> list[str]:
    """A line for each test that failed, with the reason."""
    return [f"failed: {one.id}: {reason(one.detail)}" for one in ended if one.outcome == "failed"]


def reason(detail: str) -> str:
    """The last line of a traceback that is no place in the code."""
    lines = [line.strip() for line in detail.splitlines() if line.strip() and not line.startswith((" ", "\t", "---"))]
    return (lines[-1] if lines else "")[:300]


def totals(ended: Iterable[Ended]) -> str:
    """The closing line: `N passed, N failed, N skipped`."""
    counts = Counter(one.outcome for one in ended)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
