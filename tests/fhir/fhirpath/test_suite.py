"""The R4 FHIRPath suite of HL7 (935 cases), with the list of known differences.

The suite is not part of the repository.
"""

from __future__ import annotations

import json
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from twisted.trial import unittest

from ipf.fhir.fhirpath import FhirPathError, compile
from ipf.fhir.fhirpath.functions.conversion import to_text
from ipf.fhir.fhirpath.items.model import model
from ipf.fhir.fhirpath.items.nodes import Items, plain, type_of
from ipf.fhir.fhirpath.items.operators import truth
from tests.reference import REFERENCE, needs_reference

SUITE = REFERENCE / "fhirpath"

# group/name of the case -> the text of the specification that says otherwise (https://hl7.org/fhirpath).
_HOUR = "#highboundary: the greatest possible value; its example is 2014-01-01T08:59:59.999, the suite has 08:00:59.999"
EXPECTED_MISSES = {
    "testPlus/testPlusDate19": "#datetime-arithmetic: a decimal portion is applied for seconds; the suite drops it",
    "HighBoundary/HighBoundaryDateTimeMillisecond1": _HOUR,
    "HighBoundary/HighBoundaryDateTimeMillisecond3": _HOUR,
}
PASSING = 932

# What the XML input has and its JSON twin lacks.
TWIN_LACKS: dict[str, dict[str, Any]] = {
    "observation-example": {
        "extension": [
            {
                "url": "http://example.com/fhir/StructureDefinition/patient-age",
                "valueAge": {"value": 41, "system": "http://unitsofmeasure.org", "code": "a"},
            }
        ]
    }
}


@lru_cache(maxsize=32)
def resource(name: str) -> Any:
    """The JSON twin of an input file; None when the case has none."""
    path = SUITE / "input" / (Path(name).stem + ".json")
    if not name or not path.exists():
        return None
    return json.loads(path.read_text(), parse_float=Decimal) | TWIN_LACKS.get(path.stem, {})


def cases() -> list[tuple[str, ElementTree.Element]]:
    """(group/name, element) of each case, in order."""
    root = ElementTree.parse(SUITE / "tests-fhir-r4.xml").getroot()
    return [(f"{group.get('name')}/{case.get('name')}", case) for group in root for case in group.iter("test")]


def shown(item: Any) -> tuple[str, str]:
    """Type and text of an item as the suite writes them."""
    info = type_of(item, model())
    name = info.name if info else ""
    text = to_text(plain(item))
    mark = {"Date": "@", "DateTime": "@", "Time": "@T", "date": "@", "dateTime": "@"}.get(name, "")
    return (name[0].lower() + name[1:] if name != "Quantity" else name), mark + (text if text is not None else "?")


def problem(case: ElementTree.Element) -> str | None:
    """The difference to the expected result; None when they agree."""
    expression = case.find("expression")
    assert expression is not None
    invalid = expression.get("invalid")
    focus = resource(case.get("inputfile", ""))
    try:
        items = compile(expression.text or "", strict=True).evaluate(focus, typed=True)
    except FhirPathError as error:
        return None if invalid else f"failed: {error}"
    if invalid:
        return f"did not fail ({invalid}), gave {[shown(item) for item in items]}"
    return difference(items, case)


def difference(items: Items, case: ElementTree.Element) -> str | None:
    """Compare with the `<output>` list: text always, type where it is given, order unless `ordered` says no."""
    outputs = case.findall("output")
    wanted = [(output.get("type"), output.text or "") for output in outputs]
    if case.get("predicate") == "true":
        return None if [str(truth(items)).lower()] == [text for _, text in wanted] else f"as boolean: {truth(items)}"
    found = [shown(item) for item in items]
    if case.get("ordered") == "false":
        found.sort()
        wanted.sort(key=lambda pair: (pair[0] or "", pair[1]))
    same = len(found) == len(wanted) and all(
        kind in (None, name) and text_matches(text, value)
        for (name, value), (kind, text) in zip(found, wanted, strict=True)
    )
    return None if same else f"wanted {wanted}, got {found}"


def text_matches(wanted: str, found: str) -> bool:
    """The same text (a date is written with or without its mark)."""
    return found == wanted or found.lstrip("@") == wanted


@needs_reference
class SuiteTest(unittest.TestCase):
    """All cases: those expected to pass do, those listed as misses do not."""

    def test_all_cases(self) -> None:
        everything = cases()
        failures = {name: text for name, case in everything if (text := problem(case)) is not None}
        unexpected = {name: text for name, text in failures.items() if name not in EXPECTED_MISSES}
        self.assertEqual({}, unexpected)
        self.assertEqual(set(), set(EXPECTED_MISSES) - set(failures), "listed as misses, but they pass")
        self.assertGreaterEqual(len(everything) - len(failures), PASSING)
