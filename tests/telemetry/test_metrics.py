"""Metrics: the names and labels of the decisions, bounded labels, and one sum over several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.errors import Category
from ipf.telemetry import metrics
from ipf.telemetry.metrics_directory import PART, VARIABLE

ROOT = Path(__file__).resolve().parents[2]
STATES = ("RECEIVED", "TRANSFORMING", "FAILED", "DELIVERED", "DEAD_LETTER")

CHILD = """
import sys
from pathlib import Path
from ipf.telemetry import metrics_directory
if sys.argv[2] == "first":
    metrics_directory.prepare(Path(sys.argv[1]))
from ipf.telemetry import metrics
metrics.message_received("A")
metrics.queue({"DEAD_LETTER": 4 if sys.argv[2] == "second" else 3}, 0.0)
sys.stdout.buffer.write(metrics.exposition())
"""


EXPOSE = """
import sys
from ipf.app.stages.monitoring import gauges_from_zero
from ipf.telemetry import metrics
gauges_from_zero()
sys.stdout.buffer.write(metrics.exposition())
"""
PROTOCOLS = ("HL7V2_MLLP", "FHIR_REST", "EHR_NATIVE_API", "OTHER")
OUTCOMES = ("success", "failure")
REASONS = (*(category.name.lower() for category in Category), "stale")


def known_series() -> Iterator[str]:
    """The metrics of the interface specification and of decisions section 3, with every label known in advance."""
    for status in STATES:
        for protocol in PROTOCOLS:
            labels = f'source_protocol="{protocol}",source_system="other",status="{status}"'
            yield f"interface_engine_ingested_messages_total{{{labels}}}"
        yield f'interface_engine_queue_messages{{status="{status}"}}'
    for outcome in OUTCOMES:
        yield f'interface_engine_transform_duration_seconds_count{{outcome="{outcome}"}}'
        yield f'interface_engine_fhir_post_duration_seconds_count{{outcome="{outcome}"}}'
        yield f'fhir_subscription_delivery_total{{outcome="{outcome}"}}'
        yield f'fhir_subscription_delivery_duration_seconds_count{{outcome="{outcome}"}}'
    for reason in REASONS:
        for protocol in PROTOCOLS:
            yield f'interface_engine_dlq_transitions_total{{reason="{reason}",source_protocol="{protocol}"}}'
    yield "interface_engine_received_to_delivered_seconds_count"
    yield "interface_engine_dlq_current_size"
    yield "fhir_subscription_active"
    yield "interface_engine_queue_oldest_seconds"
    yield "interface_engine_identity_conflicts_open"
    yield "interface_engine_silent_senders"


class MetricsTests(TestCase):
    def test_names_and_labels(self) -> None:
        metrics.message_delivered("A", 0.2)
        metrics.transformed(metrics.SUCCESS, 0.001)
        metrics.fhir_posted(metrics.FAILURE, 0.001)
        metrics.dead_lettered("MAPPING")
        metrics.queue(dict.fromkeys(STATES, 3), 0.0)
        metrics.active_subscriptions(2)
        metrics.notification_sent(True, 0.01)
        metrics.duplicate_received(conflicting=True)
        metrics.frame_rejected("AR")
        text = metrics.exposition().decode()
        for line in (
            'interface_engine_ingested_messages_total{source_protocol="HL7V2_MLLP",source_system="A",status="DELIVERED"}',
            'interface_engine_transform_duration_seconds_count{outcome="success"}',
            'interface_engine_fhir_post_duration_seconds_count{outcome="failure"}',
            "interface_engine_received_to_delivered_seconds_count ",
            'interface_engine_dlq_transitions_total{reason="mapping",source_protocol="HL7V2_MLLP"}',
            "interface_engine_dlq_current_size 3.0",
            "fhir_subscription_active 2.0",
            'fhir_subscription_delivery_total{outcome="success"}',
            'fhir_subscription_delivery_duration_seconds_bucket{le="0.01",outcome="success"}',
        ):
            self.assertIn(line, text)

    def test_every_metric_of_the_contract_exists_from_the_start(self) -> None:
        """A service that has counted nothing exposes each series at zero, with files for several processes too."""
        expected = {f"{series} 0.0" for series in known_series()}
        shared = Path(self.mktemp()).resolve()
        shared.mkdir()
        for given in ({}, {VARIABLE: str(shared)}):
            environment = {name: value for name, value in os.environ.items() if name != VARIABLE} | given
            exposed = subprocess.run(
                [sys.executable, "-c", EXPOSE], env=environment, cwd=ROOT, capture_output=True, check=True
            ).stdout.decode()
            self.assertEqual(expected - set(exposed.splitlines()), set(), given)

    def test_counts(self) -> None:
        labels = {"status": "RECEIVED", "source_protocol": "HL7V2_MLLP", "source_system": "COUNTED"}
        metrics.message_received("COUNTED")
        metrics.message_received("COUNTED", count=4)
        self.assertEqual(metrics.sample("interface_engine_ingested_messages_total", **labels), 5)

    def test_source_systems_are_bounded(self) -> None:
        self.addCleanup(metrics._source_systems.intersection_update, set(metrics._source_systems))
        for number in range(metrics.SOURCE_SYSTEMS + 50):
            metrics.message_received(f"sender-{number}")
        lines = metrics.exposition().decode().splitlines()
        systems = [
            line
            for line in lines
            if line.startswith("interface_engine_ingested") and "MLLP" in line and "RECEIVED" in line
        ]
        self.assertLessEqual(len(systems), metrics.SOURCE_SYSTEMS + 1)
        labels = {"status": "RECEIVED", "source_protocol": "HL7V2_MLLP", "source_system": "other"}
        self.assertGreaterEqual(metrics.sample("interface_engine_ingested_messages_total", **labels), 50)

    def test_reasons_and_codes_are_closed_sets(self) -> None:
        metrics.dead_lettered("Patient 123 is wrong")
        metrics.frame_rejected("free text")
        text = metrics.exposition().decode()
        self.assertIn('reason="other"', text)
        self.assertIn('interface_engine_rejected_frames_total{code="other"}', text)
        self.assertNotIn("Patient 123", text)

    def test_values_of_all_processes_are_added_up(self) -> None:
        folder = self.mktemp()
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        environment.pop(VARIABLE, None)
        os.makedirs(folder)
        dead = Path(folder) / "service-dead"
        dead.mkdir()
        (dead / "counter_1.db").write_bytes(b"left over")
        for run in ("first", "second", "second"):
            child = subprocess.run(
                [sys.executable, "-c", CHILD, folder, run], env=environment, capture_output=True, check=True
            )
            environment |= {VARIABLE: str(next(Path(folder).iterdir())), PART: "converter1"}
        text = child.stdout.decode()
        self.assertIn('source_system="A",status="RECEIVED"} 3.0', text)
        files = {file.name: file.stat() for file in Path(environment[VARIABLE]).glob("*.db")}
        self.assertEqual(len(files), 8, "one set for each process, also after its restart")
        for name, stat in files.items():
            self.assertGreaterEqual(stat.st_blocks * 512, stat.st_size, f"{name}: disk space is not reserved")
        self.assertIn("interface_engine_dlq_current_size 4.0", text)
        self.assertIn("process_resident_memory_bytes", text)
