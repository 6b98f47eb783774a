"""The index entries of a resource, for every search parameter of FHIR R4 and those that were added.

The expressions of the search parameters of a resource type are resolved together (`paths.py`) into one tree of element
names when the first resource of that type arrives.  A parameter that only repeats others writes no entries
(`sources.py`).  The tree becomes closures (`tree.py`), so indexing a resource is one walk that skips elements without a
search parameter.  Expressions that are no simple paths run in the FHIRPath engine (`general.py`).  The closures live
until `forget` is called, because the search parameters have changed.

`_id` and `_lastUpdated` have no entries: the store has columns for them.  The words of `_text` and
`_content` are indexed where a setting says so (`words.py`).  The position of a Location
is indexed for `near` (`positions.py`), subject, kind and time of an Observation for `$lastn` (`lastn.py`), contained
resources for `_contained` (`contained.py`).

Source: https://hl7.org/fhir/R4/search.html
"""

from __future__ import annotations

from typing import Any

from ipf.fhir.index.composites import Composite, composite_indexer
from ipf.fhir.index.contained import contained_entries, contained_in
from ipf.fhir.index.entries import token_value
from ipf.fhir.index.general import evaluate
from ipf.fhir.index.lastn import lastn_entries
from ipf.fhir.index.paths import ElementPath
from ipf.fhir.index.positions import position_entries
from ipf.fhir.index.sources import Source, sources
from ipf.fhir.index.tree import PathTree
from ipf.fhir.index.values import EntryCollector, Indexer
from ipf.fhir.index.words import word_entries
from ipf.fhir.model.definitions import SearchParameter, definitions
from ipf.fhir.model.redaction import redact_resource
from ipf.ports.queries.index import EMPTY, Entries

_NONE: frozenset[Any] = frozenset()


def extract(resource: dict[str, Any]) -> Entries:
    """All index entries of `resource` (parsed JSON with `resourceType`); EMPTY for a type that R4 does not have."""
    resource_type = resource.get("resourceType")
    if type(resource_type) is not str:
        return EMPTY
    plan = _plans.get(resource_type) or _plan(resource_type)
    if plan is None:
        return EMPTY
    if resource_type == "Subscription":
        resource = redact_resource(resource)
    found = EntryCollector()
    plan.index(resource, found)
    for parameter in plan.general:
        evaluate(parameter, resource, found)
    found.quantities += position_entries(resource)
    found.texts += lastn_entries(resource, found.texts, found.dates)
    if "contained" in resource:
        for one in contained_in(resource):
            found.texts += contained_entries(one, extract(one).texts)
    return Entries(
        frozenset(found.texts),
        frozenset(found.dates) if found.dates else _NONE,
        frozenset(found.quantities) if found.quantities else _NONE,
        word_entries(resource),
    )


def forget() -> None:
    """Plan anew: the definitions of search parameters have changed."""
    _plans.clear()


class _Plan:
    """How resources of one type are indexed: by `index`, and by the parameters for the FHIRPath engine."""

    def __init__(self, resource_type: str) -> None:
        self.general: list[SearchParameter] = []
        tree = PathTree()
        parameters = definitions().search_parameters(resource_type)
        for code, source in sources(resource_type).items():
            if code not in source.codes:
                continue  # another parameter writes its values
            if source.composite is not None:
                _add_composite(tree, code, source.composite)
            elif source.members:
                tree.indexers.append(_presence_indexer(code, source.members))
            elif source.paths:
                _add_parameter(tree, parameters[code], source)
            else:
                self.general.append(parameters[code])
        self.index = tree.indexer()


_plans: dict[str, _Plan] = {}


def _plan(resource_type: str) -> _Plan | None:
    if resource_type not in definitions().resource_types:
        return None
    plan = _plans[resource_type] = _Plan(resource_type)
    return plan


def _add_parameter(tree: PathTree, parameter: SearchParameter, source: Source) -> None:
    """Add the parameter's code to each element that it has values of."""
    for path in source.paths:
        wanted = (parameter.type, path.type_path, source.covered)
        _node(tree, path).codes.setdefault(wanted, []).append(parameter.code)


def _add_composite(tree: PathTree, code: str, found: Composite) -> None:
    """Add an indexer that writes the components of each element together."""
    for writer, root, components in found.nested:
        if writer != code:
            continue  # another composite writes the same
        made = []
        for component in components:
            part = PathTree()
            for path in component.paths:
                _node(part, path).codes.setdefault((component.type, path.type_path, ()), []).append("")
            made.append((component, part.indexer()))
        tree.indexers.append(composite_indexer(code, root, tuple(made)))


def _node(tree: PathTree, path: ElementPath) -> PathTree:
    node = tree
    for step in path.steps:
        node = node.at(step)
    return node


def _presence_indexer(code: str, members: tuple[str, ...]) -> Indexer:
    true, false = (code, token_value("true", "")), (code, token_value("false", ""))

    def index(resource: Any, entries: EntryCollector) -> None:
        present = any(resource.get(name) not in (None, False) for name in members)
        entries.texts.append(true if present else false)

    return index
