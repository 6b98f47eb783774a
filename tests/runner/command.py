"""The command line of `bin/test`."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import click

from tests.runner import plan, pool, shared
from tests.runner.report import Recorder, failures, where_time_went


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All groups, too: browsers, brokers, failover, kills ...")
@click.option("--jobs", type=int, default=0, help="Worker processes.")
@click.option("--results", type=click.Path(path_type=Path), default=None, help="A file for a JSON line a test.")
def main(names: tuple[str, ...], everything: bool, jobs: int, results: Path | None) -> int:
    """Run tests: of the modules, packages or tests that are named, else all that need Python alone."""
    known = plan.modules()
    chosen = [one for name in names for one in plan.below(known, name)] or [
        one for one in known if everything or not one.group
    ]
    units = plan.units(chosen)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ipf-tests-") as folder:
        path = results or Path(folder) / "results.jsonl"
        os.environ[shared.VARIABLE] = folder
        with path.open("w") as lines:
            recorder = Recorder(lines)
            pool.run(units, jobs or max(3, min(5, (os.cpu_count() or 1) + 1)), Path(folder), recorder)
    ended = recorder.ended
    print(*where_time_went(ended), "", *failures(ended), sep="\n")
    print(f"{time.monotonic() - began:.0f} s")
    counts = {outcome: sum(one.outcome == outcome for one in ended) for outcome in ("passed", "failed", "skipped")}
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    raise SystemExit(1 if counts["failed"] or not ended else 0)
