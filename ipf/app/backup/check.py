"""Checks two restored databases against the manifest of their backup, and against each other.

The findings are sentences; none means: each message that was acknowledged before the point is there with its content,
each delivered one has its effects, every table has the rows that it had, and nobody has changed the audit trail.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from ipf.app.backup.manifest import KINDS, Manifest
from ipf.app.runtime.databases import DatabaseUrls
from ipf.app.verify_audit import report
from ipf.ports import Request
from ipf.security.audit.chain import key_id, read_public_pem
from ipf.security.audit.proof import Verifier
from ipf.store.audit.chain import PostgresAuditChain
from ipf.store.backup.content import (
    Uncovered,
    delivered_without_effect,
    differing_blocks,
    message_blocks,
    table_counts,
    torn_messages,
)
from ipf.store.postgres.connection import Connection
from ipf.store.postgres.database import Database
from ipf.store.postgres.probe import watched_connection
from ipf.wire.admin.audit.export import export

_LONGEST_SECONDS = 7 * 86_400.0
_SHOWN = 5


@dataclass
class Checked:
    """`findings`: what is wrong; `notes`: what was checked, and what could not be."""

    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def check_databases(
    manifest: Manifest, urls: DatabaseUrls, reactor: Any, trusted: Mapping[str, str] | None = None
) -> Checked:
    """Read both databases.  `trusted`: public keys of the audit trail by key id; None: those of the manifest."""
    checked = Checked()
    options = {"reactor": reactor, "statement_seconds": _LONGEST_SECONDS}
    async with watched_connection(urls.inbox, **options) as inbox, watched_connection(urls.fhir, **options) as fhir:
        await _check_tables(manifest, dict(zip(KINDS, (inbox, fhir), strict=True)), checked)
        await _check_messages(manifest, inbox, checked)
        await _check_effects(manifest, inbox, fhir, checked)
    keys = trusted if trusted is not None else {key_id(key): key for key in map(read_public_pem, manifest.audit_keys)}
    await _check_audit(urls.fhir, keys, reactor, checked)
    return checked


async def _check_tables(manifest: Manifest, connections: Mapping[str, Connection], checked: Checked) -> None:
    rows = 0
    for kind, connection in connections.items():
        wanted, found = manifest.databases[kind].tables, await table_counts(connection)
        rows += sum(found.values())
        for name in sorted({*wanted, *found}):
            if wanted.get(name) != found.get(name):
                counts = f"{found.get(name, 'no table')} rows, not {wanted.get(name, 'none')}"
                checked.findings.append(f"table {name} of the {kind} database has {counts}")
    checked.notes.append(f"{rows} rows in {sum(len(one.tables) for one in manifest.databases.values())} tables")


async def _check_messages(manifest: Manifest, inbox: Connection, checked: Checked) -> None:
    checked.findings += differing_blocks(manifest.messages, await message_blocks(inbox))
    without_state, without_body = await torn_messages(inbox)
    if without_state or without_body:
        text = f"{without_state} messages have no state, {without_body} states no message"
        checked.findings.append(text)
    checked.notes.append(f"{manifest.count} messages with their content, the last one {manifest.highest_id}")


async def _check_effects(manifest: Manifest, inbox: Connection, fhir: Connection, checked: Checked) -> None:
    if manifest.remote_fhir:
        checked.notes.append("not checked: effects of delivered messages, IPF_FHIR_URL names another server")
        return
    total, uncovered = await delivered_without_effect(inbox, fhir)
    wrong = [one for one in uncovered if not _is_expired(manifest, one)]
    if wrong:
        some = ", ".join(str(one.id) for one in wrong[:_SHOWN])
        checked.findings.append(f"{len(wrong)} delivered messages have no effect in the FHIR database: {some} ...")
    checked.notes.append(f"{total} conversions with their receipts" + _removing(len(uncovered) - len(wrong)))


def _is_expired(manifest: Manifest, uncovered: Uncovered) -> bool:
    """Whether retention was about to remove it: the receipt goes first."""
    if not manifest.retention_days:
        return False
    point = datetime.fromisoformat(manifest.at).astimezone(UTC)
    return uncovered.delivered_at < point - timedelta(days=manifest.retention_days)


def _removing(count: int) -> str:
    return f"; retention was removing {count} of them" if count else ""


async def _check_audit(url: str, keys: Mapping[str, str], reactor: Any, checked: Checked) -> None:
    database = Database(url, reactor=reactor, size=1, statement_seconds=_LONGEST_SECONDS)
    await database.start()
    try:
        verifier = Verifier(keys)
        async for lines in _export(PostgresAuditChain(database)):
            verifier.read(lines)
    finally:
        await database.close()
    proof = verifier.finish()
    if proof.count:
        checked.findings += ["the audit trail was changed", *report(proof)]
    links = sum(chain.links for chain in proof.chains.values())
    checked.notes.append(f"{links} records of the audit trail in {len(proof.chains)} chains")


async def _export(store: PostgresAuditChain) -> AsyncIterator[list[bytes]]:
    """The lines of `ipfctl audit export`, a page at a time."""
    page: str | None = ""
    while page is not None:
        query = (("page", page),) if page else ()
        answer = await export(store, lambda: datetime.now(UTC), Request("GET", (), query, {}, b"", "", ""))
        lines = answer.body.splitlines()
        last = orjson.loads(lines[-1])
        page = last["next"] if last["type"] == "page" else None
        yield lines if page is None else lines[:-1]
