"""Every expression of the alert rules and dashboards uses metrics, labels and values that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml
from prometheus_client.parser import text_string_to_metric_families
from twisted.trial.unittest import TestCase

from ipf.telemetry import (
    access_metrics,
    audit_chain_metrics,
    audit_feed_metrics,
    forward_metrics,
    limit_metrics,
    metrics,
    poll_metrics,
    stall_metrics,
)

ROOT = Path(__file__).resolve().parent.parent
OF_PROMETHEUS = {"job", "instance", "le"}  # labels added by Prometheus, or of histograms
OPEN = {"source_system", "version", "listener", "route", "instance", "job"}  # labels whose values are not a fixed set


def everything() -> dict[str, dict[str, set[str]]]:
    """Name of a series -> label -> values, of an exposition in which everything was counted once."""
    for status in ("RECEIVED", "TRANSFORMING", "DELIVERED", "FAILED", "DEAD_LETTER"):
        metrics.message_entered(status, "A")
    metrics.message_delivered("A", 0.1)
    for outcome in (metrics.SUCCESS, metrics.FAILURE):
        metrics.transformed(outcome, 0.1)
        metrics.fhir_posted(outcome, 0.1)
        metrics.notification_sent(outcome == metrics.SUCCESS, 0.1)
    for content in (True, False):
        metrics.duplicate_received(conflicting=content)
    for code in ("AE", "AR"):
        metrics.frame_rejected(code)
    for outcome in ("success", "failure", "limited"):
        poll_metrics.requested("ehr/lab/results", outcome)
    for outcome in ("sent", "failed", "refused"):
        forward_metrics.forwarded("laboratory", outcome)
    metrics.dead_lettered("mapping")
    metrics.queue(dict.fromkeys(("RECEIVED", "TRANSFORMING", "DELIVERED", "FAILED", "DEAD_LETTER"), 0), 0.0)
    metrics.search_index_lag(0)
    metrics.active_subscriptions(1)
    metrics.mllp_connections("lab", 1)
    for answered in (200, 301, 404, 500):
        metrics.http_answered("/fhir/{type}", "GET", answered, 0.1)
    metrics.reactor_lag("main", 0.1)
    stall_metrics.stalled("main", 0.2)
    metrics.database_connections("inbox", 1, 0, 0)
    metrics.rows_removed("messages", 1)
    audit_feed_metrics.records_sent(1)
    audit_feed_metrics.seconds_behind(1)
    audit_chain_metrics.records_chained(1)
    audit_chain_metrics.record_missing()
    audit_chain_metrics.waiting(1, 1)
    access_metrics.break_glass_used()
    limit_metrics.limited(limit_metrics.REJECT)
    metrics.build("1")
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """(where, expression) of every rule and every panel."""
    for path in sorted((ROOT / "etc/prometheus").glob("*.yml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                yield f"{path.name} {rule['alert']}", rule["expr"]
    for path in sorted((ROOT / "etc/grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.name} {panel['title']}", target["expr"].replace("$__rate_interval", "5m")


def nodes(node: Any) -> Iterator[Any]:
    """A node of a parsed expression, and all below it."""
    yield node
    for name in ("expr", "lhs", "rhs", "vector_selector", "vs", "param"):
        below = getattr(node, name, None)
        if below is not None:
            yield from nodes(below)
    for below in getattr(node, "args", None) or ():
        yield from nodes(below)


class DashboardTests(TestCase):
    def test_every_expression_finds_something(self) -> None:
        known = everything()
        selectors = 0
        for where, text in expressions():
            for node in nodes(promql.parse(text)):
                if not isinstance(node, promql.VectorSelector):
                    continue
                selectors += 1
                if node.name == "up":
                    continue
                self.assertIn(node.name, known, where)
                for matcher in node.matchers.matchers:
                    self.check(where, known[node.name], matcher.name, matcher.value)
            self.check_grouping(where, text, known)
        self.assertGreater(selectors, 50)

    def check(self, where: str, labels: dict[str, set[str]], name: str, value: str) -> None:
        if name in ("job", "instance", "__name__"):
            return
        self.assertIn(name, labels, where)
        if name not in OPEN:
            for each in value.split("|"):
                self.assertIn(each, labels[name], where)

    def check_grouping(self, where: str, text: str, known: dict[str, dict[str, set[str]]]) -> None:
        """Each label in `by (...)` belongs to a series of the expression."""
        names = {name for name in known if re.search(rf"\b{name}\b", text)}
        labels = {label for name in names for label in known[name]} | OF_PROMETHEUS
        for group in re.findall(r"\bby \(([^)]*)\)", text):
            self.assertLessEqual({label.strip() for label in group.split(",")}, labels, where)

    def test_every_metric_of_ours_is_shown_somewhere(self) -> None:
        """Every metric is used in a rule or a dashboard."""
        shown = " ".join(text for _, text in expressions())
        own = {re.sub(r"_(bucket|sum|count)$", "", name) for name in everything()}
        own = {name for name in own if name.startswith(("interface_engine_", "fhir_subscription_", "ipf_"))}
        self.assertEqual({name for name in own if name not in shown}, set())

    def test_every_alert_has_a_runbook(self) -> None:
        manual = (ROOT / "docs/how-to/monitor.md").read_text()
        sections = re.findall(r"^#+ (.*)\n+(.*)$", manual, re.MULTILINE)
        headings = {heading.strip().lower() for heading, text in sections if len(text) > 40 and text[0] != "#"}
        for path in (ROOT / "etc/prometheus").glob("*.yml"):
            for group in yaml.safe_load(path.read_text())["groups"]:
                for rule in group["rules"]:
                    page, _, anchor = rule["annotations"]["runbook"].partition("#")
                    self.assertEqual(page, "docs/how-to/monitor.md")
                    self.assertIn(anchor, headings, rule["alert"])

    def test_dashboards_are_complete(self) -> None:
        found = [json.loads(path.read_text()) for path in (ROOT / "etc/grafana").glob("*.json")]
        self.assertEqual(len({board["uid"] for board in found}), 3)
        for board in found:
            self.assertEqual([panel["id"] for panel in board["panels"]], list(range(1, len(board["panels"]) + 1)))
