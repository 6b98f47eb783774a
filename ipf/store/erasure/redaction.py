"""Resources that stay lose their references to erased ones, in all versions, within the transaction of the erasure.

A version keeps its number and its time.  The index follows the current version.
"""

from __future__ import annotations

from collections.abc import Iterator

from ipf.fhir.index.erased_texts import ErasedTexts
from ipf.fhir.index.extract import extract
from ipf.fhir.model.erased_references import ErasedReferences
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Change, Json, Version, Writes
from ipf.ports.fhir.erasure import ErasedResources
from ipf.store.postgres.database import Row, Session
from ipf.store.postgres.quoting import literal
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.resources.writing.statements import index_calls, written_parameters, written_units

_VERSIONS = """
SELECT r.resource_type, r.id, v.last_updated, v.body, r.version_id = v.version_id AND NOT r.deleted, v.version_id
FROM resource_versions v JOIN resources r ON r.rid = v.rid WHERE v.rid = {rid} AND v.body <> '' ORDER BY v.version_id"""
_UPDATE = "UPDATE resource_versions SET body = {body} WHERE rid = {rid} AND version_id = {version}"
SEARCHING = frozenset(("Subscription", "SubscriptionTopic", "Basic"))  # their criteria may name him by a number
_NIL = "00000000-0000-0000-0000-000000000000"


async def redact(session: Session, erased: ErasedResources, base_url: str, symbols: SymbolTable) -> None:
    """Rewrite the versions of `erased.redacted`, one resource at a time."""
    references = ErasedReferences(erased.references, base_url, erased.identifiers)
    names = ErasedTexts(erased.texts)
    for rid in sorted(erased.redacted):
        changes = []
        for row in await session.many(_VERSIONS.format(rid=rid)):
            before = loads(row[3])
            after = references.removed(before)
            if row[0] in SEARCHING:
                after = names.removed(after)
            if after == before:
                continue
            body = dumps(after).decode()
            await session.many(_UPDATE.format(body=literal(body), rid=rid, version=int(row[5])))
            if row[4]:
                changes.append(_change(erased.tenant, rid, row, before, after))
        for call in await _index_calls(Writes(changes), symbols):
            await session.many(call)


def _change(tenant: str, rid: int, row: Row, before: Json, after: Json) -> Change:
    resource_type, id_, last_updated, *_ = row
    version = Version(rid, resource_type, id_, 2, last_updated, dumps(after))  # 2: it is not new
    return Change(tenant, version, after, extract(before), extract(after), _NIL, "update")


async def _index_calls(writes: Writes, symbols: SymbolTable) -> Iterator[str]:
    """The statements that bring the index to the redacted version."""
    if not writes.changes:
        return iter(())
    await symbols.ensure({one.tenant for one in writes.changes}, written_parameters(writes))
    await symbols.ensure_units(written_units(writes))
    return index_calls(writes, symbols)
