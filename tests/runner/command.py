"""The command line of `bin/test`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from tests.runner import groups, leftovers, plan, pool, shared
from tests.runner.plan import Module, Unit
from tests.runner.report import Recorder, failures, totals, where_time_went

DEFAULT_MINUTES, ALL_MINUTES = 8.0, 40.0
"""The budgets of `bin/test` and of `bin/test --all`, on two quiet cores."""
_OVER = 1.2
_SLOW_FACTOR = "5"


class Shard(click.ParamType):
    """`2/6`: the second of six parts."""

    name = "part"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        """The two numbers."""
        found = re.fullmatch(r"(\d+)/(\d+)", value) if isinstance(value, str) else None
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            self.fail(f"{value!r} is no part such as 2/6", param, ctx)
        return int(found[1]), int(found[2])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="The groups too: browsers, brokers, failover, kills ...")
@click.option("--group", "only", multiple=True, type=click.Choice(sorted(groups.GROUPS)), help="This group alone.")
@click.option("--shard", type=Shard(), help="With --all that part of all; else bin/test and that part of the groups.")
@click.option("--install", is_flag=True, help="Install Debian packages that the groups need first (as root).")
@click.option("--repeat", type=click.IntRange(min=1), default=1, help="Run everything so many times.")
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes; one more than cores by default.")
@click.option("--results", type=click.Path(path_type=Path), help="A file that gets a JSON line for each test.")
@click.option("--keep-times", is_flag=True, help="Keep the seconds of each module for later runs.")
def main(
    names: tuple[str, ...], everything: bool, only: tuple[str, ...], shard: tuple[int, int] | None, install: bool,
    repeat: int, jobs: int | None, results: Path | None, keep_times: bool,
) -> None:  # fmt: skip
    """Run tests: all that need Python alone, or those of the modules, packages or tests that are NAMED.

    The last line is `N passed, N failed, N skipped`; the exit status is 1 when a test failed or none ran.
    """
    known = plan.modules()
    chosen = [one for one in known if one.group in only] if only else choose(known, names, everything, shard)
    wanted = sorted({module.group for module in chosen if module.group})
    if install:
        groups.install(wanted)
    lacking = [group for group in wanted if groups.missing(group)]
    units = _units([module for module in chosen if module.group not in lacking], everything, shard)
    began = time.monotonic()
    ended, seconds = _run(units * repeat, jobs or (os.cpu_count() or 1) + 1, results)
    minutes = (time.monotonic() - began) / 60
    if keep_times:
        plan.keep({name: value / repeat for name, value in seconds.items()})
    notes = [*over_budget(minutes, [*names, *only], everything, shard), *_not_run(lacking)]
    print(*where_time_went(ended), "", *failures(ended), f"{minutes:.1f} minutes", *notes, totals(ended), sep="\n")
    bad = any(one.outcome == "failed" for one in ended) or not ended or (install and lacking)
    raise SystemExit(1 if bad else 0)


def choose(
    known: Sequence[Module], names: Iterable[str], everything: bool, shard: tuple[int, int] | None
) -> list[Module]:
    """The modules that the arguments select.  UsageError for an unknown name."""
    found = []
    for name in names:
        inside = plan.named(known, name)
        if not inside:
            raise click.UsageError(f"there is no test {name}")
        found += inside
    return found or [one for one in known if everything or shard or not one.group]


def _units(chosen: Sequence[Module], everything: bool, shard: tuple[int, int] | None) -> list[Unit]:
    seconds = plan.measured()
    if shard is None:
        return plan.units(chosen, seconds)
    if everything:
        return plan.shard(plan.units(chosen, seconds), *shard)
    rest = plan.shard(plan.units((one for one in chosen if one.group), seconds), *shard)
    always = plan.units((one for one in chosen if not one.group), seconds)
    return sorted([*always, *rest], key=lambda unit: -unit.seconds)


def _run(units: list[Unit], jobs: int, results: Path | None) -> tuple[list[pool.Ended], dict[str, float]]:
    os.environ.setdefault("IPF_TEST_SLOW", _SLOW_FACTOR if _is_busy() else "1")
    with leftovers.folder_of_a_run(shared.scratch()) as folder:
        os.environ[shared.VARIABLE] = os.environ["TMPDIR"] = str(folder)
        with (results or folder / "results.jsonl").open("w") as lines:
            recorder = Recorder(lines)
            pool.run(units, jobs, folder, recorder)
    return recorder.ended, recorder.seconds()


def _is_busy() -> bool:
    """Whether the machine has more work than cores, in the last minute or now: the average follows slowly."""
    last_minute, _, _, now, _ = Path("/proc/loadavg").read_text().split()
    running = int(now.partition("/")[0]) - 1
    return "CI" in os.environ or max(float(last_minute), running) > (os.cpu_count() or 1)


def over_budget(minutes: float, names: Sequence[str], everything: bool, shard: tuple[int, int] | None) -> list[str]:
    """A line when a whole run took a fifth longer than its budget."""
    if names or shard:
        return []
    budget = ALL_MINUTES if everything else DEFAULT_MINUTES
    if minutes <= budget * _OVER:
        return []
    return [f"over budget: {minutes:.1f} minutes instead of {budget:g} (load average {os.getloadavg()[0]:.1f})"]


def _not_run(lacking: Sequence[str]) -> list[str]:
    lines = [f"not run: {line}" for line in groups.unavailable(lacking)]
    if not (plan.ROOT.parent / "shared" / "reference").is_dir():
        lines.append("not run: tests on published data, because ../shared/reference is absent")
    return lines
