"""Rows of patients under a legal hold, which retention keeps: of both databases.

Held are the versions of the Patient, and of the resources of his compartment that refer to him now; the messages that
wrote them or have one of his numbers in PID-3 or MRG-1; rejects that contain one; and events about these resources.

Source: https://hl7.org/fhir/R4/compartmentdefinition-patient.html
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ipf.fhir.model.json import loads
from ipf.fhir.search.parameters.compartments import compartments
from ipf.ports import MessageFilter
from ipf.store.inbox.text_search import TAIL, search
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import array, bigints, joined, literal
from ipf.store.postgres.tenant_scope import Executor

_MOST = 1_000_000  # messages of one number
_PATIENTS = """
SELECT r.rid, r.partition_id, p.name, r.id, v.body FROM resources r JOIN partitions p ON p.id = r.partition_id
JOIN resource_versions v ON v.rid = r.rid WHERE r.resource_type = 'Patient' AND ({held})"""
_REFERRING = r"""
SELECT DISTINCT rid FROM index_text WHERE partition_id = {partition} AND val = {reference} AND param = ANY (ARRAY(
    SELECT id FROM search_parameters WHERE resource_type || '.' || code = ANY (string_to_array({codes}, E'\x1f'))))"""
_NOT_INDEXED = """SELECT id FROM message_bodies WHERE id > (SELECT indexed_to FROM message_index_state)
    AND tenant = {tenant} AND position({value}::bytea IN raw_message) > 0"""


class HeldRows(NamedTuple):
    """SQL of arrays of bigint: ids of messages and rejects, rids of resources."""

    messages: str = "'{}'::bigint[]"
    rejects: str = "'{}'::bigint[]"
    resources: str = "'{}'::bigint[]"


async def held_rows(inbox: Database, fhir: Executor, holds: Collection[str]) -> HeldRows:
    """The rows of these patients: Patient/1 in every tenant, or tenant:Patient/1."""
    if not holds:
        return HeldRows()
    rids: set[int] = set()
    values: set[tuple[str, str]] = set()
    for rid, partition, tenant, id_, body in await fhir.many(_PATIENTS.format(held=_any_of(holds))):
        if rid not in rids:
            rids |= {int(row[0]) for row in await fhir.many(_referring(partition, id_))}
        rids.add(int(rid))
        values |= {(tenant, value) for value in _numbers(body)}
    return HeldRows(
        bigints(await _messages(inbox, fhir, rids, values)), bigints(await _rejects(inbox, values)), bigints(rids)
    )  # fmt: skip


async def _messages(inbox: Database, fhir: Executor, rids: set[int], values: set[tuple[str, str]]) -> set[int]:
    """Messages that wrote these resources, or have one of these numbers."""
    rows = await fhir.many(
        f"SELECT DISTINCT correlation_id::text FROM resource_versions WHERE rid = ANY ({bigints(rids)})"
    )
    wrote = f"{literal(array(row[0] for row in rows))}::uuid[]"
    rows = await inbox.many(f"SELECT id FROM message_bodies WHERE correlation_id = ANY ({wrote})")
    found = {int(row[0]) for row in rows}
    for tenant, value in sorted(values):
        matches = await search(inbox, MessageFilter(tenant=tenant, patient=value))
        found |= set(await matches.ids(inbox, _MOST) or ())
        if matches.lag > TAIL:  # the index is being filled again: more than the search looks at is not in it
            rows = await inbox.many(_NOT_INDEXED.format(tenant=literal(tenant), value=literal(value.encode())))
            found |= {int(row[0]) for row in rows}
    return found


async def _rejects(inbox: Database, values: set[tuple[str, str]]) -> set[int]:
    found: set[int] = set()
    for tenant, value in sorted(values):
        rows = await inbox.many(
            f"SELECT id FROM rejects WHERE tenant = {literal(tenant)}"
            f" AND position({literal(value.encode())}::bytea IN raw) > 0"
        )
        found |= {int(row[0]) for row in rows}
    return found


def _any_of(holds: Collection[str]) -> str:
    """SQL: the Patient is one of these."""
    parts = []
    for hold in holds:
        tenant, _, reference = hold.rpartition(":")
        id_ = literal(reference.partition("/")[2])
        parts.append(f"r.id = {id_}" + (f" AND p.name = {literal(tenant)}" if tenant else ""))
    return " OR ".join(f"({part})" for part in parts)


def _referring(partition: int, id_: str) -> str:
    codes = [f"{name}.{code}" for name, found in compartments()["Patient"].items() for code in found]
    return _REFERRING.format(
        partition=int(partition), reference=literal(f"Patient/{id_}"), codes=literal(joined(codes))
    )


def _numbers(body: str) -> set[str]:
    """The values of the identifiers of a version; a deletion has no body."""
    found = (loads(body) if body else {}).get("identifier", ())
    return {one["value"].strip() for one in found if isinstance(one.get("value"), str) and one["value"].strip()}
