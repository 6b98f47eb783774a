"""`bin/simulate`: repeats one run with its trace, or runs many."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
def collected(world: World) -> Iterator[None]:
    """Collect what crashed processes were doing when the run ends: collected later, it would run in another run."""
    if not _frozen:
        gc.freeze()  # so that a collection looks at the objects of the run only
        _frozen.append(True)
    gc.disable()
    try:
        yield
    finally:
        hook, sys.unraisablehook = sys.unraisablehook, lambda what: None
        try:
            with failures_in_log([]):
                world.abandon()
                gc.collect()
        finally:
            sys.unraisablehook = hook
            gc.enable()


_frozen: list[bool] = []


def simulate(seed: int, steps: int = MOST_STEPS) -> World:
    """Run a seed.  Broken, with the run as `world`: a rule does not hold."""
    world = World(seed)
    try:
        with collected(world), failures_in_log(world.rules.broken):
            world.run(steps)
    except Broken as broken:
        raise Broken(broken.text, world) from None
    return world


def first_failure(seeds: range | list[int]) -> tuple[int, str] | None:
    """The first seed that breaks a rule, and the rule."""
    for seed in seeds:
        try:
            simulate(seed)
        except Broken as broken:
            return seed, broken.text
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
    text = ""
    try:
        world = simulate(seed, steps)
    except Broken as broken:
        world, text = broken.world, broken.text
    for moment, *what in world.rules.trace:
        click.echo(f"{moment:10.3f} {' '.join(str(one) for one in what)}")
    click.echo(f"seed {seed}: {text or 'all rules hold'}, {len(world.rules.trace)} lines, digest {world.digest}")
    return bool(text)


def _run_many(seeds: range, steps: int) -> int:
    began, failed = time.monotonic(), 0
    for count, seed in enumerate(seeds, 1):
        try:
            simulate(seed, steps)
        except Broken as broken:
            failed += 1
            click.echo(f"seed {seed}: {broken.text[:500]}\n  bin/simulate --seed {seed}")
        if not count % 500:
            click.echo(f"{count} of {len(seeds)} seeds, {failed} failed, {time.monotonic() - began:.0f} s", err=True)
    click.echo(f"{len(seeds)} seeds, {failed} failed, {time.monotonic() - began:.1f} s")
    return bool(failed)


if __name__ == "__main__":
    main(prog_name="bin/simulate")
