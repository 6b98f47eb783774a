"""The element paths of a search parameter select the values that the FHIRPath engine selects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.fhirpath import compile as compile_expression
from ipf.fhir.index.paths import Step
from ipf.fhir.index.sources import sources
from ipf.fhir.model import json
from ipf.fhir.model.definitions import definitions
from tests.fhir.examples import examples
from tests.reference import needs_reference

PER_TYPE = 2
LEFT_OUT = {"observation-decimal.json"}  # a union takes its 1.0 and 1.00 for one value; the index keeps both


@needs_reference
class Agreement(TestCase):
    """The first examples of each type, every parameter whose filter needs no other resource.

    Also excluded: `extension(...)`, where the index stores the value, and `hasExtension(...)`, which is not FHIRPath.
    """

    def test_paths_select_what_the_expression_selects(self) -> None:
        compared = 0
        for name, resource in _chosen():
            parameters = definitions().search_parameters(resource["resourceType"])
            for code, source in sources(resource["resourceType"]).items():
                expression = parameters[code].expression
                if source.paths and "resolve()" not in expression and "xtension(" not in expression:
                    found = [one for path in source.paths for one in _values(resource, path.steps)]
                    wanted = compile_expression(expression).evaluate(resource)
                    self.assertEqual(_sorted(found), _sorted(wanted), f"{name} {code} {expression}")
                    compared += len(wanted)
        self.assertGreater(compared, 1000)


def _chosen() -> Iterator[tuple[str, dict[str, Any]]]:
    taken: dict[str, int] = {}
    for name, text in sorted(examples().items()):
        resource = json.loads(text)
        resource_type = resource.get("resourceType", "")
        taken[resource_type] = taken.get(resource_type, 0) + 1
        wanted = taken[resource_type] <= PER_TYPE and name not in LEFT_OUT
        if wanted and resource_type in definitions().resource_types:
            yield name, resource


def _values(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    if isinstance(value, list):
        for one in value:
            yield from _values(one, steps)
    elif not steps:
        yield value
    elif isinstance(steps[0], str):
        if isinstance(value, dict) and steps[0] in value:
            yield from _values(value[steps[0]], steps[1:])
    elif steps[0](value):
        yield from _values(value, steps[1:])


def _sorted(values: list[Any]) -> list[bytes]:
    return sorted({json.dumps(one) for one in values})
