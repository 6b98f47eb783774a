"""The FHIR repository on PostgreSQL: transactions that ask, lock and commit; reads, history and search.

Arrives: lookup and plans from `rest/write/commit`, reads and queries from the interactions.  Leaves: versions with
their exact
bytes, pages, and a category of failure: `WriteConflict` when another writer was first (plan again), `StoreUnreachable`
when the server is away (nothing is known of a commit that was under way; a receipt makes repeating it harmless).
What survives a crash: what `commit` returned for, whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import islice

from twisted.internet.defer import DeferredLock

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.fhir.topics.basic import topic_in
from ipf.ports import (
    DEFAULT_TENANT,
    ActiveSubscription,
    Changes,
    FhirStore,
    FhirTransaction,
    Json,
    Lookup,
    LookupResult,
    SearchPage,
    ServedTopic,
    Version,
    Writes,
)
from ipf.ports.search import Query
from ipf.ports.threads import RunInThread, here
from ipf.store.postgres import lookup as asking
from ipf.store.postgres import symbols as naming
from ipf.store.postgres.database import Database, Row, Session
from ipf.store.postgres.lookup import CURRENT_VERSION, VERSION_COLUMNS, Condition, version
from ipf.store.postgres.quoting import Statement, joined, script
from ipf.store.postgres.symbols import Names, UnknownParameter
from ipf.store.resources import exports, grants, history, integrity
from ipf.store.resources import reindex as reindexing
from ipf.store.resources import search_run as searching
from ipf.store.resources import writes as writing
from ipf.store.resources.search_run import Many, Search
from ipf.store.resources.tenants import TenantTransaction

RID_BLOCK = 1000  # rid_blocks INCREMENT BY

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
HISTORY = Statement(
    "fhir_history",
    "smallint, text, text, integer, integer",
    f"SELECT {VERSION_COLUMNS} {_OF_RESOURCE} AND v.version_id < $4 ORDER BY v.version_id DESC LIMIT $5",
)
NEXT_RIDS = Statement("fhir_next_rids", "", "SELECT nextval('rid_blocks')")
# What writers must know that came after the epoch $1: subscriptions, topics, and search parameters when one changed.
# A subscription or topic without a body does not fire (any more); a first reading ($1 < 0) need not hear of those.
NEWS = Statement(
    "fhir_news",
    "bigint, smallint",
    f"""
SELECT 0, p.name, s.rid, s.id,
       CASE WHEN s.status IN ('requested', 'active', 'error') AND NOT r.deleted THEN v.body END
FROM subscription_states s JOIN partitions p ON p.id = s.partition_id
JOIN resources r ON r.rid = s.rid {CURRENT_VERSION}
WHERE s.epoch > $1 AND ($1 >= 0 OR s.status IN ('requested', 'active', 'error'))
UNION ALL
SELECT 1, p.name, t.rid, t.url, CASE WHEN t.served AND NOT r.deleted THEN v.body END
FROM subscription_topics t JOIN partitions p ON p.id = t.partition_id
JOIN resources r ON r.rid = t.rid {CURRENT_VERSION}
WHERE t.epoch > $1 AND ($1 >= 0 OR t.served)
UNION ALL
SELECT 2, '', r.rid, r.id, v.body
FROM resources r JOIN resource_versions v ON v.rid = r.rid AND v.version_id = r.version_id
WHERE r.partition_id = $2 AND r.resource_type = 'SearchParameter' AND NOT r.deleted
  AND (SELECT parameters_epoch FROM subscription_epoch WHERE single) > $1
UNION ALL
SELECT 3, '', parameters_epoch, '', NULL FROM subscription_epoch WHERE single
ORDER BY 1, 3""",
)
READ_MANY = Statement(
    "fhir_read_many",
    "smallint, text, text",
    rf"""
SELECT {VERSION_COLUMNS}
FROM unnest(string_to_array($2, E'\x1f'), string_to_array($3, E'\x1f')) WITH ORDINALITY AS k(resource_type, id, n)
JOIN resources r ON r.partition_id = $1 AND r.resource_type = k.resource_type AND r.id = k.id AND NOT r.deleted
JOIN resource_versions v ON v.rid = r.rid AND v.version_id = r.version_id ORDER BY k.n""",
)
# A step from type to type along the index, so that the cost is that of the types, not of the resources.
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
COUNTS = Statement(
    "fhir_counts", "", "SELECT resource_type, count(*) FROM resources WHERE NOT deleted GROUP BY resource_type"
)

STATEMENTS = (
    READ, READ_VERSION, HISTORY, NEXT_RIDS, NEWS, COUNTS, READ_MANY, TYPES,
    *asking.STATEMENTS, *naming.STATEMENTS, *writing.STATEMENTS, *searching.STATEMENTS,
    *reindexing.STATEMENTS,
    *history.STATEMENTS, *exports.STATEMENTS, *integrity.STATEMENTS, *grants.STATEMENTS,
)  # fmt: skip

_HIGHEST_VERSION = 2**31 - 1


class PostgresFhirStore:
    """`ports.FhirStore` on a Database that was opened with `statements=STATEMENTS`.

    `run_in_thread`: where the statements of many changes are written.
    """

    def __init__(self, database: Database, run_in_thread: RunInThread = here) -> None:
        self._database = database
        self._run_in_thread = run_in_thread
        self._names = Names(database)
        self._rids = iter(range(0))
        self._rid_lock = DeferredLock()

    def transaction(self) -> AbstractAsyncContextManager[FhirTransaction]:
        """See `ports.FhirStore.transaction`."""
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[FhirTransaction]:
        async with self._database.session() as session:
            if not self._database.has_row_security:
                yield PostgresFhirTransaction(session, self._names, self._run_in_thread)
                return
            # What changed of the subscriptions of all tenants is read beside the transaction, which serves one.
            plain = PostgresFhirTransaction(
                session, self._names, self._run_in_thread, self._database.all_tenants.run_reserved
            )
            yield TenantTransaction(plain, session, self._database, self._names)

    async def new_rid(self) -> int:
        """See `ports.FhirStore.new_rid`."""
        rid = next(self._rids, None)
        return rid if rid is not None else await self._rid_of_new_block()

    async def _rid_of_new_block(self) -> int:
        await self._rid_lock.acquire()
        try:
            rid = next(self._rids, None)  # another may have fetched a block meanwhile
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

    async def history(self, tenant: str, resource_type: str, id: str, limit: int, before: int | None) -> list[Version]:
        """See `ports.FhirStore.history`."""
        newest = _HIGHEST_VERSION if before is None else min(before, _HIGHEST_VERSION)
        call = HISTORY.call(await self._partition(tenant), resource_type, id, newest, limit)
        return [version(row) for row in await self._database.for_tenant(tenant).many(call)]

    async def search(self, tenant: str, query: Query, after: str | None = None) -> SearchPage:
        """See `ports.FhirStore.search`."""
        rows = self._database.for_tenant(tenant)
        return await Search(tenant, rows.many, self._names, rows.call).page(query, after)

    async def read_many(self, tenant: str, keys: Sequence[tuple[str, str]]) -> list[Version]:
        """See `ports.FhirStore.read_many`."""
        if not keys:
            return []
        types, ids = zip(*keys, strict=True)
        call = READ_MANY.call(await self._partition(tenant), joined(types), joined(ids))
        return [version(row) for row in await self._database.for_tenant(tenant).many(call)]

    async def types(self, tenant: str) -> list[str]:
        """See `ports.FhirStore.types`."""
        rows = await self._database.for_tenant(tenant).many(TYPES.call(await self._partition(tenant)))
        return [str(row[0]) for row in rows]

    async def counts(self) -> dict[str, int]:
        """See `ports.FhirStore.counts`."""
        return {name: int(count) for name, count in await self._database.all_tenants.many(COUNTS.call())}

    async def _partition(self, tenant: str) -> int:
        await self._names.load((tenant,))
        return self._names.partition(tenant)

    async def _version(self, tenant: str, call: str) -> Version | None:
        row = await self._database.for_tenant(tenant).maybe(call)
        return None if row is None else version(row)


class PostgresFhirTransaction:
    """`ports.FhirTransaction`: the first statement begins it, `commit` ends it.

    `of_all`: runs what must see the rows of all tenants; None = the session does.
    """

    def __init__(self, session: Session, names: Names, run_in_thread: RunInThread, of_all: Many | None = None) -> None:
        self._session = session
        self._of_all = of_all or session.many
        self._names = names
        self._run_in_thread = run_in_thread
        self._owns_subscriptions = False

    async def look_up(self, lookup: Lookup, *, subscriptions_change: bool = False) -> LookupResult:
        """See `ports.FhirTransaction.look_up`."""
        self._owns_subscriptions = subscriptions_change
        lock = asking.OWN_SUBSCRIPTIONS if subscriptions_change else asking.SHARE_SUBSCRIPTIONS
        found = []
        for part in asking.parts_of(lookup):
            tenants = {item[0] for group in (part.ids, part.conditions, part.receipts) for item in group}
            await self._names.load(tenants, asking.parameters_of(part.conditions))
            rows = await self._session.many(script(lock, asking.ask_call(part, self._names)))
            found.append(asking.answers(part, rows, await self._general(part.conditions)))
            lock = ""
        return asking.put_together(found)

    async def lock(self, conditions: Sequence[Condition]) -> list[Sequence[Version]]:
        """See `ports.FhirTransaction.lock`.

        The answer must be younger than the locks: each statement has a snapshot of its own, so one round trip will do,
        unless there are names that another writer may be adding before it gives up its locks.
        """
        if len(conditions) > asking.AT_ONCE:
            return await self._lock_many(conditions)
        lock, tenants, parameters = asking.lock_call(conditions), _tenants(conditions), asking.parameters_of(conditions)
        if not self._names.known(tenants, parameters):
            await self._session.many(lock)
            await self._names.load(tenants, parameters)
        rows = await self._session.many(script(lock, asking.match_call(conditions, self._names)))
        return asking.matches(conditions, rows, await self._general(conditions))

    async def _lock_many(self, conditions: Sequence[Condition]) -> list[Sequence[Version]]:
        """All the locks in their order first, then the answers, a bounded number at a time."""
        await self._session.many(await self._run_in_thread(lambda: asking.lock_call(conditions)))
        answers = await self.look_up(Lookup((), conditions), subscriptions_change=self._owns_subscriptions)
        return list(answers.by_condition)

    async def _general(self, conditions: Sequence[Condition]) -> dict[int, Sequence[Version]]:
        """Matches of the conditions that are no single tokens, by place; at most two each."""
        found: dict[int, Sequence[Version]] = {}
        for place, (tenant, query) in asking.general(conditions):
            found[place] = await Search(tenant, self._session.many, self._names).first(query, 2)
        return found

    async def changes_since(self, since: int = -1) -> Changes:
        """See `ports.FhirTransaction.changes_since`."""
        await self._names.load((DEFAULT_TENANT,))
        rows = await self._of_all(NEWS.call(since, self._names.partition(DEFAULT_TENANT)))
        return _news(rows, since)

    async def commit(self, writes: Writes) -> None:
        """See `ports.FhirTransaction.commit`."""
        if (writes.subscriptions or writes.topics or writes.reindex) and not self._owns_subscriptions:
            raise Problem(Category.INTERNAL, "subscriptions change in a transaction that did not say so")
        if len(writes.changes) > asking.AT_ONCE:
            await self._commit_many(writes)
            return
        groups = writes.changes, writes.receipts, writes.subscriptions, writes.topics, writes.reindex
        tenants = {item.tenant for group in groups for item in group}
        await self._names.add(tenants)
        await self._names.add_units(writing.units_of(writes))
        try:
            calls = script(*writing.commit_calls(writes, self._names))
        except UnknownParameter:  # seldom, so that nobody looks for new ones before
            await self._names.add((), writing.parameters_of(writes))
            calls = script(*writing.commit_calls(writes, self._names))
        await self._session.commit(calls)

    async def _commit_many(self, writes: Writes) -> None:
        """The statements one by one, each of bounded size and written aside: no one of them holds up the reactor.

        The last one, which locks the rows of subscriptions when there are events, travels with the COMMIT.
        """
        tenants, parameters, units = await self._run_in_thread(lambda: writing.names_of(writes))
        await self._names.add(tenants, parameters)
        await self._names.add_units(units)
        calls = writing.commit_calls(writes, self._names)
        call = await self._run_in_thread(lambda: next(calls, ""))
        while call:
            following = await self._run_in_thread(lambda: next(calls, ""))
            await (self._session.many(call) if following else self._session.commit(call))
            call = following


def _news(rows: Sequence[Row], since: int) -> Changes:
    """Rows in order of their kind; there may be many subscriptions, which are read when they are asked for."""
    many = sum(row[0] == 0 for row in rows)
    subscriptions = (
        ActiveSubscription(tenant, rid, id_, None if body is None else loads(body))
        for _, tenant, rid, id_, body in islice(rows, many)
    )
    topics: list[ServedTopic] = []
    parameters: list[Json] = []
    changed = False
    for kind, tenant, rid, _, body in rows[many:]:
        resource = None if body is None else loads(body)
        if kind == 1:
            topics.append(ServedTopic(tenant, rid, topic_in(resource)))
        elif kind == 2 and resource is not None:
            parameters.append(resource)
        else:
            changed = rid > since
    return Changes(subscriptions, topics, parameters if changed else None)


def _tenants(conditions: Sequence[Condition]) -> set[str]:
    return {tenant for tenant, _ in conditions}


_: type[FhirStore] = PostgresFhirStore
__: type[FhirTransaction] = PostgresFhirTransaction
