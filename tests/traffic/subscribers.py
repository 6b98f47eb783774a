"""Subscribers of a running service: subscriptions at it, and a minimal websocket client."""

from __future__ import annotations

import asyncio
import base64
import os
from typing import Any

from tests.service_process import ServiceProcess
from tests.waiting import block_until

CRITERIA = "Encounter?status=in-progress"


async def subscribe(one: ServiceProcess, url: str, criteria: str = CRITERIA) -> None:
    """Register a subscription at the sink and wait until it is active."""
    id = _create(one, criteria, {"type": "rest-hook", "endpoint": url, "payload": "application/fhir+json"})
    await activated(one, [id])


def register_websocket(one: ServiceProcess) -> str:
    """Create a websocket subscription to every Patient, with full resources; its id."""
    return _create(one, "Patient?", {"type": "websocket", "payload": "application/fhir+json"})


async def activated(one: ServiceProcess, ids: list[str]) -> None:
    """Wait until the subscriptions are active; the event loop runs meanwhile."""

    def active(id: str) -> bool:
        return bool(one.get(f"/fhir/Subscription/{id}")[1]["status"] == "active")

    for id in ids:
        await asyncio.to_thread(block_until, lambda id=id: active(id), f"the subscription {id} is active")


def _create(one: ServiceProcess, criteria: str, channel: dict[str, Any]) -> str:
    resource = {
        "resourceType": "Subscription",
        "status": "requested",
        "reason": "test",
        "criteria": criteria,
        "channel": channel,
    }
    status, created = one.request("POST", "/fhir/Subscription", resource)
    assert status == 201, created
    return str(created["id"])


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
