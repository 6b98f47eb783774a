"""Facts about small messages of results, one per row of the guide's tables of DTM, CX, XPN and CWE."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import TestCase

from tests.corpus import samples
from tests.mapping_maps.facts import as_text, at
from tests.reference import REFERENCE, needs_reference

PAIRS = REFERENCE / "v2-pairs"

REASONS: dict[str, str] = {}
"""Why a fact does not hold, by source and path (`PID-5.1 Patient.name.family`); empty: all hold."""


@needs_reference
class PairTests(TestCase):
    def test_core_facts(self) -> None:
        """At least 98 of 100 hold, and each that does not has a reason."""
        tried, missed = 0, []
        for case in json.loads((PAIRS / "facts.json").read_text(encoding="utf-8")):
            bundle = samples.library().transform_message(_message(case["name"]), checked=False)
            tried += len(case["core"])
            missed += [(case["name"], one) for one in case["core"] if not _holds(bundle, one)]
        self.assertGreaterEqual(tried, 156)
        self.assertLessEqual(len(missed), tried * 0.02, missed)
        for name, one in missed:
            with self.subTest(case=name):
                self.assertIn(f"{one['src']} {one['rt']}.{one['path']}", REASONS)
        print(f"core facts of v2-pairs: {tried - len(missed)} of {tried} hold; missed: {missed}")


def _message(name: str) -> Any:
    text = (PAIRS / "messages" / f"{name}.hl7").read_text(encoding="utf-8")
    return samples.parse(text.replace("\r\n", "\n").replace("\r", "\n"))


def _holds(bundle: dict[str, Any], fact: dict[str, Any]) -> bool:
    """Whether some resource of the fact's type has its value at its path."""
    values = [
        as_text(value).lower()
        for entry in bundle["entry"]
        if entry["resource"]["resourceType"] == fact["rt"]
        for path in fact["path"].split(" or ")
        for value in at(entry["resource"], path.split("."))
    ]
    wanted = fact["value"].lower()
    if fact["op"] == "date":
        return any(one.startswith(wanted) for one in values)
    return wanted in values
