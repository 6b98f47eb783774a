"""A resource in, its index entries out: every search parameter of FHIR R4, and those that were added to it.

The expressions of one resource type are resolved together (`index_paths.py`) into one tree of member names, when the
first resource of that type comes; a parameter that only repeats others writes nothing (`index_sources.py`).  The tree
is compiled to one function (`index_code.py`), so that indexing a resource is a single walk: members that no search
parameter asks for are not looked into.  The expressions that are not simple go through the general FHIRPath engine.
Nothing is kept of a resource but short values that come again (`Memo`); the functions live until `forget` is called,
because the set of search parameters has changed.

`_id` and `_lastUpdated` have no entries: the store has columns for them.  `_text`, `_content`, `_filter`, `_query` and
Location's `near` are not indexed.

Source: https://hl7.org/fhir/R4/search.html
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ipf.fhir.index.compile import function_of
from ipf.fhir.index.composites import Composite, composite_leaf
from ipf.fhir.index.entries import token_value
from ipf.fhir.index.general import evaluate
from ipf.fhir.index.paths import Place
from ipf.fhir.index.sources import Source, sources
from ipf.fhir.index.tree import Tree
from ipf.fhir.index.values import Leaf, Sink
from ipf.fhir.model.definitions import SearchParameter, definitions
from ipf.fhir.model.redaction import hidden
from ipf.ports.index import EMPTY, Entries

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
        resource = hidden(resource)
    sink = Sink()
    try:
        is_usual = plan.write(resource, sink)
    except TypeError:  # a list or an object where a text belongs cannot be remembered
        is_usual = False
    if not is_usual:
        sink = Sink()
        plan.walk(resource, sink)
    return _entries(plan, resource, sink)


def walked(resource: dict[str, Any]) -> Entries:
    """As `extract`, for a resource of an R4 type, without the compiled function."""
    plan, sink = _plans.get(resource["resourceType"]) or _Plan(resource["resourceType"]), Sink()
    plan.walk(resource, sink)
    return _entries(plan, resource, sink)


def _entries(plan: _Plan, resource: dict[str, Any], sink: Sink) -> Entries:
    for parameter in plan.general:
        evaluate(parameter, resource, sink)
    return Entries(
        frozenset(sink.texts),
        frozenset(sink.dates) if sink.dates else _NONE,
        frozenset(sink.quantities) if sink.quantities else _NONE,
    )


def forget() -> None:
    """Plan anew: the definitions of search parameters have changed."""
    _plans.clear()


class _Plan:
    """How resources of one type are indexed: the tree as functions, and the parameters for the general engine.

    `write` is for resources whose values are single and in lists where R4 has them so, `walk` for all others.
    """

    def __init__(self, resource_type: str) -> None:
        self.general: list[SearchParameter] = []
        self._tree = tree = Tree()
        parameters = definitions().search_parameters(resource_type)
        for code, source in sources(resource_type).items():
            if code not in source.codes:
                continue  # another parameter writes its values
            if source.composite is not None:
                _plant_composite(tree, code, source.composite)
            elif source.members:
                tree.leaves.append(_presence_leaf(code, source.members))
            elif source.places:
                _plant(tree, parameters[code], source)
            else:
                self.general.append(parameters[code])
        self.write = function_of(tree, resource_type)

    @cached_property
    def walk(self) -> Leaf:
        """The tree as closures; few types ever need them."""
        return self._tree.finished()


_plans: dict[str, _Plan] = {}


def _plan(resource_type: str) -> _Plan | None:
    if resource_type not in definitions().resource_types:
        return None
    plan = _plans[resource_type] = _Plan(resource_type)
    return plan


def _plant(tree: Tree, parameter: SearchParameter, source: Source) -> None:
    """Note at each place that its values are wanted under the parameter's code."""
    for place in source.places:
        wanted = (parameter.type, place.type_path, source.covered)
        _position(tree, place).codes.setdefault(wanted, []).append(parameter.code)


def _plant_composite(tree: Tree, code: str, found: Composite) -> None:
    """A function that writes the components of each element together."""
    for writer, root, components in found.nested:
        if writer != code:
            continue  # another composite writes the same
        made = []
        for component in components:
            part = Tree()
            for place in component.places:
                _position(part, place).codes.setdefault((component.type, place.type_path, ()), []).append("")
            made.append((component, part.finished()))
        tree.leaves.append(composite_leaf(code, root, tuple(made)))


def _position(tree: Tree, place: Place) -> Tree:
    position = tree
    for step in place.steps:
        position = position.at(step)
    return position


def _presence_leaf(code: str, members: tuple[str, ...]) -> Leaf:
    true, false = (code, token_value("true", "")), (code, token_value("false", ""))

    def write(resource: Any, sink: Sink) -> None:
        there = any(resource.get(name) not in (None, False) for name in members)
        sink.texts.append(true if there else false)

    return write
