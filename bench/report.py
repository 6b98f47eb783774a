"""Output of `bin/bench`: lines with name, figure and reference on standard output, and all of them as one JSON file.

The file has `host`, `cores`, `python`, `version` and `commit` of ipf, `began_at`, `load` (averages at the start and at
the end), and for each bench its rows: `what`, `figure`, `reference`, as printed.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ipf import __version__

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "dist/bench"


class Report:
    """The rows of one run."""

    def __init__(self) -> None:
        self._began = datetime.now(UTC)
        self._load = os.getloadavg()
        self.benches: dict[str, list[dict[str, str]]] = {}

    def write(self, folder: Path = FOLDER) -> Path:
        """Write the file; its name is the time at which the run began."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self._began:%Y-%m-%dT%H%M%SZ}.json"
        path.write_text(json.dumps(self.content(), indent=1, ensure_ascii=False) + "\n")
        return path

    def content(self) -> dict[str, Any]:
        """What is written."""
        return {
            "host": platform.node(),
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
            "version": __version__,
            "commit": _commit(),
            "began_at": self._began.isoformat(timespec="seconds"),
            "load": {"begin": self._load, "end": os.getloadavg()},
            "benches": self.benches,
        }


_run = Report()


def current() -> Report:
    """The report of this process."""
    return _run


def heading(name: str, doc: str) -> None:
    """Name and purpose of a bench; the following lines are its rows."""
    print(f"\n== {name}: {doc.splitlines()[0]}", flush=True)
    _run.benches[name] = []


def line(what: str, figure: str, reference: str = "") -> None:
    """One result; `reference`: the limit or target to compare it with."""
    print(f"  {what:<52} {figure:>22}   {reference}", flush=True)
    rows = next(reversed(_run.benches.values()), None)
    if rows is not None:
        rows.append({"what": what, "figure": figure, "reference": reference})


def _commit() -> str:
    """The commit of the checkout, with `+` where it has changes; "" outside of a checkout."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=12"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip()
