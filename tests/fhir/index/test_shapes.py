"""Resources of any shape are indexed without an error."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.index.extract import extract
from ipf.fhir.model import json
from ipf.fhir.model.definitions import definitions
from tests.fhir.examples import examples
from tests.reference import needs_reference

LONG = "x" * 700 + "\u00e9" * 700
ODD: list[Any] = [None, True, False, 0, 1, "", " ", "#a", "2020-01", "a\tb\x01", LONG, [], {}, [[{}]], [None], {"a": 1}]
SHAPES: list[dict[str, Any]] = [
    {"resourceType": "Patient", "identifier": {"system": "a", "value": "b"}, "name": {"family": ["A"], "given": "B"}},
    {"resourceType": "Patient", "identifier": [{"system": ["a"], "value": "b"}, {"value": LONG, "system": LONG}]},
    {"resourceType": "Patient", "meta": [{"tag": {"code": "x"}}], "telecom": [None, {"value": 1, "system": "phone"}]},
    {"resourceType": "Patient", "active": 1, "gender": True, "birthDate": ["2020", 1], "deceasedBoolean": 0},
    {"resourceType": "Encounter", "class": {"code": {}, "system": "s"}, "subject": {"reference": ["Patient/1"]}},
    {"resourceType": "Encounter", "class": {"code": 1, "system": True}, "period": {"start": ["2020"], "end": True}},
    {"resourceType": "Encounter", "period": {"start": "2020"}, "length": [{"value": 1}], "status": ""},
    {"resourceType": "Encounter", "subject": {"reference": "Patient/1/_history/2", "identifier": {"system": "s"}}},
    {"resourceType": "Encounter", "subject": {"reference": "#p", "identifier": {"value": "a\x00b"}}, "type": [{}]},
    {"resourceType": "Encounter", "subject": {"reference": "", "identifier": [{"value": "a"}]}, "partOf": "x/1"},
]


class ShapeTests(TestCase):
    def test_shapes_that_r4_does_not_define(self) -> None:
        texts = [extract(resource).texts for resource in SHAPES]
        self.assertEqual(texts[0], {("identifier", "b\ta"), ("family", "a\tA"), ("given", "b\tB"),
                                    ("deceased", "false\t")})  # fmt: skip

    @needs_reference
    def test_examples_with_misplaced_values(self) -> None:
        random = Random(7)
        for _, resource in list(_examples())[::9]:
            for _ in range(3):
                changed = copy.deepcopy(resource)
                _misplace(changed, random)
                extract(changed)


def _examples() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, text in sorted(examples().items()):
        resource = json.loads(text)
        if resource.get("resourceType") in definitions().resource_types:
            yield name, resource


def _misplace(resource: dict[str, Any], random: Random) -> None:
    """Replace some values, also nested ones, by values of other types."""
    places = [one for one in _places(resource) if one[1] != "resourceType"]
    for holder, key in random.sample(places, min(4, len(places))):
        way = random.randrange(3)
        held = holder[key]
        holder[key] = [held] if way == 0 else random.choice(ODD)
        if way == 1 and type(held) is list and held:
            holder[key] = held[0]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for key, one in items:
        yield value, key
        yield from _places(one)
