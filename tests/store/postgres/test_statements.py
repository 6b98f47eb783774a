"""Every SQL constant prepares, and the frequent ones use index scans."""

from __future__ import annotations

from collections.abc import Iterator

from twisted.trial.unittest import TestCase

from ipf.ports import Json
from ipf.store.deliveries import bindings, deliveries
from ipf.store.inbox import inbox
from ipf.store.postgres.quoting import Statement
from ipf.store.postgres.tenant_scope import SET_TENANT, TENANT_NUMBER
from ipf.store.resources import resources
from tests import postgres

# Statements that read a whole table on purpose.
_WHOLE = {"inbox_counts", "names_all", "fhir_counts", "fhir_next_rids", "fhir_look_up", "names_add_partitions",
          "names_add_parameters", "fhir_bump_epoch", "fhir_subscriptions", "delivery_requested"}  # fmt: skip


# Statements that look through the versions of a resource on purpose.
_SEVERAL_VERSIONS = {
    "fhir_history", "fhir_history_all", "fhir_history_type", "fhir_history_rare_type", "export_page", "export_versions",
    "fhir_history_upwards", "fhir_history_all_upwards", "fhir_history_type_upwards", "fhir_history_rare_type_upwards",
    "fhir_history_count",
}  # fmt: skip
_FEW_WITH_MANY_VERSIONS = """
INSERT INTO resources SELECT n, 1, 'Patient', 'x' || n, 1, now(), false FROM generate_series(-2000, -1) n;
INSERT INTO resource_versions SELECT n, 1, 1, now(), 'PUT', false, gen_random_uuid(), '{}'
    FROM generate_series(-2000, -1) n;
INSERT INTO subscription_states (rid, partition_id, id, status) SELECT n, 1, 'x' || n, 'active'
    FROM generate_series(-3, -1) n;
INSERT INTO index_text SELECT 1, 1, 'v' || n || E'\\ts', -n FROM generate_series(1, 2000) n;
INSERT INTO resource_versions SELECT -1, n, 1, now(), 'PUT', false, gen_random_uuid(), '{}'
    FROM generate_series(2, 300) n;
UPDATE resources SET version_id = 300 WHERE rid = -1"""


def _scans(plan: Json, table: str) -> Iterator[Json]:
    """The nodes of a plan that read a table."""
    if plan.get("Relation Name") == table and plan["Node Type"].startswith(("Index", "Seq", "Bitmap")):
        yield plan
    for below in plan.get("Plans", ()):
        yield from _scans(below, table)


def _explain(statement: Statement, options: str = "") -> str:
    count = len(statement.types.split(",")) if statement.types else 0
    arguments = f"({', '.join(['NULL'] * count)})" if count else ""
    return f"EXPLAIN {options} EXECUTE {statement.name}{arguments}"


class StatementsTest(TestCase):
    """Opening a pool prepares all of them: a statement that does not prepare fails here."""

    async def _check(self, kind: postgres.Kind, statements: tuple[Statement, ...], **options: bool) -> None:
        database = await postgres.database(self, kind, size=1, prepare_on_use=False, **options)
        names = {row[0] for row in await database.many("SELECT name FROM pg_prepared_statements")}
        self.assertEqual(names, {statement.name for statement in statements})
        for statement in statements:
            plan = "\n".join(row[0] for row in await database.many(_explain(statement)))
            if statement.name not in _WHOLE:
                self.assertNotIn("Seq Scan", plan, f"{statement.name}:\n{plan}")
                self.assertNotIn("Hash Join", plan, f"{statement.name}:\n{plan}")

    async def test_inbox(self) -> None:
        """The inbox's statements, also without statistics."""
        await self._check("ipf", inbox.STATEMENTS)

    async def test_fhir(self) -> None:
        """The FHIR store's and the delivery queue's statements."""
        await self._check("fhir", postgres.STATEMENTS["fhir"])

    async def test_fhir_with_tenants(self) -> None:
        """The same behind the policies of row-level security."""
        await self._check("fhir", (*postgres.STATEMENTS["fhir"], SET_TENANT, TENANT_NUMBER), tenants=True)

    async def test_one_version_is_found_from_its_resource(self) -> None:
        """By rid and number together, not among all of the rid, also where few resources have many versions.

        With these rows and their statistics PostgreSQL reads all versions of the rid that something beside `resources`
        names, where a statement lets it: a Subscription's state, or an index row (see `lookup.CURRENT_VERSION`).
        """
        database = await postgres.database(self, "fhir", size=1)
        await database.many(_FEW_WITH_MANY_VERSIONS)
        await database.many("ANALYZE")
        seen = set()
        for statement in (*resources.STATEMENTS, *deliveries.STATEMENTS, *bindings.STATEMENTS):
            ((plan,),) = await database.many(_explain(statement, "(FORMAT JSON)"))
            for scan in _scans(plan[0]["Plan"], "resource_versions"):
                seen.add(statement.name)
                if statement.name not in _SEVERAL_VERSIONS:
                    self.assertIn("version_id =", scan["Index Cond"], f"{statement.name}: {scan}")
        self.assertLessEqual({"fhir_read", "fhir_look_up", "fhir_match", "fhir_changes", "delivery_lease"}, seen)
