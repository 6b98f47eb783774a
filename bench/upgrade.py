"""Upgrades under load: what senders notice when processes are replaced, against the same load without an upgrade.

Eight senders, four of which connect anew for each message.  PostgreSQL is that of a process of the role `mapping`,
which stays.  A wait is the time from the first attempt at a message to its `AA`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from bench.receive import postgres_socket, service
from bench.report import line
from bench.senders import run as run_load
from tests.activated import Activated, listening
from tests.faults.callers import Callers
from tests.faults.feed import Feed
from tests.service_process import ServiceProcess
from tests.waiting import free_port

SECONDS = 10.0  # of each part without an upgrade, and at least after each one
PAUSE = 0.02
REST = "convert,deliver,poll,admin,fhir"

Step = Callable[[], Awaitable[object]]


def upgrade(folder: Path) -> None:
    """Refused connections and longest waits: the rest restarted, a receiver replaced, the only receiver restarted."""
    with service(folder, IPF_ROLES="mapping") as keeper:
        url = f"host={postgres_socket(keeper)} port=5432 user=ipf dbname="
        run_load(_upgrade(folder, {"IPF_DB_URL": url + "ipf", "IPF_FHIR_DB_URL": url + "fhir"}))


async def _upgrade(folder: Path, urls: dict[str, str]) -> None:
    port = free_port()
    with listening(port) as held:
        receivers = [
            Activated(folder / name, {"mllp": held}, IPF_ROLES="receive",
                      IPF_MLLP_LISTEN="lab=systemd:domain=INET:name=mllp", **urls)
            for name in ("first", "second")
        ]  # fmt: skip
        rest = ServiceProcess(folder / "rest", IPF_ROLES=REST, **urls)
        try:
            for one in (receivers[0], rest):
                await _start(one)
            await _parts(port, receivers[0], receivers[1], rest)
        finally:
            for one in (*receivers, rest):
                if one.ended() is None:
                    await asyncio.to_thread(one.stop)


async def _parts(port: int, first: Activated, second: Activated, rest: ServiceProcess) -> None:
    async def nothing() -> None:
        await asyncio.sleep(SECONDS)

    async def restart_rest() -> None:
        await asyncio.to_thread(rest.stop)
        await _start(rest)

    async def replace() -> None:
        await _start(second)
        await asyncio.to_thread(first.stop)

    async def restart_receiver() -> None:
        await asyncio.to_thread(second.stop)
        await _start(second)

    steps: tuple[tuple[str, Step], ...] = (
        ("no upgrade (the limit)", nothing),
        ("all but the receiver restarted", restart_rest),
        ("receiver replaced by one on the same socket", replace),
        ("the only receiver restarted on its socket", restart_receiver),
    )
    for number, (name, step) in enumerate(steps, 1):
        await _measured(name, number, port, step)


async def _measured(name: str, number: int, port: int, step: Step) -> None:
    """The load from a little before until a little after a step."""
    callers = Callers(port, rest=partial(asyncio.sleep, PAUSE), prefix=f"U{number}C")
    feed = Feed(port, senders=4, rest=partial(asyncio.sleep, PAUSE), first_sender=10 * number)
    callers.start()
    feed.start()
    await asyncio.sleep(SECONDS / 2)
    began = time.monotonic()
    await step()
    took = time.monotonic() - began
    await asyncio.sleep(SECONDS / 2)
    await callers.stop()
    await feed.stop()
    lost = callers.repeated + feed.codes["lost"]
    line(name, f"{len(callers.accepted) + len(feed.accepted)} messages, step {took:.1f} s, {callers.refused} refused")
    line("  sent again, since the connection closed", f"{lost}")
    line("  wait of new connections: median, longest", _waits(callers.waits))
    line("  wait of kept connections: median, longest", _waits(_of(feed)))


def _of(feed: Feed) -> list[float]:
    """Seconds from the first attempt at each message to its `AA`; the attempts of a sender follow one another."""
    waits, began = [], {}
    for one in feed.answers:
        first = began.setdefault(one.sender, one.began)
        if one.code == "AA":
            waits.append(one.ended - first)
            del began[one.sender]
    return waits


def _waits(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"{ordered[len(ordered) // 2] * 1000:.0f} ms, {ordered[-1] * 1000:.0f} ms"


async def _start(one: ServiceProcess) -> None:
    one.start()
    await asyncio.to_thread(one.wait_ready)
