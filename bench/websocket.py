"""Websockets: 1,000 clients bound at once, memory of one, and latency of a notification to all."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.notify import patient, percentile
from bench.receive import service
from bench.report import line
from bench.senders import run as run_load
from tests.service_process import ServiceProcess, memory_mib
from tests.traffic.subscribers import Client, activated, register_websocket

CLIENTS = 1000
SUBSCRIPTIONS = 10


def websocket(folder: Path) -> None:
    """1,000 clients bound at once: memory of each, and latency from a change to the ping at every client."""
    with service(folder, IPF_WORKER_PROCESSES="0", IPF_LOG_LEVEL="WARN") as one:
        run_load(_clients(one))


async def _clients(one: ServiceProcess) -> None:
    ids = [register_websocket(one) for _ in range(SUBSCRIPTIONS)]
    await activated(one, ids)
    warm = await Client.connect(one.http_port)
    warm.send(f"bind {ids[0]}")
    await warm.receive()
    await _waits(one, [warm], 1)
    before, began = memory_mib(one.pid), time.perf_counter()
    clients = [await Client.connect(one.http_port) for _ in range(CLIENTS)]
    for number, client in enumerate(clients):
        client.send(f"bind {ids[number % SUBSCRIPTIONS]}")
    answers = [await client.receive() for client in clients]
    seconds = time.perf_counter() - began
    assert all(text.startswith("bound ") for text in answers)
    each = (memory_mib(one.pid) - before) * 1024 / CLIENTS
    line(
        f"{CLIENTS:,} clients bound to {SUBSCRIPTIONS} subscriptions in",
        f"{seconds:.1f} s",
        "target: all of them at once",
    )
    line("memory of a client", f"{each:.1f} KiB")
    waits = await _waits(one, clients, 20)
    figures = f"p50 {percentile(waits, 0.5):.1f} p99 {percentile(waits, 0.99):.1f} ms"
    line(f"change sent to ping and content at all {CLIENTS:,}", figures)
    for client in [warm, *clients]:
        client.close()


async def _waits(one: ServiceProcess, clients: list[Client], changes: int) -> list[float]:
    waits: list[float] = []

    async def both(client: Client, sent_at: float) -> None:
        ping, content = await client.receive(), await client.receive()
        assert ping.startswith("ping ") and content.startswith("{")
        waits.append(time.perf_counter() - sent_at)

    for number in range(changes):
        receiving = [asyncio.ensure_future(both(client, time.perf_counter())) for client in clients]
        id = f"w{len(clients)}-{number}"
        status, answer = await asyncio.to_thread(
            one.request, "PUT", f"/fhir/Patient/{id}", patient(number) | {"id": id}
        )
        assert status == 201, answer
        await asyncio.gather(*receiving)
    return waits
