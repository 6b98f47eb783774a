"""Validation of any input gives findings, without an exception and in bounded time."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import loads
from ipf.fhir.profiles.library import own_urls
from ipf.fhir.validation.validator import Validator
from tests.fhir.examples import examples
from tests.reference import needs_reference

JUNK: list[Any] = [
    *(None, True, 0, -1, 1.5, "", "x", "#", "urn:uuid:", [], {}, [[]], [{}], [None], [1, "a"]),
    *({"a": 1}, {"resourceType": []}, {"resourceType": "Patient"}, {"url": []}, {"reference": {}}, {"coding": 3}),
    *(
        {"coding": [1]},
        {"coding": [{"code": [], "system": {}}]},
        {"extension": {"url": 1}},
        {"extension": [{"url": {}}]},
    ),
]
ROUNDS = 400


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value within."""
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in members:
        yield from places(item, (*path, name))


class Fuzz(TestCase):
    """Examples with some of their values replaced by junk; the seed is fixed, so failures are reproducible."""

    @needs_reference
    def test_junk(self) -> None:
        chance, validator = random.Random(20), Validator()
        texts = [text for text in examples().values() if len(text) < 20_000]
        profiles = list(own_urls("us-core", "backport"))
        for _ in range(ROUNDS):
            resource = loads(chance.choice(texts))
            paths = list(places(resource))[1:]
            for path in chance.sample(paths, min(len(paths), 3)):
                self.replace(resource, path, copy.deepcopy(chance.choice(JUNK)))
            named = [chance.choice(profiles)] if chance.random() < 0.3 else []
            self.assertIsInstance(validator.validate(resource, named), list)

    def replace(self, resource: Any, path: tuple[Any, ...], junk: Any) -> None:
        """Put junk at a path that still exists."""
        target = resource
        try:
            for name in path[:-1]:
                target = target[name]
            target[path[-1]] = junk
        except (KeyError, IndexError, TypeError):
            pass
