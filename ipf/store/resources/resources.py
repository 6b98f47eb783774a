"""The FHIR repository on PostgreSQL: transactions that look up, lock and commit; reads, history and search.

Arrives: lookups and plans from `rest/write/commit`, reads and queries from the interactions.  Leaves: versions with
their exact bytes, pages, or a `Problem`: `WriteConflict` when another writer was first (plan again), `StoreUnreachable`
when the server is away (the outcome of a commit under way is unknown; its receipt makes a repeat harmless).  A commit
that returned survives a crash as a whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy

from twisted.internet.defer import DeferredLock

from ipf.errors import Category, Problem
from ipf.fhir.search.evaluation.lastn import last_of_each, too_many
from ipf.ports import (
    DEFAULT_TENANT,
    MATCH_LIMIT,
    Changes,
    FhirStore,
    FhirTransaction,
    Lookup,
    LookupResult,
    MatchLocks,
    SearchPage,
    Version,
    Writes,
)
from ipf.ports.identity import IdentityAnswer
from ipf.ports.queries.history_filter import EVERY_VERSION, HistoryFilter
from ipf.ports.queries.search import Query
from ipf.ports.threads import RunInThread, run_by_size, run_inline
from ipf.store.postgres import lookup, symbols
from ipf.store.postgres.audit_calls import refusal
from ipf.store.postgres.database import Database, Session
from ipf.store.postgres.lookup import (
    BATCH_SIZE,
    LOCK_SUBSCRIPTIONS,
    SHARE_SUBSCRIPTIONS,
    VERSION_COLUMNS,
    Condition,
    batches_of,
    condition_parameters,
    general_conditions,
    lock_call,
    look_up_call,
    lookup_result,
    match_call,
    matches,
    merged,
    version,
    with_sources,
)
from ipf.store.postgres.quoting import Statement, joined, script
from ipf.store.postgres.session_reads import Readable, SessionReads, view_of
from ipf.store.postgres.symbols import SymbolTable, UnknownParameter
from ipf.store.resources import exports, history, integrity, jobs, reindex
from ipf.store.resources import identity as identity_answers
from ipf.store.resources.searches import run as search_run
from ipf.store.resources.searches.lastn import Lastn
from ipf.store.resources.searches.run import Search
from ipf.store.resources.searches.texts import Many
from ipf.store.resources.writing import consents, grants
from ipf.store.resources.writing import statements as writes
from ipf.store.resources.writing.changes import CHANGES, changes_in
from ipf.store.resources.writing.statements import (
    commit_calls,
    required_symbols,
    tenants_of,
    written_parameters,
    written_units,
)
from ipf.store.resources.writing.tenants import TenantTransaction

RID_BLOCK = 1000  # rid_blocks INCREMENT BY
_LARGE = 1_000_000  # bytes of resources: from here on their statements are built in a thread, about 20 ms a megabyte

_OF_RESOURCE = """
FROM resources r JOIN resource_versions v ON v.rid = r.rid
WHERE r.partition_id = $1 AND r.resource_type = $2 AND r.id = $3"""

READ = Statement(
    "fhir_read", "smallint, text, text", f"SELECT {VERSION_COLUMNS} {_OF_RESOURCE} AND v.version_id = r.version_id"
)
READ_VERSION = Statement(
    "fhir_read_version",
    "smallint, text, text, integer",
    f"SELECT {VERSION_COLUMNS} {_OF_RESOURCE} AND v.version_id = $4",
)
NEXT_RIDS = Statement("fhir_next_rids", "", "SELECT nextval('rid_blocks')")
READ_MANY = Statement(
    "fhir_read_many",
    "smallint, text, text",
    rf"""
SELECT {VERSION_COLUMNS}
FROM unnest(string_to_array($2, E'\x1f'), string_to_array($3, E'\x1f')) WITH ORDINALITY AS k(resource_type, id, n)
JOIN resources r ON r.partition_id = $1 AND r.resource_type = k.resource_type AND r.id = k.id AND NOT r.deleted
JOIN resource_versions v ON v.rid = r.rid AND v.version_id = r.version_id ORDER BY k.n""",
)
# Steps from type to type along the index: the cost grows with the types, not with the resources.
TYPES = Statement(
    "fhir_types",
    "smallint",
    """
WITH RECURSIVE found AS (
    (SELECT resource_type FROM resources WHERE partition_id = $1 ORDER BY resource_type LIMIT 1)
    UNION ALL
    SELECT (SELECT r.resource_type FROM resources r WHERE r.partition_id = $1 AND r.resource_type > f.resource_type
            ORDER BY r.resource_type LIMIT 1)
    FROM found f WHERE f.resource_type IS NOT NULL
)
SELECT resource_type FROM found WHERE resource_type IS NOT NULL""",
)
# Steps from value to value along the index, as TYPES does.
INDEXED = Statement(
    "fhir_indexed",
    "smallint, smallint, integer",
    """
WITH RECURSIVE found AS (
    (SELECT val FROM index_text WHERE partition_id = $1 AND param = $2 ORDER BY val LIMIT 1)
    UNION ALL
    SELECT (SELECT t.val FROM index_text t WHERE t.partition_id = $1 AND t.param = $2 AND t.val > f.val
            ORDER BY t.val LIMIT 1)
    FROM found f WHERE f.val IS NOT NULL
)
SELECT val FROM found WHERE val IS NOT NULL LIMIT $3""",
)
COUNTS = Statement(
    "fhir_counts", "", "SELECT resource_type, count(*) FROM resources WHERE NOT deleted GROUP BY resource_type"
)

PAGE_TOKEN_KEY = Statement("fhir_page_token_key", "", "SELECT key FROM page_token_key WHERE single")

STATEMENTS = (
    PAGE_TOKEN_KEY, READ, READ_VERSION, NEXT_RIDS, CHANGES, COUNTS, READ_MANY, TYPES, INDEXED,
    *lookup.STATEMENTS, *symbols.STATEMENTS, *writes.STATEMENTS, *search_run.STATEMENTS,
    *reindex.STATEMENTS,
    *history.STATEMENTS, *exports.STATEMENTS, *jobs.STATEMENTS, *integrity.STATEMENTS, *grants.STATEMENTS,
    *identity_answers.STATEMENTS, *consents.STATEMENTS,
)  # fmt: skip

READ_STATEMENTS = (READ, READ_VERSION, READ_MANY, TYPES, INDEXED, *search_run.STATEMENTS, *history.STATEMENTS)
"""Those of `PostgresFhirStore.reading_from` and `PostgresHistories`."""

_HIGHEST_VERSION = 2**31 - 1


class PostgresFhirStore:
    """`ports.FhirStore` on a Database that was opened with `statements=STATEMENTS`.

    `run_in_thread`: runs the building of statements for many changes.
    """

    def __init__(self, database: Database, run_in_thread: RunInThread = run_inline) -> None:
        self._database = database
        self._reads: Readable = database
        self._run_in_thread = run_in_thread
        self._symbols = SymbolTable(database)
        self._rids = iter(range(0))
        self._rid_lock = DeferredLock()

    def reading_from(self, standby: Database) -> PostgresFhirStore:
        """This store with its reads on a standby, opened with READ_STATEMENTS.  All else stays where it is.

        Numbers of tenants and search parameters never change, so both use those of the primary.
        """
        other = copy(self)
        other._reads = standby
        return other

    def within(self, transaction: FhirTransaction) -> PostgresFhirStore:
        """See `ports.FhirStore.within`."""
        other = copy(self)
        other._reads = view_of(transaction)
        return other

    def transaction(self) -> AbstractAsyncContextManager[FhirTransaction]:
        """See `ports.FhirStore.transaction`."""
        if isinstance(self._reads, SessionReads):
            raise Problem(Category.NOT_SUPPORTED, "an operation that writes cannot be part of a transaction")
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[FhirTransaction]:
        async with self._database.session() as session:
            if not self._database.has_row_security:
                view = SessionReads(session, self._database)
                yield PostgresFhirTransaction(session, self._symbols, self._run_in_thread, view)
                return
            # Changes of the subscriptions of all tenants are read outside the transaction, which is restricted to one.
            run_for_all = self._database.all_tenants.run_reserved
            view = SessionReads(session, self._database)
            plain = PostgresFhirTransaction(session, self._symbols, self._run_in_thread, view, run_for_all)
            yield TenantTransaction(plain, session, self._database, self._symbols)

    async def new_rid(self) -> int:
        """See `ports.FhirStore.new_rid`."""
        rid = next(self._rids, None)
        return rid if rid is not None else await self._rid_of_new_block()

    async def _rid_of_new_block(self) -> int:
        await self._rid_lock.acquire()
        try:
            rid = next(self._rids, None)  # another caller may have fetched a block meanwhile
            if rid is None:
                ((first,),) = await self._database.run_reserved(NEXT_RIDS.call())
                self._rids = iter(range(first, first + RID_BLOCK))
                rid = next(self._rids)
            return rid
        finally:
            self._rid_lock.release()

    async def read(self, tenant: str, resource_type: str, id: str) -> Version | None:
        """See `ports.FhirStore.read`."""
        return await self._version(tenant, READ.call(await self._partition(tenant), resource_type, id))

    async def read_version(self, tenant: str, resource_type: str, id: str, version_id: int) -> Version | None:
        """See `ports.FhirStore.read_version`."""
        if not 0 < version_id <= _HIGHEST_VERSION:
            return None
        call = READ_VERSION.call(await self._partition(tenant), resource_type, id, version_id)
        return await self._version(tenant, call)

    async def history(
        self,
        tenant: str,
        resource_type: str,
        id: str,
        limit: int,
        start: int | None,
        wanted: HistoryFilter = EVERY_VERSION,
    ) -> list[Version]:
        """See `ports.FhirStore.history`."""
        key = await self._partition(tenant), resource_type, id
        call = history.of_one(key, limit, start, wanted)
        return [version(row) for row in await self._reads.for_tenant(tenant).many(call)]

    async def search(self, tenant: str, query: Query, after: str | None = None) -> SearchPage:
        """See `ports.FhirStore.search`."""
        rows = self._reads.for_tenant(tenant)
        return await Search(tenant, rows.many, self._symbols, rows.run_dynamic).page(query, after)

    async def lastn(self, tenant: str, query: Query, most: int, limit: int) -> list[Version]:
        """See `ports.FhirStore.lastn`."""
        rows = self._reads.for_tenant(tenant)
        found = await Lastn(tenant, rows.many, self._symbols, rows.run_dynamic).found(query, most, limit)
        size = sum(len(one.version.body) for one in found)
        newest = await run_by_size(size, self._run_in_thread, lambda: last_of_each(found, most))
        if len(newest) > limit:
            raise too_many(limit)
        return newest

    async def read_many(self, tenant: str, keys: Sequence[tuple[str, str]]) -> list[Version]:
        """See `ports.FhirStore.read_many`."""
        if not keys:
            return []
        types, ids = zip(*keys, strict=True)
        call = READ_MANY.call(await self._partition(tenant), joined(types), joined(ids))
        return [version(row) for row in await self._reads.for_tenant(tenant).many(call)]

    async def types(self, tenant: str) -> list[str]:
        """See `ports.FhirStore.types`."""
        rows = await self._reads.for_tenant(tenant).many(TYPES.call(await self._partition(tenant)))
        return [str(row[0]) for row in rows]

    async def indexed(self, tenant: str, resource_type: str, code: str, limit: int) -> list[str]:
        """See `ports.FhirStore.indexed`."""
        await self._symbols.load((tenant,), ((resource_type, code),))
        call = INDEXED.call(self._symbols.partition(tenant), self._symbols.parameter(resource_type, code), limit)
        return [str(row[0]) for row in await self._reads.for_tenant(tenant).many(call)]

    async def page_token_key(self) -> bytes:
        """See `ports.FhirStore.page_token_key`."""
        (key,) = await self._database.all_tenants.one(PAGE_TOKEN_KEY.call())
        return bytes.fromhex(key)

    async def counts(self) -> dict[str, int]:
        """See `ports.FhirStore.counts`."""
        return {name: int(count) for name, count in await self._database.all_tenants.many(COUNTS.call())}

    async def _partition(self, tenant: str) -> int:
        await self._symbols.load((tenant,))
        return self._symbols.partition(tenant)

    async def _version(self, tenant: str, call: str) -> Version | None:
        row = await self._reads.for_tenant(tenant).maybe(call)
        return None if row is None else version(row)


class PostgresFhirTransaction:
    """`ports.FhirTransaction`: the first statement begins it, `commit` ends it.

    `view`: see `ports.FhirTransaction`.  `run_for_all`: runs statements that must see the rows of all tenants; None =
    the session does.
    """

    def __init__(
        self,
        session: Session,
        symbols: SymbolTable,
        run_in_thread: RunInThread,
        view: SessionReads,
        run_for_all: Many | None = None,
    ) -> None:
        self.view = view
        self._session = session
        self._run_for_all = run_for_all or session.many
        self._symbols = symbols
        self._run_in_thread = run_in_thread
        self._owns_subscriptions = False

    async def look_up(self, lookup: Lookup, *, subscriptions_change: bool = False) -> LookupResult:
        """See `ports.FhirTransaction.look_up`."""
        self._owns_subscriptions = subscriptions_change
        lock = LOCK_SUBSCRIPTIONS if subscriptions_change else SHARE_SUBSCRIPTIONS
        found = []
        for part in batches_of(lookup):
            tenants = {item[0] for group in (part.ids, part.conditions, part.receipts) for item in group}
            await self._symbols.load(tenants, condition_parameters(part.conditions))
            rows = await self._session.many(script(lock, look_up_call(part, self._symbols)))
            found.append(lookup_result(part, rows, await self._general(part.conditions)))
            lock = ""
        return merged(found)

    async def lock(self, conditions: Sequence[Condition], locks: MatchLocks) -> list[Sequence[Version]]:
        """See `ports.FhirTransaction.lock`.

        The matches must be read after the locks are held.  Each statement has its own snapshot, so one round trip is
        enough, unless there are symbols that another writer may be adding while it holds the locks.
        """
        if len(conditions) > BATCH_SIZE:
            return await self._lock_many(conditions, locks)
        lock = lock_call(locks)
        tenants, parameters = _tenants(conditions), condition_parameters(conditions)
        if not self._symbols.has(tenants, parameters):
            await self._session.many(lock)
            await self._symbols.load(tenants, parameters)
        rows = await self._session.many(script(lock, match_call(conditions, self._symbols)))
        return matches(conditions, rows, await self._general(conditions))

    async def _lock_many(self, conditions: Sequence[Condition], locks: MatchLocks) -> list[Sequence[Version]]:
        """Take all locks in their order, then match in batches."""
        await self._session.many(await self._run_in_thread(lambda: lock_call(locks)))
        result = await self.look_up(Lookup((), conditions), subscriptions_change=self._owns_subscriptions)
        return list(result.by_condition)

    async def _general(self, conditions: Sequence[Condition]) -> dict[int, Sequence[Version]]:
        """Matches of the conditions that are no single tokens, by position; at most their count or MATCH_LIMIT each."""
        found: dict[int, Sequence[Version]] = {}
        for position, (tenant, query) in general_conditions(conditions):
            matched = await Search(tenant, self._session.many, self._symbols).first(query, query.count or MATCH_LIMIT)
            found[position] = await with_sources(self._session.many, self._symbols, tenant, matched)
        return found

    async def identity_answers(self, wanted: Sequence[tuple[str, str, str]]) -> Sequence[IdentityAnswer | None]:
        """See `ports.FhirTransaction.identity_answers`."""
        await self._symbols.load({tenant for tenant, _, _ in wanted})
        return await identity_answers.read_answers(self._session.many, self._symbols, wanted)

    async def changes_since(self, since: int = -1) -> Changes:
        """See `ports.FhirTransaction.changes_since`."""
        await self._symbols.load((DEFAULT_TENANT,))
        rows = await self._run_for_all(CHANGES.call(since, self._symbols.partition(DEFAULT_TENANT)))
        return changes_in(rows, since)

    async def commit(self, writes: Writes, reads: Callable[[], Awaitable[None]] | None = None) -> str:
        """See `ports.FhirTransaction.commit`."""
        if (writes.subscriptions or writes.topics or writes.reindex) and not self._owns_subscriptions:
            raise Problem(Category.INTERNAL, "subscriptions change in a transaction that did not announce it")
        if len(writes.changes) > BATCH_SIZE or sum([len(one.version.body) for one in writes.changes]) > _LARGE:
            return await self._commit_many(writes, reads)
        await self._symbols.ensure(tenants_of(writes))
        await self._symbols.ensure_units(written_units(writes))
        try:
            calls = script(*commit_calls(writes, self._symbols))
        except UnknownParameter:  # rare, so it is not checked before
            await self._symbols.ensure((), written_parameters(writes))
            calls = script(*commit_calls(writes, self._symbols))
        if reads is None:
            await self._session.commit(calls)
        elif calls:
            await self._session.many(calls)
        refused = refusal(self._session.warnings()) if writes.audits else ""
        await self._read_and_commit(reads)
        return refused

    async def _read_and_commit(self, reads: Callable[[], Awaitable[None]] | None) -> None:
        """Commit after `reads`, unless what was written is committed already."""
        if reads is not None:
            await reads()
        await self._session.commit()

    async def _commit_many(self, writes: Writes, reads: Callable[[], Awaitable[None]] | None) -> str:
        """Send the statements one by one, each of bounded size and built in a thread, so that none blocks the reactor.

        The last one, which may lock subscriptions, is sent with the COMMIT; not one of megabytes, which it would copy.
        """
        tenants, parameters, units = await self._run_in_thread(lambda: required_symbols(writes))
        await self._symbols.ensure(tenants, parameters)
        await self._symbols.ensure_units(units)
        calls = commit_calls(writes, self._symbols)
        call, refused = await self._run_in_thread(lambda: next(calls, "")), ""
        while call:
            following = await self._run_in_thread(lambda: next(calls, ""))
            await (self._session.many(call) if following or reads or len(call) > _LARGE else self._session.commit(call))
            refused = refused or refusal(self._session.warnings())
            call = following
        await self._read_and_commit(reads)
        return refused


def _tenants(conditions: Sequence[Condition]) -> set[str]:
    return {tenant for tenant, _ in conditions}


_: type[FhirStore] = PostgresFhirStore
__: type[FhirTransaction] = PostgresFhirTransaction
