"""CPU time of matching a changed resource, by the number of subscriptions, and of a changed subscription.

The benchmark runs the matching index alone, without service or database.  Each subscription matches few resources: a
third has criteria on a patient, a third a topic with a filter on a patient, a third a code.  Every change fires one
subscription, whatever their number.  The minimum of several rounds is reported, because other load only adds time.
"""

from __future__ import annotations

import gc
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.report import line
from ipf.fhir.index.extract import extract
from ipf.ports import ActiveSubscription, Change, Changes, Json, ServedTopic, Version
from ipf.ports.queries.index import EMPTY
from ipf.subscriptions.guide import FILTER
from ipf.subscriptions.matching import MatchingIndex

COUNTS = (1, 10, 100, 1_000, 10_000, 100_000)
TOPIC = "http://example.org/topics/result"
ROUNDS, CHANGES = 7, 300
NOW = datetime(2026, 1, 31, tzinfo=UTC)


def bench(folder_of_bench: Path) -> None:
    """Matching: CPU time per changed resource with 1 to 100,000 subscriptions, and per changed subscription"""
    changes = [_change(number) for number in range(CHANGES)]
    first = 0.0
    for count in COUNTS:
        index = MatchingIndex()
        began = time.process_time()
        index.load(1, Changes([_row(number) for number in range(count)], [ServedTopic("default", -1, _topic())]))
        load_seconds = time.process_time() - began
        fired = sum(len(index.match(change)) for change in changes)
        micros = min(_round(index, changes) for _ in range(ROUNDS))
        first = first or micros
        note = f"{micros / first:.2f} times that of one (target 2); {fired} events of {CHANGES} changes"
        line(f"{count:>7,} subscriptions, one changed resource", f"{micros:.1f} us", note)
    line("  loading all subscriptions at start", f"{load_seconds:.2f} s")
    line("  one subscription changes", f"{_one_changes(index):.0f} us")
    line("  the triggers of a topic of 33,334 change", f"{_topic_changes(index, _topic('amended')) * 1e6:.0f} us")
    rules = _topic() | {"canFilterBy": [{"filterParameter": "subject"}, {"filterParameter": "code"}]}
    line("  the filters that it allows change", f"{_topic_changes(index, rules) * 1000:.0f} ms")


def _round(index: MatchingIndex, changes: list[Change]) -> float:
    gc.collect()
    began = time.process_time()
    for change in changes:
        index.match(change)
    return (time.process_time() - began) / len(changes) * 1e6


def _one_changes(index: MatchingIndex) -> float:
    began = time.process_time()
    for step in range(500):
        rid = step * 199 % 100_000
        index.load(index.epoch + 1, Changes([_row(rid, shift=step)]), index.epoch)
    return (time.process_time() - began) / 500 * 1e6


def _topic_changes(index: MatchingIndex, topic: Json) -> float:
    began = time.process_time()
    index.load(index.epoch + 1, Changes((), [ServedTopic("default", -1, topic)]), index.epoch)
    return time.process_time() - began


def _row(number: int, shift: int = 0) -> ActiveSubscription:
    patient = f"Patient/p{number + shift}"
    resource: Json = {"resourceType": "Subscription", "id": f"s{number}", "status": "active"}
    if number % 3 == 1:
        resource["criteria"] = f"Observation?subject={patient}&status=final"
    elif number % 3 == 0:
        resource["criteria"] = TOPIC
        resource["_criteria"] = {"extension": [{"url": FILTER, "valueString": f"subject={patient}"}]}
    else:
        resource["criteria"] = f"Observation?code=http://loinc.org|{number + shift}-1"
    return ActiveSubscription("default", number, f"s{number}", resource)


def _topic(status: str = "final") -> Json:
    criteria = {"previous": f"status:not={status}", "resultForCreate": "test-passes", "current": f"status={status}",
                "requireBoth": True}  # fmt: skip
    trigger = {"resource": "Observation", "queryCriteria": criteria}
    rule = {"filterParameter": "subject"}
    return {"resourceType": "SubscriptionTopic", "url": TOPIC, "status": "active", "resourceTrigger": [trigger],
            "canFilterBy": [rule]}  # fmt: skip


def _change(number: int) -> Change:
    """A result of the patient that exactly one subscription names."""
    resource: Json = {
        "resourceType": "Observation",
        "id": f"o{number}",
        "status": "final",
        "category": [{"coding": [{"system": "http://terminology.hl7.org/CodeSystem/observation-category",
                                  "code": "laboratory"}]}],
        "code": {"coding": [{"system": "http://loinc.org", "code": f"{number}-0", "display": "Systolic"}]},
        "subject": {"reference": "Patient/p0"},
        "encounter": {"reference": f"Encounter/e{number}"},
        "effectiveDateTime": "2026-01-31T08:00:00Z",
        "valueQuantity": {"value": 120, "unit": "mmHg", "system": "http://unitsofmeasure.org", "code": "mm[Hg]"},
    }  # fmt: skip
    version = Version(number, "Observation", f"o{number}", 1, NOW, b"{}", method="POST")
    return Change("default", version, resource, EMPTY, extract(resource), "c", "create")
