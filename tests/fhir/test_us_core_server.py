"""US Core 7.0.0's CapabilityStatement of a server, row by row, against ours."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from ipf.fhir.capability import capability_statement
from ipf.fhir.model.definitions import definitions
from ipf.fhir.search.language.query import parse_query
from ipf.fhir.search.parameters.custom import install
from ipf.fhir.search.parameters.shipped import us_core
from ipf.rest.router import ROUTES
from tests.reference import REFERENCE, needs_reference

Json = dict[str, Any]
PACKAGE = REFERENCE / "us-core/hl7.fhir.us.core-7.0.0.tgz"
STATEMENT = "package/CapabilityStatement-us-core-server.json"
EXPECTED = ("SHALL", "SHOULD")
OTHERS = {
    ("*", "referencePolicy", "resolves"),  # logical references stay logical
    ("Questionnaire", "supportedProfile", "http://hl7.org/fhir/uv/sdc/StructureDefinition/sdc-questionnaire"),
}
"""Rows that are not met."""
SAMPLES = {"token": "a", "reference": "Patient/1", "date": "2024-01-01", "string": "a", "uri": "http://x"}


def expectation(element: Json | None) -> str:
    """SHALL, SHOULD or MAY."""
    found = [one["valueCode"] for one in (element or {}).get("extension", ()) if one["url"].endswith("-expectation")]
    return found[0] if found else "MAY"


def rows(resource: Json) -> Iterator[tuple[str, str]]:
    """(kind, value) of what a server shall or should have for one type."""
    for kind in ("supportedProfile", "searchInclude", "searchRevInclude", "referencePolicy"):
        for value, about in zip(resource.get(kind, ()), resource.get(f"_{kind}", ()), strict=True):
            if expectation(about) in EXPECTED:
                yield kind, value
    for kind, key in (("interaction", "code"), ("searchParam", "name"), ("operation", "definition")):
        for one in resource.get(kind, ()):
            if expectation(one) in EXPECTED:
                yield kind, one[key]


def combinations(resource: Json) -> Iterator[list[str]]:
    """The search parameters that must work together."""
    for one in resource.get("extension", ()):
        if one["url"].endswith("search-parameter-combination") and expectation(one) in EXPECTED:
            yield [part["valueString"] for part in one["extension"] if part["url"] == "required"]


@needs_reference
class UsCoreServer(SynchronousTestCase):
    """Every SHALL and SHOULD."""

    def setUp(self) -> None:
        install([*us_core()])
        self.addCleanup(install, [])
        routes = [(shape, method) for shape in ROUTES for method in ROUTES[shape]]
        self.ours = capability_statement(definitions(), routes, base_url="http://x", version="1")
        self.resources = {one["type"]: one for one in self.ours["rest"][0]["resource"]}
        with tarfile.open(PACKAGE) as package:
            member = package.extractfile(STATEMENT)
            assert member is not None
            self.theirs = json.load(member)

    def test_rows(self) -> None:
        missing = set()
        for resource in self.theirs["rest"][0]["resource"]:
            ours = self.resources[resource["type"]]
            for kind, value in rows(resource):
                if not has(ours, kind, value):
                    same = ("*", kind, value)
                    missing.add(same if same in OTHERS else (resource["type"], kind, value))
        self.assertEqual(missing, OTHERS)

    def test_includes_and_combinations_are_understood(self) -> None:
        tried = 0
        for resource in self.theirs["rest"][0]["resource"]:
            kind = resource["type"]
            types = {one["name"]: one["type"] for one in self.resources[kind]["searchParam"]}
            for names in combinations(resource):
                parse_query(kind, [(name, SAMPLES[types[name]]) for name in names], strict=True)
                tried += 1
            for name in ("searchInclude", "searchRevInclude"):
                for value in resource.get(name, ()):
                    parse_query(kind, [("_include" if name == "searchInclude" else "_revinclude", value)], strict=True)
        self.assertGreater(tried, 40)

    def test_the_head(self) -> None:
        self.assertIn(self.theirs["url"], self.ours["instantiates"])
        self.assertLessEqual({*self.theirs["format"]}, {*self.ours["format"]})
        self.assertLessEqual({*self.theirs["patchFormat"]}, {*self.ours["patchFormat"]})


def has(ours: Json, kind: str, value: str) -> bool:
    """Whether our statement about a type has a row; we state includes without their targets."""
    if kind in ("interaction", "searchParam", "operation"):
        key = {"interaction": "code", "searchParam": "name", "operation": "definition"}[kind]
        return value in {one[key] for one in ours.get(kind, ())}
    found = ours.get(kind, ())
    return (
        value in found
        or value.partition("|")[0] in found
        or (value.count(":") == 2 and value.rpartition(":")[0] in found)
    )
