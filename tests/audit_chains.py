"""Chains of the audit trail for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ipf.ports.audit.chain import Chain, Head, Link, Waiting
from ipf.security.audit.chain import SigningKey, new_private_key, next_links
from ipf.store.audit.chain import PostgresAuditChain
from ipf.store.postgres.database import Database

KEY, OTHER_KEY = SigningKey(new_private_key()), SigningKey(new_private_key())
NOON = datetime(2026, 2, 1, 12, tzinfo=UTC)


async def chain_some(database: Database, limit: int) -> int:
    """Chain up to so many records that wait; their number."""

    def make(
        installation: str, waiting: Sequence[Waiting], tails: Mapping[Chain, Link], position: int
    ) -> tuple[list[Link], list[Head]]:
        return next_links(installation, waiting, tails, position, "2026-02-01")[0], []

    return await PostgresAuditChain(database).take_up(limit, make)


def record(number: int, **changes: Any) -> dict[str, Any]:
    """The row of a record, as the database gives it."""
    return {
        "partition_id": 1, "surface": "fhir", "recorded_at": f"2026-02-01T08:00:00.{number:03}+00:00",
        "id": f"0190f7a4-2b6e-7000-8000-{number:012x}", "interaction": "read", "action": "R", "outcome": 0,
        "status": 200, "agent": "client-\u00e4", "agent_name": "Lab", "issuer": "https://idp.example",
        "user_reference": "", "address": "192.0.2.1", "duration_ms": 12, "correlation_id": f"c-{number}",
        "target": None, "entities": ["Patient/1/_history/2"], "patients": ["Patient/1"],
        "origin": '{"agent_system": null, "source_system": "REG", "details": []}', "keys": ["e:Patient/1"],
        "purpose": ["urn:x|TREAT"], "request_id": "",
    } | changes  # fmt: skip
