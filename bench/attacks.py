"""All attacks at once beside an MLLP feed, on a started service: acknowledgements, losses, memory, stalls.

`IPF_ATTACK_SECONDS`: how long, 300 by default.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from bench.report import line
from tests.faults.attacked import Attacked, Report

SECONDS = float(os.environ.get("IPF_ATTACK_SECONDS", "300"))


def attacks(folder: Path) -> None:
    """All attacks at once beside an MLLP feed: acknowledgements, losses, memory, stalls."""
    attacked = Attacked()
    try:
        attacked.start()
        report = asyncio.run(attacked.run(SECONDS))
    finally:
        attacked.stop()
    _show(report)


def _show(report: Report) -> None:
    for name, answers in report.attacks.items():
        shown = ", ".join(f"{count} x {answer}" for answer, count in sorted(answers.items()) if answer)
        line(name, f"{sum(answers.values()):,}", shown)
    codes = ", ".join(f"{count} {code}" for code, count in report.codes.items())
    line("acknowledgements", f"{len(report.answers):,}", codes)
    figures = [report.percentile(share) * 1000 for share in (0.5, 0.99, 0.999, 1.0)]
    line("p50, p99, p99.9, longest", ", ".join(f"{one:.0f}" for one in figures) + " ms", "target: 1,000 ms")
    line("longest time without a processor for this process", f"{report.lag * 1000:.0f} ms")
    line("acknowledged and not delivered", str(len(report.lost)), "target: 0")
    for name, mib in report.memory.items():
        line(f"memory of the {name}, at most", f"{mib:.0f} MiB")
    line("turns of the reactor of 0.1 s and more", f"{report.stalls.get('count', 0):.0f}",
         f"{report.stalls.get('sum', 0):.1f} s in all; health {report.health}")  # fmt: skip
    for text, count in report.stalled_by.most_common(12):
        line(f"  {count} times", "", text)
