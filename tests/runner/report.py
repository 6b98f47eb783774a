"""What a run prints: each failure when it happens, and at the end where the time went."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from tests.runner.pool import Ended

_SLOWEST = 20


class Recorder:
    """Keeps all results, writes each to a file (a JSON line), prints failures at once and modules that are done."""

    def __init__(self, lines: IO[str]) -> None:
        self.ended: list[Ended] = []
        self._lines = lines

    def __call__(self, ended: Ended) -> None:
        """Take one result."""
        self.ended.append(ended)
        fields = {name: getattr(ended, name) for name in Ended.__slots__}
        self._lines.write(json.dumps(fields) + "\n")
        self._lines.flush()
        if ended.outcome == "failed":
            print(f"\n{'=' * 79}\nFAILED {ended.id}\n{ended.detail}\n{'=' * 79}", flush=True)

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
    lines += [
        f"{sum(one.seconds for one in tests):9.1f} {len(tests):6} {sum(one.starts for one in tests):7}  {name}"
        for name, tests in rows
    ]
    slowest = sorted((one for tests in packages.values() for one in tests), key=lambda one: -one.seconds)[:_SLOWEST]
    lines += ["", f"{'seconds':>9} {'starts':>7}  the {_SLOWEST} slowest tests"]
    return lines + [f"{one.seconds:9.1f} {one.starts:7}  {one.id}" for one in slowest]


def failures(ended: Iterable[Ended]) -> list[str]:
    """A line for each test that failed."""
    return [f"failed: {one.id}: {_reason(one.detail)}" for one in ended if one.outcome == "failed"]


def _reason(detail: str) -> str:
    """The last line of a traceback that is not a place in the code."""
    lines = [line.strip() for line in detail.splitlines() if line.strip() and not line.startswith((" ", "\t", "---"))]
    return (lines[-1] if lines else "")[:300]
