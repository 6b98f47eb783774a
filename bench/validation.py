"""CPU time of validating resources against R4 and the US Core profiles that they name.

The resources are those of the Synthea patients with a US Core profile in `meta.profile`: Observations, reports, orders,
encounters and so on, as they are, with what is wrong in them.  One thread; the profiles are compiled before.
"""

from __future__ import annotations

import bz2
import time
from collections import Counter
from pathlib import Path

from bench.fhir import SYNTHEA
from bench.report import line
from ipf.fhir.model.json import loads
from ipf.fhir.validation.validator import Validator
from ipf.ports import Json

US_CORE = "http://hl7.org/fhir/us/core/"
ROUNDS = 3
_TYPES_SHOWN = 5


def bench(folder_of_bench: Path) -> None:
    """Validation: resources a second and core against R4 and US Core 7.0.0"""
    resources = list(us_core_resources())
    validator = Validator()
    findings = Counter(one.severity for each in resources for one in validator.validate(each))
    seconds = min(_round(validator, resources) for _ in range(ROUNDS))
    rate = f"{len(resources) / seconds:,.0f} a second"
    line(f"{len(resources):,} US Core resources", rate, f"target 1,000; findings: {dict(findings)}")
    for kind, count in Counter(one["resourceType"] for one in resources).most_common(_TYPES_SHOWN):
        of_type = [one for one in resources if one["resourceType"] == kind]
        line(f"  {count:,} {kind}", f"{_round(validator, of_type) / count * 1000:.2f} ms")


def us_core_resources() -> list[Json]:
    """The resources that name a US Core profile."""
    found = []
    for path in sorted(SYNTHEA.glob("*.bz2")):
        entries = loads(bz2.decompress(path.read_bytes()))["entry"]
        resources = [one["resource"] for one in entries]
        found += [one for one in resources if any(map(_is_us_core, one.get("meta", {}).get("profile", ())))]
    return found


def _is_us_core(profile: str) -> bool:
    return profile.startswith(US_CORE)


def _round(validator: Validator, resources: list[Json]) -> float:
    began = time.process_time()
    for one in resources:
        validator.validate(one)
    return time.process_time() - began
