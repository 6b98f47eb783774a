"""`bin/simulate`: repeats one run with its trace, or runs many."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
from twisted.internet.defer import TimeoutError
from twisted.logger import globalLogPublisher

from ipf.errors import StoreUnreachable
from tests.simulation.rules import Broken
from tests.simulation.world import MOST_STEPS, World


@contextmanager
def failures_in_log(found: list[str]) -> Iterator[None]:
    """Logged tracebacks go to `found`, but for those of an unreachable store; nothing is logged meanwhile."""

    def observe(event: Any) -> None:
        failure = event.get("log_failure")
        if failure is not None and not failure.check(StoreUnreachable, TimeoutError):
            found.append(failure.getTraceback())

    before = globalLogPublisher._observers
    globalLogPublisher._observers = [observe]
    try:
        yield
    finally:
        globalLogPublisher._observers = before


@contextmanager
def collected() -> Iterator[None]:
    """Collect what crashed processes were doing when the run ends: collected later, it would run in another test."""
    if not _frozen:
        gc.freeze()  # so that a collection looks at the objects of the run only
        _frozen.append(True)
    gc.disable()
    hook, sys.unraisablehook = sys.unraisablehook, lambda what: None
    try:
        with failures_in_log([]):
            yield
            while gc.collect():  # what a finalizer fails with is garbage of the next collection
                pass
    finally:
        sys.unraisablehook = hook
        gc.enable()


_frozen: list[bool] = []


@dataclass(frozen=True)
class Run:
    """What is left of a run: its trace, and the text of the rule that did not hold.  Nothing of its world."""

    trace: list[Any]
    digest: str
    broken: str | None


def simulate(seed: int, steps: int = MOST_STEPS) -> Run:
    """Run a seed."""
    with collected():
        return _run(seed, steps)


def _run(seed: int, steps: int) -> Run:
    world, broken = World(seed), None
    try:
        with failures_in_log(world.rules.broken):
            world.run(steps)
    except Broken as error:
        broken = error.text
    return Run(world.rules.trace, world.digest, broken)


def first_failure(seeds: range | list[int]) -> tuple[int, str] | None:
    """The first seed that breaks a rule, and the rule."""
    for seed in seeds:
        broken = simulate(seed).broken
        if broken is not None:
            return seed, broken
    return None


@click.command()
@click.option("--seed", type=int, help="Run this seed and print its trace.")
@click.option("--steps", type=int, default=MOST_STEPS, help="End after so many steps.")
@click.option("--seeds", type=int, help="Run so many seeds.")
@click.option("--from", "first", type=int, default=0, help="The first of them.")
def main(seed: int | None, steps: int, seeds: int | None, first: int) -> None:
    """Simulate the service under a seeded clock."""
    if seed is not None:
        sys.exit(_print_run(seed, steps))
    sys.exit(_run_many(range(first, first + (200 if seeds is None else seeds)), steps))


def _print_run(seed: int, steps: int) -> int:
    run = simulate(seed, steps)
    for moment, *what in run.trace:
        click.echo(f"{moment:10.3f} {' '.join(str(one) for one in what)}")
    click.echo(f"seed {seed}: {run.broken or 'all rules hold'}, {len(run.trace)} lines, digest {run.digest}")
    return run.broken is not None


def _run_many(seeds: range, steps: int) -> int:
    began, failed = time.monotonic(), 0
    for count, seed in enumerate(seeds, 1):
        broken = simulate(seed, steps).broken
        if broken is not None:
            failed += 1
            click.echo(f"seed {seed}: {broken[:500]}\n  bin/simulate --seed {seed}")
        if not count % 500:
            click.echo(f"{count} of {len(seeds)} seeds, {failed} failed, {time.monotonic() - began:.0f} s", err=True)
    click.echo(f"{len(seeds)} seeds, {failed} failed, {time.monotonic() - began:.1f} s")
    return bool(failed)


if __name__ == "__main__":
    main(prog_name="bin/simulate")
