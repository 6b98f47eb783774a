"""What the FHIR database has of a patient, for `resources.py`.

The search reads every version of a tenant in ranges of rids, because a former version may mention what no index knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ipf.fhir.index.erased_texts import free_texts, personal_texts
from ipf.fhir.model.erased_references import identifiers_of_references
from ipf.fhir.model.json import dumps, loads
from ipf.ports.fhir.erasure import Identifier, MentioningResource, WrittenTogether
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import array, bigints, joined, literal

RANGE = 5_000  # rids of one statement, which has a minute
PART = 2_000  # resources of which all versions are read at once
BODIES = 200  # resources of which all versions come as texts
_SAME = ("replaces", "replaced-by")
NEXT = "SELECT max(rid) FROM (SELECT rid FROM resources WHERE {of} AND rid > {after} ORDER BY rid LIMIT {limit}) r"
_MENTIONING = """
SELECT r.rid, r.resource_type || '/' || r.id, r.version_id, r.deleted FROM resources r WHERE {of} AND r.rid IN (
    SELECT n.rid FROM resources n
    WHERE n.rid > {after} AND n.rid <= {until} AND n.resource_type || '/' || n.id = ANY ({wanted})
    UNION ALL
    SELECT v.rid FROM resource_versions v WHERE v.rid > {after} AND v.rid <= {until} {likely} AND {mentions}
    UNION ALL
    SELECT v.rid FROM resource_versions v WHERE v.rid > {after} AND v.rid <= {until} AND {identified})
ORDER BY r.rid"""
_VERSIONS = """
SELECT v.rid, {found}, CASE WHEN r.resource_type = 'Patient' OR strpos(v.body, '"identifier":{{') > 0 THEN v.body END,
    v.version_id = r.version_id
FROM resource_versions v JOIN resources r ON r.rid = v.rid WHERE v.rid = ANY ({rids})"""
# A Basic may be a topic in its R4 form.
_SEARCHING = """
SELECT r.rid, r.resource_type || '/' || r.id, r.version_id, r.deleted, {found}, v.body
FROM resources r JOIN resource_versions v ON v.rid = r.rid
WHERE {of} AND r.resource_type IN ('Subscription', 'SubscriptionTopic', 'Basic') ORDER BY r.rid"""
_TEXTS = """
SELECT v.body FROM resource_versions v JOIN resources r ON r.rid = v.rid WHERE v.rid = ANY ({rids}) AND v.body <> ''
    AND (r.resource_type IN ('Patient', 'RelatedPerson', 'Person') OR strpos(v.body, '"identifier"') > 0)"""
_TOGETHER = """
SELECT v.correlation_id::text, v.rid, r.resource_type || '/' || r.id, {found}
FROM resource_versions v JOIN resources r ON r.rid = v.rid
WHERE {of} AND v.correlation_id = ANY ({ids})"""


def found_in(body: str, base_url: str) -> str:
    """SQL: the references (Type/id) that a text has, an array; NULL when it has none."""
    return f"(SELECT array_agg(DISTINCT m[1]) FROM {_matches(body, base_url)} m)"


def mentions(body: str, base_url: str, wanted: str) -> str:
    """SQL: whether a text has one of the wanted references, an array.  PostgreSQL hashes a constant array of many."""
    return f"EXISTS (SELECT FROM {_matches(body, base_url)} m WHERE m[1] = ANY ({wanted}))"


def _matches(body: str, base_url: str) -> str:
    """What `fhir/model/erased_references.py` finds, in a form that takes PostgreSQL a tenth of the time."""
    base = literal(f"{base_url}/")
    return f"regexp_matches(replace(' ' || {body}, {base}, ''), '[^A-Za-z0-9/.-]([A-Z][A-Za-z]+/[A-Za-z0-9.-]+)', 'g')"


def partition_of(tenant: str) -> str:
    """SQL: the number of a tenant."""
    return f"(SELECT id FROM partitions WHERE name = {literal(tenant)})"


def _is_found(one: MentioningResource, references: frozenset[str], identifiers: frozenset[Identifier]) -> bool:
    """Whether a resource is one of these, refers to one, or has or refers to one of the identifiers."""
    is_one = one.reference in references or not references.isdisjoint(one.mentioned)
    return is_one or not identifiers.isdisjoint(one.named | one.identifiers)


def _has_value(identifiers: frozenset[Identifier]) -> str:
    """SQL: whether a body has one of the values as the value of an identifier."""
    values = frozenset(f'"value":{dumps(value).decode()}' for _, value in identifiers)
    return f"EXISTS (SELECT FROM unnest({texts(values)}) x WHERE strpos(v.body, x) > 0)" if values else "false"


def texts(values: frozenset[str]) -> str:
    """SQL: an array of texts."""
    return rf"coalesce(string_to_array({literal(joined(sorted(values)))}, E'\x1f'), ARRAY[]::text[])"


class ErasureSearch:
    """The part of `ErasureStore` that searches.  `base_url`: of this server; a URL below it is a reference."""

    def __init__(self, database: Database, base_url: str) -> None:
        self._database = database
        self._base_url = base_url

    async def mentioning(
        self, tenant: str, references: frozenset[str], identifiers: frozenset[Identifier] = frozenset()
    ) -> Sequence[MentioningResource]:
        """See `ErasureStore.mentioning`."""
        rows = self._database.for_tenant(tenant)
        of, after, found = f"partition_id = {partition_of(tenant)}", 0, []
        wanted, likely = texts(references), ""
        if len(references) == 1:
            likely = f"AND strpos(v.body, {literal(next(iter(references)))}) > 0"
        has_value = _has_value(identifiers)
        asked = {"of": f"r.{of}", "wanted": wanted, "likely": likely, "identified": has_value,
                 "mentions": mentions("v.body", self._base_url, wanted)}  # fmt: skip
        while True:
            (until,) = await rows.one(NEXT.format(of=of, after=after, limit=RANGE))
            if until is None:
                break
            found += await rows.many(_MENTIONING.format(**asked, after=after, until=until))
            after = until
        details = {int(row[0]): _Details() for row in found}
        for some in _parts([int(row[0]) for row in found], PART):
            for rid, mentioned, body, is_current in await rows.many(
                _VERSIONS.format(rids=bigints(some), found=found_in("v.body", self._base_url))
            ):
                details[rid].add(mentioned, body, is_current)
        resources = [
            MentioningResource(rid, reference, version, deleted, *details[rid].values)
            for rid, reference, version, deleted in found
        ]
        return [one for one in resources if _is_found(one, references, identifiers)]

    async def searching(self, tenant: str) -> Sequence[MentioningResource]:
        """See `ErasureStore.searching`."""
        of = f"r.partition_id = {partition_of(tenant)}"
        sql = _SEARCHING.format(of=of, found=found_in("v.body", self._base_url))
        found: dict[int, MentioningResource] = {}
        for rid, reference, version, deleted, mentioned, body in await self._database.for_tenant(tenant).many(sql):
            none = frozenset[str]()
            one = found.get(rid) or MentioningResource(rid, reference, version, deleted, none, none, none)
            texts = frozenset(free_texts(loads(body))) if body else frozenset()
            found[rid] = one._replace(mentioned=one.mentioned | set(mentioned or ()), texts=one.texts | texts)
        return list(found.values())

    async def texts(self, tenant: str, rids: Sequence[int]) -> frozenset[str]:
        """See `ErasureStore.texts`."""
        rows, found = self._database.for_tenant(tenant), set[str]()
        for some in _parts(list(rids), BODIES):
            for (body,) in await rows.many(_TEXTS.format(rids=bigints(some))):
                found.update(personal_texts(loads(body)))
        return frozenset(found)

    async def existing(self, tenant: str, references: Sequence[str]) -> frozenset[str]:
        """See `ErasureStore.existing`."""
        types, ids = zip(*(one.split("/") for one in references), strict=True) if references else ((), ())
        sql = rf"""SELECT r.resource_type || '/' || r.id
            FROM unnest(string_to_array({literal(joined(types))}, E'\x1f'),
                        string_to_array({literal(joined(ids))}, E'\x1f')) AS k(resource_type, id)
            JOIN resources r ON r.partition_id = {partition_of(tenant)} AND r.resource_type = k.resource_type
                AND r.id = k.id"""
        return frozenset(row[0] for row in await self._database.for_tenant(tenant).many(sql))

    async def correlations(self, tenant: str, rids: Sequence[int]) -> frozenset[str]:
        """See `ErasureStore.correlations`."""
        sql = f"SELECT DISTINCT correlation_id::text FROM resource_versions WHERE rid = ANY ({bigints(rids)})"
        return frozenset(row[0] for row in await self._database.for_tenant(tenant).many(sql))

    async def written_together(self, tenant: str, correlation_ids: Sequence[str]) -> Sequence[WrittenTogether]:
        """See `ErasureStore.written_together`."""
        ids = f"{literal(array(correlation_ids))}::uuid[]"
        sql = _TOGETHER.format(
            of=f"v.partition_id = {partition_of(tenant)}", ids=ids, found=found_in("v.body", self._base_url)
        )
        rows = await self._database.for_tenant(tenant).many(sql)
        return [WrittenTogether(id_, rid, name, frozenset(mentioned or ())) for id_, rid, name, mentioned in rows]


class _Details:
    """What the versions of one resource have."""

    def __init__(self) -> None:
        self._named: set[Identifier] = set()
        self._identifiers: set[Identifier] = set()
        self._mentioned: set[str] = set()
        self._values: set[str] = set()
        self._merged_with: set[str] = set()

    def add(self, mentioned: Sequence[str] | None, text: str | None, is_current: bool) -> None:
        """One version.  `text`: the body of a Patient, or of what may have such a Reference."""
        self._mentioned |= set(mentioned or ())
        body: dict[str, Any] = loads(text) if text else {}  # a deletion has no body
        self._named.update(identifiers_of_references(body))
        if body.get("resourceType") != "Patient":
            return
        for identifier in body.get("identifier", ()):
            value = identifier.get("value")
            if isinstance(value, str) and value.strip():
                self._values.add(value.strip())
                self._identifiers.add((identifier.get("system", ""), value))
        if is_current:
            others = (link.get("other") or {} for link in body.get("link", ()) if link.get("type") in _SAME)
            self._merged_with |= {one["reference"] for one in others if isinstance(one.get("reference"), str)}

    @property
    def values(
        self,
    ) -> tuple[frozenset[str], frozenset[str], frozenset[str], frozenset[Identifier], frozenset[Identifier]]:
        """Further members of a MentioningResource."""
        return (
            frozenset(self._mentioned), frozenset(self._values), frozenset(self._merged_with),
            frozenset(self._identifiers), frozenset(self._named),
        )  # fmt: skip


def _parts(rids: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(rids), size):
        yield rids[start : start + size]
