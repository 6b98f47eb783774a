"""Row-level security: statements that set the wrong tenant, or none."""

from __future__ import annotations

from typing import Any

from psycopg2.extensions import make_dsn, parse_dsn
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.fhir.model.json import loads
from ipf.store.postgres.connect import connect
from ipf.store.postgres.database import Database
from ipf.store.postgres.migrate import migrate
from ipf.store.postgres.row_security import LEAKPROOF, obstacle, secure
from ipf.store.resources.resources import PostgresFhirStore
from ipf.subscriptions.policy import PERMISSIVE, ChannelPolicy
from tests import postgres
from tests.contracts import resources as contract
from tests.rest.world import World, by_mrn, patient, put, unit

# Tables that hold nothing of a tenant.
WITHOUT_TENANT = {
    "partitions": "names of tenants and their numbers",
    "search_parameters": "names of parameters and their numbers",
    "subscription_epoch": "one number",
    "consent_epoch": "one number",
    "page_token_key": "one key",
    "audit_feed": "one position",
    "audit_keys": "public keys",
    "audit_installation": "one id",
    "code_systems": "imported code systems, which all tenants read",
    "code_system_concepts": "of an imported code system",
    "code_system_designations": "of an imported code system",
    "code_system_properties": "of an imported code system",
    "code_system_parents": "of an imported code system",
    "code_system_ancestors": "of an imported code system",
    "schema_versions": "which migrations were applied; the role may not even read it",
}
PARENTS = ("subscription_states", "export_jobs", "jobs")
_LITERALS = {
    "smallint": "7", "integer": "7", "bigint": "7", "boolean": "false", "numeric": "1", "double precision": "1",
    "text": "'x'", "uuid": "'00000000-0000-7000-8000-000000000007'", "timestamp with time zone": "now()",
    "ARRAY": "'{}'", "bytea": "''", "date": "'2026-01-01'", "tsvector": "''",
}  # fmt: skip


def waiting(coroutine: Any) -> Deferred[Any]:
    """A Deferred for `assertFailure`."""
    return Deferred.fromCoroutine(coroutine)


class PolicyTests(TestCase):
    """One row of each of two tenants in every table."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir", size=1, tenants=True)
        await self.database.many("INSERT INTO partitions (name) VALUES ('alpha'), ('beta')")
        found = await self.database.all_tenants.many(
            "SELECT c.relname FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid"
            " WHERE c.relrowsecurity AND NOT c.relispartition"
        )
        # What others depend on comes last; rows are made the other way round.
        self.tables = sorted((str(name) for (name,) in found), key=lambda name: (name in PARENTS, name))
        for table in reversed(self.tables):
            for partition in (2, 3):
                await self.database.all_tenants.many(await self.row(table, partition))

    async def row(self, table: str, partition: int) -> str:
        """An INSERT of a row of this partition."""
        columns = await self.database.all_tenants.many(
            "SELECT column_name, data_type FROM information_schema.columns WHERE is_identity = 'NO'"
            f" AND is_nullable = 'NO' AND is_generated = 'NEVER' AND table_name = '{table}'"
        )
        own = {"partition_id": str(partition), "rid": str(partition), "subscription_rid": str(partition),
               "digest": f"'{partition}'", "position": str(partition)}  # fmt: skip
        values = {name: own.get(name) or _LITERALS[kind] for name, kind in columns}
        return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())})"

    async def test_every_table_has_a_policy(self) -> None:
        """Or is named above with the reason."""
        every = await self.database.all_tenants.many(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
            " AND NOT (relispartition AND relrowsecurity)"
        )
        self.assertEqual({name for (name,) in every} - set(self.tables), set(WITHOUT_TENANT))
        policies = await self.database.all_tenants.many("SELECT cmd, permissive, qual FROM pg_policies")
        self.assertEqual({(cmd, permissive) for cmd, permissive, _ in policies}, {("ALL", "PERMISSIVE")})

    async def test_statements_with_the_wrong_tenant(self) -> None:
        """See nothing, change nothing, and write nothing; those that name none see nothing at all."""
        alpha, everyone = self.database.for_tenant("alpha"), self.database.all_tenants
        for table in self.tables:
            whose = "partition_id" if table not in ("subscription_events", "delivery_attempts") else "subscription_rid"
            asked = f"SELECT {whose} FROM {table}"
            self.assertEqual(await alpha.many(asked), [(2,)], table)
            self.assertEqual(await alpha.many(f"{asked} WHERE {whose} = 3"), [], table)
            self.assertEqual(await self.database.many(asked), [], table)
            self.assertEqual(await self.database.for_tenant("nobody").many(asked), [], table)
            self.assertEqual(len(await everyone.many(asked)), 2, table)
            self.assertEqual(await alpha.many(f"UPDATE {table} SET {whose} = 3 WHERE {whose} = 3 RETURNING 1"), [])
            self.assertEqual(await alpha.many(f"DELETE FROM {table} WHERE {whose} = 3 RETURNING 1"), [], table)
            await self.assertFailure(waiting(alpha.many(f"UPDATE {table} SET {whose} = 3")), Problem)
            await everyone.many(f"DELETE FROM {table} WHERE {whose} = 3")
            refused = await self.assertFailure(waiting(alpha.many(await self.row(table, 3))), Problem)
            self.assertIn("42501", refused.text, table)
            await self.assertFailure(waiting(self.database.many(await self.row(table, 3))), Problem)
            self.assertEqual(await alpha.many(f"DELETE FROM {table} RETURNING {whose}"), [(2,)], table)
            await self.database.for_tenant("beta").many(await self.row(table, 3))
            self.assertEqual(len(await everyone.many(asked)), 1, table)

    async def test_nothing_stays_on_the_connection(self) -> None:
        """Neither the tenant nor the way out of the role, whatever became of the statement before."""
        role = "SELECT current_user::text, current_setting('ipf.partition', true), count(*) FROM resources"
        ((outside, *_),) = await self.database.all_tenants.many(role)
        before = f"ipf_tenants_{parse_dsn(self.database.url)['dbname']}"
        self.assertNotEqual(outside, before)
        for scope in (self.database.for_tenant("alpha"), self.database.all_tenants):
            await scope.many("SELECT 1")
            self.assertEqual(await self.database.many(role), [(before, "", 0)])
            await self.assertFailure(waiting(scope.many("SELECT 1/0")), Problem)
            self.assertEqual(await self.database.many(role), [(before, "", 0)])
            async with scope.session() as session:
                self.assertNotEqual((await session.many(role))[0], (before, "", 0))
                self.assertNotEqual((await session.many(role))[0], (before, "", 0))
            self.assertEqual(await self.database.many(role), [(before, "", 0)])
            await scope.run_reserved("SELECT 1")
            self.assertEqual(await self.database.run_reserved(role), [(before, "", 0)])

    async def test_role_has_only_the_rights_it_needs(self) -> None:
        """It reads no migrations and changes no table."""
        for sql in ("SELECT * FROM schema_versions", "TRUNCATE resources", "DROP POLICY tenants ON resources",
                    "ALTER TABLE resources DISABLE ROW LEVEL SECURITY", "CREATE TABLE x (id int)"):  # fmt: skip
            refused = await self.assertFailure(waiting(self.database.many(sql)), Problem)
            self.assertIn("42501", refused.text, sql)


class CommitTests(TestCase):
    """Units of two tenants in one transaction."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir", tenants=True)
        self.world = World(PostgresFhirStore(self.database), database=self.database, policy=ChannelPolicy(PERMISSIVE))

    async def found(self, tenant: str, query: str) -> list[str]:
        """Family names."""
        answer = await self.world.send("GET", f"Patient?{query}", None, tenant)
        names = answer.body.decode().split('"family":"')[1:]
        return [name.partition('"')[0] for name in names]

    async def test_units_of_two_tenants(self) -> None:
        """Each is written for its own tenant: resources, index, receipts, events in order; a repeat finds its own."""
        channel = {"type": "rest-hook", "endpoint": "https://hook.example.org/"}
        subscription = {"resourceType": "Subscription", "id": "s", "status": "requested", "reason": "t",
                        "criteria": "Patient?", "channel": channel}  # fmt: skip
        for tenant in ("alpha", "beta"):
            answer = await self.world.send("PUT", "Subscription/s", subscription, tenant)
            self.assertEqual(answer.status, 201, answer.body)
        for number in (1, 2):
            units = [
                unit(put(patient(mrn, f"{tenant}{number}"), by_mrn(mrn)), receipt=f"r{number}{mrn}", tenant=tenant)
                for mrn in ("1", "2") for tenant in ("beta", "alpha")
            ]  # fmt: skip
            results = await self.world.commit(*units)
            self.assertFalse([one for one in results if isinstance(one, Problem)])
        for tenant in ("alpha", "beta"):
            self.assertEqual(await self.found(tenant, "_sort=_id"), [f"{tenant}2"] * 2)
            self.assertEqual(await self.found(tenant, "identifier=urn:mrn|1"), [f"{tenant}2"])
            events = await self.database.for_tenant(tenant).many(
                "SELECT event_number FROM subscription_events ORDER BY 1"
            )
            self.assertEqual([number for (number,) in events], [1, 2, 3, 4])
            receipts = await self.database.for_tenant(tenant).many("SELECT key FROM receipts ORDER BY 1")
            self.assertEqual([key for (key,) in receipts], ["r11", "r12", "r21", "r22"])
        self.assertEqual(await self.found("gamma", "_count=9"), [])

    async def test_reads_of_a_transaction(self) -> None:
        """They see what it wrote, and nothing of another tenant; with reads only, too."""
        await self.world.send("PUT", "Patient/p", {**patient("1", "alpha"), "id": "p"}, "alpha")
        write = {"resource": patient("1", "beta"), "request": {"method": "POST", "url": "Patient"}}
        search = {"request": {"method": "GET", "url": "Patient?identifier=urn:mrn|1"}}
        other = {"request": {"method": "GET", "url": "Patient/p"}}
        for entries, status in (([write, search], 200), ([search], 200), ([write, other], 404), ([other], 404)):
            bundle = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
            answer = await self.world.send("POST", "", bundle, "beta")
            self.assertEqual(answer.status, status, answer.body)
            if status == 200:
                self.assertEqual(loads(answer.body)["entry"][-1]["resource"]["total"], 1)
        self.assertEqual(await self.found("beta", "_sort=_id"), ["beta"])

    async def test_many_units_and_a_conflict(self) -> None:
        """More than a statement takes; and one that fails keeps nobody back."""
        units = [unit(put(patient(str(n), f"F{n}"), by_mrn(str(n))), tenant=("alpha", "beta")[n % 2])
                 for n in range(130)]  # fmt: skip
        wrong = unit(put({**patient("1"), "id": "none"}, if_match=7), tenant="beta")
        results = await self.world.commit(*units, wrong)
        self.assertEqual([isinstance(one, Problem) for one in results], [False] * 130 + [True])
        for tenant in ("alpha", "beta"):
            self.assertEqual(len(await self.found(tenant, "_count=100")), 65)


class MultiTenantStoreTests(contract.FhirStoreContract):
    """The contract of the store, under row-level security."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir", tenants=True)
        self.store = PostgresFhirStore(self.database)

    async def numbers(self, subscription_rid: int) -> list[int]:
        """From the table."""
        sql = f"SELECT event_number FROM subscription_events WHERE subscription_rid = {subscription_rid} ORDER BY 1"
        return [row[0] for row in await self.database.all_tenants.many(sql)]


class SecureTests(TestCase):
    """Creating the role, by users with and without the right to."""

    async def run_as_superuser(self, sql: str) -> None:
        connection = await connect((await postgres.server()).url("postgres"), reactor=reactor)
        try:
            await connection.run(sql)
        finally:
            connection.close()

    async def owned_by(self, user: str, rights: str = "") -> tuple[str, str]:
        """A migrated database of a user who is no superuser; its URL and the name of its role."""
        url = await postgres.fresh_url(None)
        name = parse_dsn(url)["dbname"]
        await self.run_as_superuser(f"CREATE ROLE {user} LOGIN {rights}; ALTER DATABASE {name} OWNER TO {user}")
        url = make_dsn(**{**parse_dsn(url), "user": user})
        await migrate(url, "fhir", reactor=reactor)
        return url, f"ipf_tenants_{name}"

    async def obstacle(self, url: str) -> str:
        connection = await connect(url, reactor=reactor)
        try:
            return await obstacle(connection)
        finally:
            connection.close()

    async def works(self, url: str) -> None:
        database = Database(url, reactor=reactor, **postgres.PATIENT, size=1, tenants=True)
        await database.start()
        await database.all_tenants.many("INSERT INTO receipts (partition_id, key, correlation_id)"
                                     " VALUES (1, 'k', '00000000-0000-7000-8000-000000000007')")  # fmt: skip
        self.assertEqual(await database.for_tenant("default").many("SELECT key FROM receipts"), [("k",)])
        self.assertEqual(await database.many("SELECT key FROM receipts"), [])
        await database.close()

    async def test_missing_rights_name_the_statements_to_run(self) -> None:
        """Once they were run the start succeeds."""
        url, role = await self.owned_by("plain_owner")
        refused = await self.assertFailure(waiting(secure(url, reactor=reactor)), Problem)
        self.assertEqual(await self.obstacle(url), refused.text)
        statements = f'CREATE ROLE "{role}" NOLOGIN NOINHERIT; GRANT "{role}" TO "plain_owner"'
        self.assertIn(statements, refused.text)
        await self.run_as_superuser(statements)
        self.assertEqual(await self.obstacle(url), "")
        await secure(url, reactor=reactor)
        await self.works(url)

    async def test_create_role_with_concurrent_replicas(self) -> None:
        """Twice at once, and again at the next start."""
        url, _ = await self.owned_by("maker_owner", "CREATEROLE")
        self.assertEqual(await self.obstacle(url), "")
        await gatherResults([waiting(secure(url, reactor=reactor)) for _ in range(3)])
        await secure(url, reactor=reactor)
        await self.works(url)

    async def test_superuser_marks_functions_leakproof(self) -> None:
        """Ranges of numbers are index conditions behind the policy."""
        database = await postgres.database(self, "fhir", size=1, tenants=True)
        names = ", ".join(f"'{one}'::regprocedure" for one in LEAKPROOF)
        marked = await database.many(f"SELECT proleakproof FROM pg_proc WHERE oid IN ({names})")
        self.assertEqual(marked, [(True,)] * len(LEAKPROOF))
        plan = await database.for_tenant("default").many(
            "EXPLAIN SELECT rid FROM index_quantity WHERE partition_id = 1 AND param = 1 AND lo > 1.5 AND hi < 2"
        )
        (condition,) = (line for (line,) in plan if "Index Cond" in line)
        self.assertIn("lo > 1.5", condition)
