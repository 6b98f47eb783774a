"""FHIRPath: every kind of expression, in processor time, on an Observation, a Patient and a Bundle of 300 resources.

The same run measures other engines with the same expressions, compiled, on the same data, in turns with this one:
`IPF_BENCH_FHIRPATH_JS` names a `node_modules` folder with HL7's fhirpath.js, `IPF_BENCH_HAPI` a folder with the jars of
HAPI (docs/reference/benchmarks.md), whose engine runs warm (`FhirPath.java`).  The result is the best of several
rounds.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from bench.report import line
from ipf.fhir.fhirpath import compile

ROUNDS = 20
TURNS = 3
Times = list[list[float]]
"""Microseconds of each expression of each group."""
LOINC = "http://loinc.org"
UCUM = "http://unitsofmeasure.org"


def _quantity(value: str) -> dict[str, Any]:
    return {"value": Decimal(value), "unit": "mmHg", "system": UCUM, "code": "mm[Hg]"}


def _code(code: str) -> dict[str, Any]:
    return {"coding": [{"system": LOINC, "code": code, "display": code}, {"system": "urn:local", "code": f"L{code}"}]}


OBSERVATION: dict[str, Any] = {
    "resourceType": "Observation",
    "id": "o",
    "status": "final",
    "text": {"status": "generated", "div": "<div xmlns='http://www.w3.org/1999/xhtml'>a</div>"},
    "code": _code("85354-9"),
    "subject": {"reference": "Patient/p"},
    "effectiveDateTime": "2024-09-17",
    "valueQuantity": _quantity("107.5"),
    "component": [
        {"code": _code("8480-6"), "valueQuantity": _quantity("107.5")},
        {"code": _code("8462-4"), "valueQuantity": _quantity("60")},
    ],
}
PATIENT: dict[str, Any] = {
    "resourceType": "Patient",
    "id": "p",
    "identifier": [{"system": "urn:a", "value": "12345"}],
    "name": [
        {"use": "official", "family": "Chalmers", "given": ["Peter", "James"]},
        {"use": "usual", "given": ["Jim"]},
        {"use": "maiden", "family": "Windsor", "given": ["Peter"], "period": {"end": "2002"}},
    ],
    "telecom": [{"system": "phone", "value": "555", "use": "work"}, {"use": "home"}],
    "birthDate": "1974-12-25",
    "contact": [{"name": {"family": "du Marche", "given": ["B"]}, "telecom": [{"system": "phone", "value": "5"}]}],
    "managingOrganization": {"reference": "Organization/1"},
}
BUNDLE: dict[str, Any] = {
    "resourceType": "Bundle",
    "type": "collection",
    "entry": [{"fullUrl": f"urn:x:{n}", "resource": OBSERVATION if n % 3 else PATIENT} for n in range(300)],
}
EXPRESSIONS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "descendants() of a Bundle": (
        BUNDLE,
        ("Bundle.descendants().count()", "Bundle.descendants().ofType(Reference).reference"),
    ),
    "ofType and where over a Bundle": (
        BUNDLE,
        (
            "Bundle.entry.resource.ofType(Patient).name.family",
            "Bundle.entry.resource.ofType(Observation).value.ofType(Quantity).value",
            "Bundle.entry.resource.where(status = 'final').id",
            "Bundle.entry.where(resource is Observation).resource.code.coding.code",
        ),
    ),
    "paths of an Observation": (
        OBSERVATION,
        (
            "Observation.code.coding.code",
            "Observation.value.ofType(Quantity).value",
            "Observation.component.where(code.coding.code = '8480-6').value.ofType(Quantity).value",
            "Observation.subject.reference",
            "Observation.component.value.value",
        ),
    ),
    "constraints": (
        OBSERVATION,
        (
            "dataAbsentReason.empty() or value.empty()",
            "contained.contained.empty()",
            "contained.meta.versionId.empty() and contained.meta.lastUpdated.empty()",
            "component.all(value.exists() or dataAbsentReason.exists())",
            "component.code.coding.all(code.exists() implies system.exists())",
        ),
    ),
    "texts": (
        PATIENT,
        (
            "Patient.name.first().given.first() & ' ' & Patient.name.first().family.upper()",
            "name.select(given.first() + ' ' + use)",
            "name.given.where($this.startsWith('P')).count()",
            "name.given.first().substring(1, 3).lower()",
            "managingOrganization.reference.replace('/', '-')",
            "identifier.value.first().matches('^[0-9]+$')",
        ),
    ),
    "numbers and dates": (
        OBSERVATION,
        (
            "(1 + 2) * 3 / 4 - 5",
            "component.value.ofType(Quantity).value.aggregate($this + $total, 0)",
            "component.first().value.value > 100 and component.last().value.value < 100",
            "effective.ofType(dateTime) + 18 years <= today()",
        ),
    ),
}
_SCRIPT = """
const [js, r4] = [require('fhirpath'), require('fhirpath/fhir-context/r4')];
const groups = JSON.parse(require('fs').readFileSync(0));
const answer = groups.map(([focus, texts]) => texts.map((text) => {
  const run = js.compile(text, r4);
  const measure = (times) => { const before = process.cpuUsage();
    for (let i = 0; i < times; i++) run(focus, {resource: focus});
    const used = process.cpuUsage(before); return (used.user + used.system) / times; };
  measure(5);
  const times = Math.max(1, Math.min(5000, Math.floor(50000 / (measure(5) + 1))));
  measure(times);
  return Math.min(...[1, 2, 3, 4, 5].map(() => measure(times)));
}));
console.log(JSON.stringify(answer));
"""


def bench(folder_of_bench: Path) -> None:
    """FHIRPath by kind of expression (CPU time of one evaluation, geometric mean) and by expression"""
    engines = _engines()
    turns = [[measure() for measure in engines.values()] for _ in range(TURNS if len(engines) > 1 else 1)]
    best = [_least(times) for times in zip(*turns, strict=True)]
    for (name, (_, texts)), *groups in zip(EXPRESSIONS.items(), *best, strict=True):
        _print(name, list(engines), [_mean(times) for times in groups])
        for text, *times in zip(texts, *groups, strict=True):
            _print(f"  {text[:50]}", list(engines), times)


def _least(turns: Sequence[Times]) -> Times:
    return [[min(each) for each in zip(*group, strict=True)] for group in zip(*turns, strict=True)]


def _print(what: str, engines: list[str], times: list[float]) -> None:
    ours = times[0]
    others = zip(engines[1:], times[1:], strict=True)
    line(what, f"{ours:.2f} us", "; ".join(f"{engine} {time:.2f} us, x {ours / time:.2f}" for engine, time in others))


def _engines() -> dict[str, Callable[[], Times]]:
    """What measures each engine, this one first."""
    found: dict[str, Callable[[], Times]] = {"ipf": _ours}
    if modules := os.environ.get("IPF_BENCH_FHIRPATH_JS"):
        found["fhirpath.js"] = lambda: _peer(["node", "-e", _SCRIPT], {"NODE_PATH": modules})
    if jars := os.environ.get("IPF_BENCH_HAPI"):
        found["HAPI"] = lambda: _peer(["java", "-cp", f"{jars}/*", str(Path(__file__).with_name("FhirPath.java"))], {})
    return found


def _ours() -> Times:
    return [[_microseconds(text, focus) for text in texts] for focus, texts in EXPRESSIONS.values()]


def _microseconds(text: str, focus: dict[str, Any]) -> float:
    expression = compile(text, base_type=focus["resourceType"])
    started = time.process_time()
    expression.evaluate(focus)
    once = time.process_time() - started
    times = max(1, min(2000, int(0.02 / max(once, 1e-6))))
    rounds = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(times):
            expression.evaluate(focus)
        rounds.append((time.process_time() - started) / times)
    return min(rounds) * 1e6


def _peer(command: list[str], settings: dict[str, str]) -> Times:
    groups = json.dumps(list(EXPRESSIONS.values()), default=float)
    environment = {**os.environ, **settings}
    done = subprocess.run(command, input=groups, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    found: Times = json.loads(done.stdout)
    return found


def _mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


__all__ = ["bench"]
