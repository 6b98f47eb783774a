"""Metrics: the names and labels of the decisions, bounded labels, and one sum over several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from twisted.trial.unittest import TestCase

from ipf.telemetry import metrics
from ipf.telemetry.exposition import text_of
from ipf.telemetry.metrics_directory import PART

CHILD = """
import sys
from pathlib import Path
from ipf.telemetry import metrics_directory
if sys.argv[2] == "first":
    metrics_directory.prepare(Path(sys.argv[1]))
from ipf.telemetry import metrics
metrics.message_received("A")
metrics.dead_letters(4 if sys.argv[2] == "second" else 3)
sys.stdout.buffer.write(metrics.exposition())
"""


class MetricsTests(TestCase):
    def test_names_and_labels(self) -> None:
        metrics.message_delivered("A", 0.2)
        metrics.transformed(metrics.SUCCESS, 0.001)
        metrics.fhir_posted(metrics.FAILURE, 0.001)
        metrics.dead_lettered("MAPPING")
        metrics.dead_letters(3)
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

    def test_the_text_is_the_librarys(self) -> None:
        """Byte for byte, with all that a label value or a description may hold."""
        registry = CollectorRegistry()
        counter = Counter("a_things", 'of "all"\nkinds \\ here', ("b", "a"), registry=registry)
        for value in ("plain", 'q"uoted', "back\\slash", "line\nfeed", "\u00e9\u4e2d", ""):
            counter.labels(value, "x").inc(2.5)
        Gauge("a_gauge", "g", registry=registry).set(float("nan"))
        Gauge("b_gauge", "g", registry=registry).set(1e21)
        histogram = Histogram("a_spread", "h", ("k",), registry=registry, buckets=(0.1, 1.0, 2.5))
        histogram.labels("v").observe(0.5)
        ProcessCollector(registry=registry)
        ours, theirs = text_of(registry).decode(), generate_latest(registry).decode()
        same = [line for line in theirs.splitlines() if not line.startswith("process_")]
        self.assertEqual([line for line in ours.splitlines() if not line.startswith("process_")], same)

    def test_counts(self) -> None:
        labels = {"status": "RECEIVED", "source_protocol": "HL7V2_MLLP", "source_system": "COUNTED"}
        metrics.message_received("COUNTED")
        metrics.message_received("COUNTED", count=4)
        self.assertEqual(metrics.sample("interface_engine_ingested_messages_total", **labels), 5)

    def test_senders_cannot_grow_the_labels_without_bound(self) -> None:
        for number in range(metrics.SOURCE_SYSTEMS + 50):
            metrics.message_received(f"sender-{number}")
        lines = metrics.exposition().decode().splitlines()
        systems = [line for line in lines if line.startswith("interface_engine_ingested") and "RECEIVED" in line]
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

    def test_processes_are_added_up(self) -> None:
        folder = self.mktemp()
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        environment.pop("PROMETHEUS_MULTIPROC_DIR", None)
        os.makedirs(folder)
        dead = Path(folder) / "service-dead"
        dead.mkdir()
        (dead / "counter_1.db").write_bytes(b"left over")
        for run in ("first", "second", "second"):
            child = subprocess.run(
                [sys.executable, "-c", CHILD, folder, run], env=environment, capture_output=True, check=True
            )
            environment |= {"PROMETHEUS_MULTIPROC_DIR": str(next(Path(folder).iterdir())), PART: "converter1"}
        text = child.stdout.decode()
        self.assertIn('source_system="A",status="RECEIVED"} 3.0', text)
        files = {file.name: file.stat() for file in Path(environment["PROMETHEUS_MULTIPROC_DIR"]).glob("*.db")}
        self.assertEqual(len(files), 8, "one set for each part, also when it is started again")
        for name, stat in files.items():
            self.assertGreaterEqual(stat.st_blocks * 512, stat.st_size, f"{name}: space that is not there yet")
        self.assertIn("interface_engine_dlq_current_size 4.0", text)
        self.assertIn("process_resident_memory_bytes", text)
