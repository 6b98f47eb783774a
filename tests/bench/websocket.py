"""Websockets: 1,000 clients bound at once, memory of one, and latency of a notification to all."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from pathlib import Path

from tests.bench.notify import activated, patient, percentile
from tests.bench.receive import service
from tests.bench.report import line
from tests.bench.senders import run as run_load
from tests.service_process import ServiceProcess, memory_mib

CLIENTS = 1000
SUBSCRIPTIONS = 10


class Client:
    """A minimal websocket client: sends and receives text messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> Client:
        """Connect and complete the handshake."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(
            f"GET /websocket HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in head, head
        return cls(reader, writer)

    def send(self, text: str) -> None:
        """Send a short text message, masked with zeros."""
        payload = text.encode()
        assert len(payload) < 126
        self._writer.write(bytes((0x81, 0x80 | len(payload), 0, 0, 0, 0)) + payload)

    async def receive(self) -> str:
        """Receive the next text message; answers the server's pings."""
        while True:
            first, length = await self._reader.readexactly(2)
            if length == 126:
                length = int.from_bytes(await self._reader.readexactly(2), "big")
            elif length == 127:
                length = int.from_bytes(await self._reader.readexactly(8), "big")
            payload = await self._reader.readexactly(length)
            if first & 0x0F == 1:
                return payload.decode()
            if first & 0x0F == 9:
                self._writer.write(bytes((0x8A, 0x80 | length, 0, 0, 0, 0)) + payload)

    def close(self) -> None:
        """Disconnect."""
        self._writer.close()


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


def register_websocket(one: ServiceProcess) -> str:
    """Create a websocket subscription to every Patient, with full resources; its id."""
    resource = {
        "resourceType": "Subscription",
        "status": "requested",
        "reason": "bench",
        "criteria": "Patient?",
        "channel": {"type": "websocket", "payload": "application/fhir+json"},
    }
    status, created = one.request("POST", "/fhir/Subscription", resource)
    assert status == 201, created
    return str(created["id"])


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
