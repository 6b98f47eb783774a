"""The tests of each row of the interface specification: states, operations, endpoints, limits, errors, log events.

A row names its tests; a test that is renamed or removed fails here.  Rows of the admin and observability APIs are
tested over HTTP.
"""

from __future__ import annotations

from importlib import import_module
from unittest import TestCase as AnyCase

from twisted.trial.unittest import TestCase

MESSAGES = "tests.wire.admin.test_contract.ContractTest."
SUBSCRIPTIONS = "tests.wire.admin.test_contract_subscriptions.SubscriptionContractTest."
OBSERVE = "tests.wire.observe.test_observe.ObserveTests."
RECEIVE = "tests.pipeline.receive.test_receive."
CONVERT = "tests.pipeline.convert.test_convert.ConvertTests."
INBOX = "tests.store.inbox.test_inbox.PostgresInboxTest."
FLOW = "tests.flows.test_messages.MessageFlowTests."
END_TO_END = FLOW + "test_messages_become_resources_and_notifications"
UNMAPPED = FLOW + "test_what_no_map_takes"
OPERATED = FLOW + "test_operators_find_and_replay_messages"
EXPOSED = FLOW + "test_metrics_of_all_processes_are_one_page"
KILLED = "tests.faults.test_killed.KilledTests"
STATUSES = "tests.subscriptions.test_status.StatusTests."
HANDLING = "tests.rest.interactions.test_handling.HandlingTests."
BODIES = "tests.wire.http.test_site.LimitTests."

ROWS = {
    "state: received, persisted, then AA": [RECEIVE + "AcceptedTests.test_stored_then_acknowledged", END_TO_END],
    "state: duplicate": [RECEIVE + "AcceptedTests.test_duplicates_are_accepted_and_make_no_row", END_TO_END],
    "state: RECEIVED claimed": [INBOX + "test_claims_are_disjoint_and_oldest_first", INBOX + "test_lifecycle"],
    "state: FAILED claimed when due": [INBOX + "test_lifecycle"],
    "state: DELIVERED": [CONVERT + "test_delivered_with_receipt", END_TO_END],
    "state: FAILED with backoff": [CONVERT + "test_failure_waits_for_the_backoff"],
    "state: DEAD_LETTER": [CONVERT + "test_last_failure_makes_a_dead_letter", UNMAPPED],
    "state: stale rows at start": [INBOX + "test_stale_rows_are_failed_attempts", KILLED],
    "operations: retry and delete in each state, conflict body": [MESSAGES + "test_states_and_operations", UNMAPPED],
    "status of a Subscription: every row": [STATUSES + "test_transitions_of_the_specification"],
    "status of a Subscription: PATCH": [SUBSCRIPTIONS + "test_any_status_becomes_any_other"],
    "GET /admin/messages": [MESSAGES + "test_list_filters_and_totals", MESSAGES + "test_limit_and_offset"],
    "GET /admin/messages/{id}": [MESSAGES + "test_states_and_operations", MESSAGES + "test_refusals"],
    "GET /admin/messages/{id}/effects": ["tests.wire.admin.test_jobs.EffectsTest.test_what_a_message_did", OPERATED],
    "GET /admin/subscriptions/health": [SUBSCRIPTIONS + "test_health"],
    "GET /admin/subscriptions/{id}/history": [SUBSCRIPTIONS + "test_history"],
    "GET /admin/subscriptions/{id}/resource": [SUBSCRIPTIONS + "test_the_resource"],
    "PATCH /admin/subscriptions/{id}/status": [SUBSCRIPTIONS + "test_any_status_becomes_any_other"],
    "GET /admin/observe/system": [OBSERVE + "test_system", OBSERVE + "test_system_without_its_store"],
    "GET /admin/observe/throughput": [OBSERVE + "test_throughput", OBSERVE + "test_windows"],
    "GET /admin/observe/dlq": [OBSERVE + "test_dead_letters"],
    "GET /admin/observe/trace/{correlationId}": [OBSERVE + "test_trace", "tests.flows.test_systemd.SystemdTests"],
    "GET /admin/observe/openapi.json": [OBSERVE + "test_the_document_is_openapi", OBSERVE + "test_the_token"],
    "GET /actuator/health": ["tests.wire.admin.test_actuator.ActuatorTests.test_all_up"],
    "GET /actuator/prometheus": ["tests.wire.admin.test_actuator.ActuatorTests.test_metrics", EXPOSED],
    "admin token": [MESSAGES + "test_tokens", SUBSCRIPTIONS + "test_refusals", OBSERVE + "test_the_token"],
    "error 400: status of a list": [MESSAGES + "test_refusals"],
    "error 400: status of a PATCH": [SUBSCRIPTIONS + "test_refusals"],
    "error 401: messages and the rest": [MESSAGES + "test_tokens"],
    "error 401: subscriptions, observability": [SUBSCRIPTIONS + "test_refusals", OBSERVE + "test_the_token"],
    "error 404: messages": [MESSAGES + "test_refusals"],
    "error 404: subscriptions": [SUBSCRIPTIONS + "test_refusals"],
    "error 409: retry, delete": [MESSAGES + "test_states_and_operations"],
    "error 413: with the schema version": [BODIES + "test_observability_errors_carry_their_version"],
    "error bodies of observability": [OBSERVE + "test_refusals_carry_the_version"],
    "error 422: channel security": ["tests.subscriptions.test_policy.ModeTests.test_modes"],
    "limit and offset": [MESSAGES + "test_limit_and_offset", SUBSCRIPTIONS + "test_history"],
    "limit: 500 subscriptions": [SUBSCRIPTIONS + "test_at_most_500"],
    "limits of attempts and backoff": [CONVERT + "test_failure_waits_for_the_backoff"],
    "log record": ["tests.telemetry.test_logs.RecordTests.test_required_fields", UNMAPPED],
    "log events: retry_scheduled, dlq, transformed, delivered, pass-through": [UNMAPPED, OPERATED],
    "log event: subscription_status_changed": [SUBSCRIPTIONS + "test_any_status_becomes_any_other"],
    "decision: formats and required codes on every write": [
        "tests.rest.interactions.test_structure.StructureTests.test_every_write",
        "tests.pipeline.convert.test_structure.StructureCheckTests.test_a_wrong_code",
    ],
    "decision: unknown parameters of a search": [HANDLING + "test_ignored_and_named", HANDLING + "test_the_setting"],
    "decision: unknown parameters of conditions and criteria": [
        HANDLING + "test_conditions_are_always_strict", HANDLING + "test_criteria_are_always_strict",
        "tests.rest.write.test_topics.TopicOnPostgresTests.test_req_8_9_62_63_unknown_topics_and_filters_are_refused",
    ],
    "decision: POST [type]?params": [
        "tests.rest.interactions.test_structure.StructureTests.test_a_create_has_no_parameters",
    ],
    "correlation header": ["tests.telemetry.test_correlation.CorrelationTests.test_a_callers_uuid_is_kept"],
    "ACK codes": [RECEIVE + "NotStoredTests.test_store_unreachable", RECEIVE + "NotStoredTests.test_missing_map",
                  RECEIVE + "RejectedTests.test_missing_fields_are_named_and_the_reject_is_stored"],
}  # fmt: skip


class RowsTest(TestCase):
    def test_every_row_has_its_tests(self) -> None:
        for row, names in ROWS.items():
            for name in names:
                self.assertTrue(_exists(name), f"{row}: {name}")


def _exists(name: str) -> bool:
    """Whether there is such a test case, or such a test in one."""
    place, _, last = name.rpartition(".")
    if last.startswith("test_"):
        module, _, case = place.rpartition(".")
        return callable(getattr(getattr(import_module(module), case, None), last, None))
    found = getattr(import_module(place), last, None)
    return isinstance(found, type) and issubclass(found, AnyCase)
