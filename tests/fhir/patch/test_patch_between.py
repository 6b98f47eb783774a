"""The patch between two resources, applied to the first one, gives the second one."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.patch.fhirpath_patch import fhirpath_patch
from ipf.fhir.patch.patch_between import patch_between
from ipf.fhir.structure.check import check_structure
from ipf.ports import Json
from tests.fhir.examples import examples
from tests.reference import needs_reference


def normal(value: Any) -> Any:
    """Without `null` at the end of lists, which says nothing, and lists of it."""
    if isinstance(value, dict):
        found = {name: normal(one) for name, one in value.items()}
        return {name: one for name, one in found.items() if one != []}
    if isinstance(value, list):
        items = [normal(one) for one in value]
        while items and items[-1] is None:
            items.pop()
        return items
    return value


class Case(TestCase):
    def check(self, one: Json, other: Json) -> int:
        """The number of operations of the patch, which leads from one to the other."""
        earlier = {"versionId": "1", "lastUpdated": "2026-01-01T00:00:00Z"}
        later = {"versionId": "2", "lastUpdated": "2026-02-01T00:00:00Z"}
        one = {**one, "id": "a", "meta": {**one.get("meta", {}), **earlier}}
        other = {**other, "id": "b", "meta": {**other.get("meta", {}), **later}}
        patch = patch_between(one, other)
        check_structure(patch)
        expected = {**other, "id": "a", "meta": {**other["meta"], **earlier}}
        patched = fhirpath_patch(loads(dumps(patch)))(one)
        self.assertEqual(normal(patched), normal(expected), dumps(patch)[:3000])
        return len(patch.get("parameter", ()))


class PatchBetweenTests(Case):
    def test_changes(self) -> None:
        name = {"family": "A", "given": ["x", "y"]}
        base: Json = {"resourceType": "Patient", "name": [name], "deceasedBoolean": True}
        for changed, count in (
            ({}, 0),
            ({"active": True}, 1),
            ({"deceasedBoolean": None, "deceasedDateTime": "2020"}, 1),
            ({"name": [{"text": "B"}]}, 4),
            ({"name": [{"family": "A", "given": ["x"]}, {"family": "C"}]}, 2),
            ({"name": None}, 1),
            ({"meta": {"tag": [{"code": "t"}], "profile": ["urn:p"]}}, 2),
            ({"_birthDate": {"extension": [{"url": "urn:x", "valueInteger": 1}]}}, 1),
            ({"name": [{"given": ["x", "y"], "_given": [None, {"id": "g"}]}]}, 2),
            ({"contact": [{"name": {"family": "K"}, "gender": "male", "extension": [{"url": "u", "extension": [
                {"url": "v", "valueCoding": {"code": "c"}}]}]}]}, 1),
            ({"text": {"status": "empty", "div": '<div xmlns="http://www.w3.org/1999/xhtml">x</div>'}}, 1),
            ({"contained": [{"resourceType": "Group", "id": "g"}]}, 1),
        ):  # fmt: skip
            other = {name: value for name, value in {**base, **changed}.items() if value is not None}
            self.assertEqual(self.check(base, other), count, changed)
            self.check(other, base)
        self.assertRaises(Problem, patch_between, base, {"resourceType": "Group"})


@needs_reference
class ExampleTests(Case):
    def test_examples(self) -> None:
        """Of examples of one type, and of each example with parts left out and moved, in both directions."""
        found: dict[str, list[Json]] = {}
        for text in examples().values():
            resource = loads(text)
            if isinstance(resource, dict) and len(text) < 15_000 and "resourceType" in resource:
                found.setdefault(resource["resourceType"], []).append(resource)
        self.assertGreater(len(found), 100)
        chance = random.Random(1)
        for kind, resources in found.items():
            if kind in ("Bundle", "Parameters"):
                continue
            for one, other in pairwise([*resources[:8], resources[0]]):
                self.check(one, other)
            for one in resources[:3]:
                other = loads(dumps(one))
                _damage(other, chance)
                self.check(one, other)
                self.check(other, one)


def _damage(value: Any, chance: random.Random) -> None:
    """Leave out members, and change the order of lists."""
    if isinstance(value, dict):
        for name in list(value):
            if name in ("resourceType", "url", "div", "status") or name.startswith("_"):
                continue
            if chance.random() < 0.1 and len(value) > 1 and "_" + name not in value:
                del value[name]
            else:
                _damage(value[name], chance)
    elif isinstance(value, list):
        if chance.random() < 0.3 and all(isinstance(one, dict) for one in value):
            value.reverse()
        for one in value:
            _damage(one, chance)
