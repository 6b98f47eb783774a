"""Every SQL constant prepares, and the hot ones walk indexes."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.store import bindings, deliveries, inbox, resources
from ipf.store.asks import CURRENT_VERSION
from ipf.store.quoting import Statement
from ipf.store.scopes import BIND, NUMBER
from tests import postgres

# Statements that read a whole table on purpose.
_WHOLE = {"inbox_counts", "names_all", "fhir_counts", "fhir_next_rids", "fhir_ask", "names_add_partitions",
          "names_add_parameters", "fhir_bump_epoch", "fhir_subscriptions", "delivery_requested"}  # fmt: skip


def _explain(statement: Statement) -> str:
    count = len(statement.types.split(",")) if statement.types else 0
    arguments = f"({', '.join(['NULL'] * count)})" if count else ""
    return f"EXPLAIN EXECUTE {statement.name}{arguments}"


class StatementsTest(TestCase):
    """Opening a pool prepares all of them: a statement that does not prepare fails here."""

    async def _check(self, kind: postgres.Kind, statements: tuple[Statement, ...], **options: bool) -> None:
        database = await postgres.database(self, kind, size=1, **options)
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
        await self._check("fhir", (*resources.STATEMENTS, *deliveries.STATEMENTS, *bindings.STATEMENTS))

    async def test_fhir_with_tenants(self) -> None:
        """The same behind the policies of row-level security."""
        statements = (*resources.STATEMENTS, *deliveries.STATEMENTS, *bindings.STATEMENTS, BIND, NUMBER)
        await self._check("fhir", statements, tenants=True)

    def test_one_version_is_found_from_its_resource(self) -> None:
        """Where something else names the rid, statistics decide whether all versions are read: see CURRENT_VERSION."""
        doubtful, found = r"ON r\.rid = [a-z]\.rid\s+JOIN resource_versions v ON v\.rid = r\.rid AND", 0
        for statement in (*resources.STATEMENTS, *deliveries.STATEMENTS, *bindings.STATEMENTS):
            self.assertNotRegex(statement.sql, doubtful)
            found += CURRENT_VERSION in statement.sql
        self.assertGreater(found, 4)
