"""Every prepared statement is bound to a tenant, or is named here with the reason why it serves all of them."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.store.deliveries import bindings, deliveries
from ipf.store.resources import resources

ALL_TENANTS = {
    "fhir_counts": "health and tests: numbers by type",
    "fhir_update_resources": "rows by rid, which `fhir_ask` found within the tenant",
    "fhir_insert_events": "subscriptions by rid, which the matching index keeps by tenant",
    "reindex_open": "whether there is a job at all",
    "reindex_take": "the reindex stage serves all; a job says its tenant",
    "reindex_progress": "a job by id, by the worker that took it",
    "reindex_clear_index_text": "definitions of the default tenant count for all",
    "reindex_clear_index_date": "the same",
    "reindex_clear_index_quantity": "the same",
    "export_expire": "what is over, whosever it was",
    "delivery_lease": "the delivery stage serves all; a lease carries its tenant",
    "delivery_heartbeats": "the same",
    "delivery_events": "by the rid and token of a lease",
    "delivery_settle": "by the rid and token of a lease",
    "delivery_settle_one": "by the rid and token of a lease",
    "delivery_requested": "the activation stage serves all; rows carry their tenant",
    "delivery_ended": "the same",
    "delivery_active": "a gauge",
    "delivery_holders": "names of workers",
    "delivery_release": "what a dead worker held",
    "delivery_tail": "websockets by rid, which `delivery_bound` found within the tenant",
    "delivery_told": "the same",
    "bindings_redeem": "by a secret token, whose row says the tenant",
}
EVERYONE = {
    "audit": "operators search the trail of all; ids by their keys, whose index a policy would shut; purging",
    "bindings": "by a secret token, whose row says the tenant",
    "deliveries": "the delivery and activation stages serve all; leases and rows say their tenant",
    "delivery_lifecycle": "subscriptions that ended, whosever they were",
    "delivery_reports": "the operator's health of all",
    "delivery_sockets": "websockets by the rids that a bound one found within its tenant",
    "exports": "the export stage takes the next job, whosever it is, and removes what is over",
    "observe": "the operator's traces",
    "reindex": "definitions of the default tenant count for all; a job says its tenant",
    "resources": "numbers by type; what every writer must know of subscriptions and topics",
    "retention": "what is old, whosever it was",
}
BARE = {
    "audit": "a batch of several tenants, each part behind its name; and as it is where nothing is divided",
    "exports": "a tenant comes into being with its first job, in front of its name",
    "resources": "a transaction, whose strings each name a tenant",
}
_TABLES = (
    "resources|resource_versions|index_text|index_date|index_quantity|index_units|receipts|subscription_states|"
    "subscription_events|subscription_topics|subscription_grants|delivery_attempts|reindex_jobs|export_jobs|export_parts|"
    "websocket_tokens|audit_blocks"
)
_TOUCHED = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE)\s+({_TABLES})\b")
_BOUND = re.compile(
    r"partition_id = (?:\$|[a-z]+\.partition_id|\(SELECT)|p\.name = \$|name = \$1"
    r"|INSERT INTO \w+(?: AS \w+)?\s*\([^)]*partition_id"
)


class BoundTests(TestCase):
    def test_every_statement_is_bound_or_named(self) -> None:
        unbound = {
            statement.name
            for statement in (*resources.STATEMENTS, *deliveries.STATEMENTS, *bindings.STATEMENTS)
            if _TOUCHED.search(statement.sql) and not _BOUND.search(statement.sql)
        }
        self.assertEqual(unbound, set(ALL_TENANTS))

    def test_who_steps_out_of_the_role_is_named(self) -> None:
        """Only these rooms of the store work on rows of several tenants, each with its reason."""
        folder = Path(resources.__file__).parent
        found = {path.stem for path in folder.glob("*.py") if re.search(r"\.everyone\b|self\._all\.", path.read_text())}
        self.assertEqual(found - {"scopes", "database"}, set(EVERYONE))

    def test_who_asks_for_nobody_is_named(self) -> None:
        """A statement of the FHIR database that names no tenant would find nothing: `of` or `everyone` runs it."""
        folder = Path(resources.__file__).parent
        inbox = {"codes", "message_desk", "message_index", "message_find", "inbox", "inbox_admin", "inbox_pages"}
        bare = re.compile(r"self\._database\.(?:many|one|maybe|call|session|transact)\(")
        found = {path.stem for path in folder.glob("*.py") if bare.search(path.read_text())}
        self.assertEqual(found - inbox - {"scopes"}, set(BARE))
