"""Every prepared statement is restricted to a tenant, or is listed here with the reason why it serves all of them."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf import store
from ipf.store.deliveries import bindings, deliveries
from ipf.store.resources import resources

ALL_TENANTS = {
    "fhir_counts": "health and tests: numbers by type",
    "fhir_update_resources": "rows by rid, which `fhir_look_up` found within the tenant",
    "fhir_insert_events": "subscriptions by rid, which the matching index keeps by tenant",
    "reindex_open": "whether there is a job at all",
    "reindex_take": "the reindex stage serves all; a job says its tenant",
    "reindex_progress": "a job by id, by the worker that took it",
    "reindex_clear_index_text": "definitions of the default tenant count for all",
    "reindex_clear_index_date": "the same",
    "reindex_clear_index_quantity": "the same",
    "reindex_clear_index_words": "the same",
    "export_versions": "versions by rid, which `export_places` found within the tenant",
    "export_expire": "expired jobs, of any tenant",
    "delivery_lease": "the delivery stage serves all; a lease carries its tenant",
    "delivery_heartbeats": "the same",
    "delivery_events": "by the rid and token of a lease",
    "delivery_settle": "by the rid and token of a lease",
    "delivery_settle_one": "by the rid and token of a lease",
    "delivery_requested": "the activation stage serves all; rows carry their tenant",
    "delivery_ended": "the same",
    "delivery_active": "a gauge",
    "delivery_tenants_of": "operators name a subscription by its id; the answer is the tenant",
    "delivery_holders": "names of workers",
    "delivery_release": "what a dead worker held",
    "delivery_events_after": "websockets by rid, which `delivery_websocket_subscription` found within the tenant",
    "delivery_record_sent": "the same",
    "consents_changes": "the same as `consents_page`",
    "consents_page": "decisions on access are made of all; rows say their tenant",
    "job_expire": "those of all tenants",
    "bindings_redeem": "by a secret token, whose row says the tenant",
}
# Modules, below ipf/store, that work on rows of several tenants.
USE_ALL_TENANTS = {
    "audit/audit": "operators search the trail of all; partitions, retention, records of earlier releases",
    "audit/chain": "the chains of all are made, signed, exported; rows say their tenant",
    "audit/feed": "the feed sends the records of all",
    "deliveries/bindings": "by a secret token, whose row says the tenant",
    "deliveries/deliveries": "the delivery and activation stages serve all; leases and rows say their tenant",
    "deliveries/lifecycle": "subscriptions that ended, of any tenant",
    "deliveries/reports": "the operator's health of all",
    "deliveries/websockets": "by the rids that `delivery_websocket_subscription` found within the tenant",
    "inbox/message_partitions": "partitions of attempts hold those of all tenants",
    "inbox/retention": "rows past their retention, of any tenant",
    "inbox/statistics": "the operator's traces",
    "resources/writing/consents": "decisions on access are made of all; rows say their tenant",
    "resources/exports": "the export stage takes the next job and removes expired ones, of any tenant",
    "resources/jobs": "the next job is taken and expired ones are removed, of any tenant",
    "resources/identity": "operators list the answers of all",
    "resources/reindex": "definitions of the default tenant count for all; a job says its tenant",
    "resources/searches/words": "at the start the index of words is requested for all",
    "resources/resources": "counts by type; changes of subscriptions and topics that every writer must know",
}
# Modules that call the FHIR database itself: a statement there finds nothing unless it sets a tenant.
USE_NO_TENANT = {
    "audit/audit": "a batch of several tenants, each part after its prologue; without row security the batch alone",
    "resources/exports": "a tenant is created with its first job, in front of its prologue",
    "resources/jobs": "the same",
    "resources/resources": "a transaction whose strings each set a tenant",
    "terminology/systems": "code systems of the installation, which have no tenant",
}
# Modules that work on the inbox database, which has no row-level security.
INBOX = {
    "erasure/messages",
    "inbox/conflicts",
    "inbox/feeds",
    "inbox/forwards",
    "inbox/horizon",
    "inbox/remote_effects",
    "inbox/saved_views",
    "inbox/unread_fields",
    "inbox/inbox",
    "inbox/message_admin",
    "inbox/text_index",
    "inbox/unmapped_codes",
}
_TABLES = (
    "resources|resource_versions|index_text|index_date|index_quantity|index_words|index_units|receipts|subscription_states|"
    "subscription_events|subscription_topics|subscription_grants|delivery_attempts|reindex_jobs|export_jobs|export_parts|"
    "jobs|job_results|job_files|"
    "websocket_tokens|audit_records|identity_answers"
)
_TOUCHED = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE)\s+({_TABLES})\b")
_BOUND = re.compile(
    r"partition_id = (?:\$|[a-z]+\.partition_id|\(SELECT)|p\.name = \$|name = \$1"
    r"|INSERT INTO \w+(?: AS \w+)?\s*\([^)]*partition_id"
)


class TenantScopeTest(TestCase):
    def test_every_statement_is_restricted_or_listed(self) -> None:
        unbound = {
            statement.name
            for statement in (*resources.STATEMENTS, *deliveries.STATEMENTS, *bindings.STATEMENTS)
            if _TOUCHED.search(statement.sql) and not _BOUND.search(statement.sql)
        }
        self.assertEqual(unbound, set(ALL_TENANTS))

    def test_users_of_all_tenants_are_listed(self) -> None:
        self.assertEqual(_modules(r"\.all_tenants\b|self\._all_tenants\."), set(USE_ALL_TENANTS))

    def test_users_of_the_bare_database_are_listed(self) -> None:
        found = _modules(r"self\._database\.(?:many|one|maybe|call|session|transact)\(")
        self.assertEqual(found - INBOX, set(USE_NO_TENANT))
        self.assertLessEqual(INBOX, found)


def _modules(pattern: str) -> set[str]:
    """The modules of the store that hold a pattern, as `package/module`; the driver's package is not looked at."""
    root = Path(store.__file__).parent
    names = {path: path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.py")}
    return {
        name for path, name in names.items()
        if not name.startswith("postgres/") and re.search(pattern, path.read_text())
    }  # fmt: skip
