"""The mapping engine alone, in processor time: bytes to transaction Bundle, compilation of all maps, FHIRPath.

One process, one core, no service and no database.  The same run measures python-hl7 (parse of the same message) and
fhirpathpy (the same expressions).  The result is the best of several rounds, because other load only adds time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.report import line
from ipf.config.paths import folder
from ipf.fhir.fhirpath import compile
from ipf.fhir.model.json import dumps
from ipf.fhir.structure.check import structure_issues
from ipf.hl7.message import Message
from ipf.mapping.library.maps import Library
from tests.traffic.messages import adt, plain
from tests.traffic.messages_results import oru, oru_document

ROUNDS = 9
WARM = 5
"""Warm-up rounds."""
EXPRESSIONS = (
    "Patient.name.family",
    "Patient.identifier.where(system = 'urn:a').value",
    "Patient.name.where(use = 'official').given.first()",
    "Patient.telecom.where(system = 'phone').value",
    "Patient.birthDate",
)
PATIENT: dict[str, Any] = {
    "resourceType": "Patient",
    "birthDate": "1970-03-15",
    "identifier": [{"system": "urn:a", "value": "1"}, {"system": "urn:b", "value": "2"}],
    "name": [{"use": "official", "family": "Hansen", "given": ["Kari", "Anne"]}, {"use": "old", "family": "Berg"}],
    "telecom": [{"system": "phone", "value": "+4722112233"}, {"system": "email", "value": "a@b.no"}],
}


def transform(folder_of_bench: Path) -> None:
    """Bytes of a message to its transaction Bundle, without storing it (CPU time, one core)"""
    _compile()
    library = Library.load(folder("maps"))
    _messages("ADT^A01, 10 segments, new patients", library, _admission, 200, "target 1.0 ms")
    _messages("ADT^A01, 4 segments, new patients", library, _plain, 200)
    _messages("ORU^R01, 30 OBX", library, lambda n: oru(30, f"R{n}", f"P{n}"), 25, "target 6 ms")
    _messages("ORU^R01, 1 MB with an embedded document", library, lambda n: oru_document(1_000_000), 3, "target 60 ms")
    _unread("ADT^A01, 10 segments", library, [_admission(number) for number in range(300)])
    _structure(library, [_admission(number) for number in range(100)])
    _trace(library, [_admission(number) for number in range(20)])
    _lists()
    _fhirpath()


def _admission(number: int) -> bytes:
    return adt(f"C{number}", f"P{number}").strip(b"\x0b\x1c\r")


def _plain(number: int) -> bytes:
    return plain(f"C{number}", f"P{number}").strip(b"\x0b\x1c\r")


def _best(work: Callable[[], Any], times: int, rounds: int = ROUNDS) -> float:
    """Milliseconds of processor time for one of `times` operations: the best of several rounds."""
    found = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        found.append((time.process_time() - began) / times * 1000)
    return min(found)


def _compile() -> None:
    times = []
    for _ in range(3):
        began = time.process_time()
        library = Library.load(folder("maps"))
        times.append(time.process_time() - began)
    count = len(library.maps)
    line(f"read and compile maps/ ({count} maps)", f"{statistics.median(times):.2f} s", "target 2 s")


def _messages(what: str, library: Library, make: Callable[[int], bytes], count: int, target: str = "") -> None:
    """`make`: returns message number n; each is mapped once."""
    first = make(0)
    if not library.has_map(Message.parse(first).message_type):
        line(what, "no map")
        return
    entries = len(library.transform_message(Message.parse(first))["entry"])
    rounds = iter(
        [
            [make(number) for number in range(start, start + count)]
            for start in range(1, (WARM + ROUNDS) * count + 1, count)
        ]
    )

    def ours() -> None:
        for raw in next(rounds):
            library.transform_message(Message.parse(raw))

    for _ in range(WARM):
        ours()
    line(what, f"{_best(ours, count):.2f} ms", f"{entries} entries; {target}".rstrip("; "))
    _peer([make(number) for number in range(count)])


def _peer(raws: Sequence[bytes]) -> None:
    import hl7

    texts = [raw.decode() for raw in raws]

    def parse() -> None:
        for text in texts:
            hl7.parse(text)

    line("   python-hl7: parse of the same message only", f"{_best(parse, len(texts), 3):.2f} ms")


def _unread(what: str, library: Library, raws: Sequence[bytes]) -> None:
    """What the fields cost that no rule read: found after each conversion (the marks are part of the transform)."""
    results = [library.run(Message.parse(raw)) for raw in raws]
    cost = _best(lambda: [result.unread() for result in results], len(raws))
    line(f"{what}, its unread fields", f"{cost * 1000:.0f} us", f"{len(results[0].unread())} fields")


def _structure(library: Library, raws: Sequence[bytes]) -> None:
    """What the check of structure, formats and required codes costs beside the map; the same resources as text."""
    bundles = [library.transform_message(Message.parse(raw)) for raw in raws]
    resources = [entry["resource"] for bundle in bundles for entry in bundle["entry"]]
    check = _best(lambda: [structure_issues(one) for one in resources], len(raws))
    text = _best(lambda: [dumps(one) for one in resources], len(raws))
    values = sum(_values(one) for one in resources) // len(raws)
    line(
        "ADT^A01, 10 segments, structure check",
        f"{check * 1000:.0f} us",
        f"{values} values; to text {text * 1000:.0f} us",
    )


def _values(value: Any) -> int:
    """Objects, lists and primitives of a JSON value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(_values(one) for one in inner)


def _trace(library: Library, raws: Sequence[bytes]) -> None:
    def traced() -> None:
        for raw in raws:
            library.run(Message.parse(raw), trace=True)

    traced()
    line("ADT^A01, 10 segments, with a trace", f"{_best(traced, len(raws), 3):.2f} ms")


def _lists() -> None:
    """Cost of ten times the entries: 10 when linear."""
    from ipf.mapping.language.grammar import parse
    from ipf.mapping.library.mapset import MapSet

    text = """/// url = "urn:bench"
group main(source src, target tgt) { src.item as i where (code != 'x') -> tgt.entry as e, e.code = (i.code) then {
  i.part as p -> e.part as q then { p.x -> q.x; }; }; }"""
    program = MapSet([parse(text)]).program("urn:bench")
    costs = []
    for size in (1_000, 10_000):
        source = {"item": [{"code": f"c{number}", "part": [{"x": 1}]} for number in range(size)]}
        costs.append(_best(lambda source=source: program.run(source, b"k"), 1, 3))  # type: ignore[misc]
    line("a list of 1,000 and of 10,000 entries", f"{costs[0]:.1f} / {costs[1]:.1f} ms", f"x {costs[1] / costs[0]:.1f}")


def _fhirpath() -> None:
    compiled = [compile(text, base_type="Patient") for text in EXPRESSIONS]

    def ours() -> None:
        for one in compiled:
            for _ in range(200):
                one.evaluate(PATIENT)

    ours()
    line("FHIRPath: five search expressions, each", f"{_best(ours, 1000) * 1000:.1f} us")
    try:
        import fhirpathpy  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        line("   fhirpathpy", "not installed")
        return
    theirs = [fhirpathpy.compile(text) for text in EXPRESSIONS]

    def peer() -> None:
        for one in theirs:
            for _ in range(10):
                one(PATIENT, {})

    line("   fhirpathpy (compiled)", f"{_best(peer, 50, 3) * 1000:.1f} us")


__all__ = ["transform"]
