"""`ports.fhir.erasure.MessageErasure` on PostgreSQL (the inbox database).

The search reads all payloads in ranges of ids: the word index lags behind and omits long texts.  The trigger of
`message_bodies` removes the words of a removed message.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from urllib.parse import parse_qsl

from ipf.errors import Category, Problem
from ipf.fhir.model.erased_references import ErasedReferences
from ipf.fhir.model.json import loads
from ipf.ports import MessageFilter
from ipf.ports.fhir.erasure import (
    ErasedMessages,
    InboxCounts,
    MessageErasure,
    StoredMessage,
    StoredReject,
    StoredSearch,
)
from ipf.store.erasure.search import mentions, texts
from ipf.store.inbox.text_search import search
from ipf.store.postgres.database import Database, Row, Session
from ipf.store.postgres.quoting import array, bigints, literal

RANGE = 5_000  # ids of one statement
TEXTS = ("patient", "text", "error", "source_id")  # conditions with texts of people
_MESSAGE = """b.id, b.correlation_id::text, s.status::text, b.charset, b.raw_message,
    EXISTS (SELECT FROM identity_conflicts c WHERE c.message_id = b.id AND c.status = 'open')"""
_FROM = "FROM message_bodies b JOIN message_states s ON s.id = b.id"
_CONCERNS = """tenant = {tenant} AND (message_id = ANY ({ids}) OR target = ANY ({references})
    OR {in_conflict})"""
# Codes that no other message has any more; what an operator decided about them stays.
_CODES = """FROM unmapped_codes u WHERE u.tenant = {tenant} AND u.id IN (
    SELECT unmapped_id FROM unmapped_messages GROUP BY 1 HAVING bool_and(message_id = ANY ({ids})))"""
_REMOVALS = (
    f"DELETE {_CODES}",
    "DELETE FROM unmapped_messages WHERE message_id = ANY ({ids})",
    # a message that waits for an answer about him becomes another conflict, or none, when it is tried again
    f"DELETE FROM identity_conflicts WHERE {_CONCERNS}",
    "DELETE FROM admin_job_messages WHERE message_id = ANY ({ids})",
    "UPDATE unread_fields SET message_id = 0 WHERE message_id = ANY ({ids})",
    "DELETE FROM message_states WHERE id = ANY ({ids}) OR original_id = ANY ({ids})",
    "DELETE FROM message_bodies WHERE id = ANY ({ids})",
    "DELETE FROM rejects WHERE id = ANY ({rejects})",
    "DELETE FROM admin_jobs WHERE id = ANY ({jobs}) AND status NOT IN ('requested', 'running')",
    "DELETE FROM saved_views WHERE id = ANY ({views})",
)
# A view may be of the messages of any tenant.
_SEARCHES = """
SELECT 'job', id, selection, status NOT IN ('requested', 'running') FROM admin_jobs
WHERE tenant IN ({tenant}, '*') AND (selection::json -> 'filter') IS NOT NULL
UNION ALL SELECT 'view', id, json_build_object('name', name, 'query', query)::text, true FROM saved_views
ORDER BY 1, 2"""
_MOST_FOUND = 1_000  # messages beyond his that a search is asked for
_IN_ERRORS = """FROM message_states WHERE tenant = {tenant} AND last_error IS NOT NULL AND NOT id = ANY ({ids})
    AND (original_id IS NULL OR NOT original_id = ANY ({ids})) AND {in_error}"""
_ERRORS = f"SELECT id, last_error {_IN_ERRORS} ORDER BY id FOR UPDATE"
_COUNTS = f"""SELECT
    (SELECT count(*) FROM message_states WHERE original_id IS NOT NULL AND original_id = ANY ({{ids}})),
    (SELECT count(*) {_CODES}), (SELECT count(*) FROM identity_conflicts WHERE {_CONCERNS}),
    (SELECT count(*) {_IN_ERRORS})"""


class PostgresMessageErasure:
    """`ports.fhir.erasure.MessageErasure`.  `base_url`: of this server; a URL below it is a reference."""

    def __init__(self, database: Database, base_url: str) -> None:
        self._database = database
        self._base_url = base_url

    async def by_correlation(self, tenant: str, correlation_ids: Sequence[str]) -> Sequence[StoredMessage]:
        """See `MessageErasure.by_correlation`."""
        ids = f"{literal(array(correlation_ids))}::uuid[]"
        rows = await self._database.many(
            f"SELECT {_MESSAGE} {_FROM} WHERE b.tenant = {literal(tenant)} AND b.correlation_id = ANY ({ids})"
        )
        return [_message(row) for row in rows]

    async def containing(self, tenant: str, values: frozenset[str]) -> Sequence[StoredMessage]:
        """See `MessageErasure.containing`."""
        await _no_drop(self._database)
        needles = await self._needles(values, "message_bodies")
        rows = []
        for after in await self._ranges("message_bodies") if needles else ():
            rows += await self._database.many(
                f"SELECT {_MESSAGE} {_FROM} WHERE b.tenant = {literal(tenant)} AND b.id > {after}"
                f" AND b.id <= {after + RANGE} AND ({_has('b.raw_message', needles)})"
            )
        return [_message(row) for row in rows]

    async def rejects(self, tenant: str, values: frozenset[str]) -> Sequence[StoredReject]:
        """See `MessageErasure.rejects`."""
        needles = await self._needles(values, None)
        rows = []
        for after in await self._ranges("rejects") if needles else ():
            rows += await self._database.many(
                f"SELECT id, raw FROM rejects WHERE tenant = {literal(tenant)} AND id > {after}"
                f" AND id <= {after + RANGE} AND ({_has('raw', needles)})"
            )
        return [StoredReject(row[0], bytes(row[1])) for row in rows]

    async def searches(self, tenant: str) -> Sequence[StoredSearch]:
        """See `MessageErasure.searches`."""
        rows = await self._database.many(_SEARCHES.format(tenant=literal(tenant)))
        return [_search(*row) for row in rows]

    async def finds_others(self, tenant: str, words: str, ids: Collection[int]) -> bool:
        """See `MessageErasure.finds_others`."""
        matches = await search(self._database, MessageFilter(text=words, tenant=tenant))
        found = await matches.ids(self._database, len(ids) + _MOST_FOUND)
        return found is None or not set(found) <= set(ids)

    async def count(self, erased: ErasedMessages) -> InboxCounts:
        """See `MessageErasure.count`."""
        return InboxCounts(*await self._database.one(_COUNTS.format(**self._literals(erased))))

    async def remove(self, erased: ErasedMessages) -> None:
        """See `MessageErasure.remove`."""

        async def work(session: Session) -> None:
            values = self._literals(erased)
            await _no_drop(session)
            await _lock(session, erased.ids)
            rows = await session.many(_SEARCHES.format(**values))
            if not {(kind, id_) for kind, id_, *_ in rows} <= erased.known:
                raise Problem(Category.CONFLICT, "somebody searched messages meanwhile: begin with a dry run again")
            for statement in _REMOVALS:
                await session.many(statement.format(**values))
            cleaner = ErasedReferences(erased.references, self._base_url)
            for id_, error in await session.many(_ERRORS.format(**values)):
                text = literal(cleaner.removed_from_text(error))
                await session.many(f"UPDATE message_states SET last_error = {text} WHERE id = {int(id_)}")

        await self._database.transact(work)

    def _literals(self, erased: ErasedMessages) -> dict[str, str]:
        """What the statements are about, as SQL."""
        references = texts(erased.references)
        return {
            "tenant": literal(erased.tenant),
            "ids": bigints(erased.ids),
            "rejects": bigints(erased.rejects),
            "values": texts(erased.values),
            "references": references,
            "in_conflict": mentions("candidates || ' ' || finding", self._base_url, references),
            "in_error": mentions("last_error", self._base_url, references),
            "jobs": bigints(erased.jobs),
            "views": bigints(erased.views),
        }

    async def _ranges(self, table: str) -> Sequence[int]:
        """The starts of ranges of ids."""
        first, last = await self._database.one(f"SELECT coalesce(min(id), 0), coalesce(max(id), -1) FROM {table}")
        return range(int(first) - 1, int(last), RANGE)

    async def _needles(self, values: frozenset[str], table: str | None) -> list[bytes]:
        """The values in each character set that occurs."""
        charsets = {"utf-8", "latin-1"}
        if table is not None:
            charsets |= {row[0] for row in await self._database.many(f"SELECT DISTINCT charset FROM {table}")}
        return sorted({encoded for value in values for one in charsets if (encoded := _encoded(value, one))})


async def _no_drop(rows: Database | Session) -> None:
    """Problem CONFLICT while retention drops a partition: payloads of its messages are there without their states."""
    if await rows.many("SELECT FROM message_drops LIMIT 1"):
        raise Problem(Category.CONFLICT, "retention is removing a partition of messages: repeat when its run has ended")


async def _lock(session: Session, ids: Sequence[int]) -> None:
    """Lock the messages.  Problem CONFLICT when one is being converted, or is gone."""
    known = bigints(ids)
    rows = await session.many(
        f"SELECT id, status::text FROM message_states WHERE id = ANY ({known})"
        f" OR (original_id IS NOT NULL AND original_id = ANY ({known})) ORDER BY id FOR UPDATE"
    )
    if any(status == "TRANSFORMING" for _, status in rows):
        raise Problem(Category.CONFLICT, "a message of the patient is being converted: repeat in a moment")
    if not set(ids) <= {int(row[0]) for row in rows}:
        raise Problem(Category.CONFLICT, "a message of the patient is gone: begin with a dry run again")


def _message(row: Row) -> StoredMessage:
    id_, correlation_id, status, charset, raw, disputed = row
    return StoredMessage(id_, correlation_id, status, charset, bytes(raw), disputed)


def _search(kind: str, id_: int, stored: str, ended: bool) -> StoredSearch:
    """A search from the selection of a job, or from the name and the query of a view."""
    found = loads(stored)
    wanted = found["filter"] if kind == "job" else dict(parse_qsl(found["query"]))
    texts = [value for name, value in wanted.items() if name in TEXTS and isinstance(value, str)]
    texts += [found["name"]] if kind == "view" else []
    return StoredSearch(kind, id_, texts, wanted.get("text") or "", ended)


def _encoded(value: str, charset: str) -> bytes:
    """The bytes of a value, without a byte order mark; empty when the character set does not have it."""
    try:
        encoded = value.encode(charset)
    except (UnicodeEncodeError, LookupError):
        return b""
    return encoded[2:] if encoded[:2] in (b"\xff\xfe", b"\xfe\xff") else encoded


def _has(column: str, needles: Sequence[bytes]) -> str:
    return " OR ".join(f"position({literal(needle)}::bytea IN {column}) > 0" for needle in needles)


_: type[MessageErasure] = PostgresMessageErasure
