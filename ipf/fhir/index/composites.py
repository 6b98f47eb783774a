"""Composite search parameters: the components of one element, and their index entries.

`Observation.code-value-quantity` takes its components from the resource itself, where each stands once: its search is
that of both components at the same time, and nothing is written for it.  `component-code-value-quantity` takes them
from each `Observation.component`: of such elements one text entry is written for each combination of component values,
so that a code and a value of two different elements are never found together.

Source: https://hl7.org/fhir/R4/search.html#composite
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

from ipf.fhir.fhirpath.language.parser import parse
from ipf.fhir.index.entries import component_text
from ipf.fhir.index.paths import ElementPath, NotSimple, element_paths, values_at
from ipf.fhir.index.values import EntryCollector, Indexer, indexer_for
from ipf.fhir.model.definitions import SearchParameter, definitions

Nested = tuple[ElementPath, tuple[tuple[str, frozenset[ElementPath]], ...]]
"""Elements of a resource, and the type and the elements of each component."""
PathsByCode = Mapping[str, frozenset[ElementPath]]
"""Code of a search parameter -> the elements that it has its values in."""

_MOST = 64  # combinations of one element
_OF_RESOURCE = "%resource."


@dataclass(frozen=True, slots=True)
class Component:
    """One component: the search parameter that it is a value of, and where its values are from the element.

    `code`: of the parameter.  `type`: its type.  `of_resource`: the paths are from the resource.
    """

    code: str
    type: str
    paths: tuple[ElementPath, ...] = ()
    of_resource: bool = False


@dataclass(frozen=True, slots=True)
class Composite:
    """`conjunctions`: components as parameters of the resource, where they stand in the resource itself.

    `nested`: elements with their components, where these stand in elements of the resource, and the code under which
    their entries are written.
    """

    conjunctions: tuple[tuple[Component, ...], ...] = ()
    nested: tuple[tuple[str, ElementPath, tuple[Component, ...]], ...] = ()


def composite(
    parameter: SearchParameter,
    parameters: Mapping[str, SearchParameter],
    own: PathsByCode,
    resource_type: str,
) -> Composite:
    """How `parameter` is put together in resources of one type; nothing at all when its components are not known.

    `own`: paths of the type's parameters by code.
    """
    by_url = {one.url: one for one in parameters.values()}
    components = [(by_url.get(url), expression) for url, expression in parameter.components]
    known = [(one, expression) for one, expression in components if one is not None]
    if len(known) != len(components) or not known:
        return Composite()
    conjunctions, nested = [], []
    try:
        for root in element_paths(parse(parameter.expression), resource_type):
            made = (_component(one, text, root, resource_type) for one, text in known)
            found = tuple(_meant(one, root, parameters, own) for one in made)
            codes = [_single(one, parameters, own, resource_type) for one in found]
            if not root.steps and all(codes):
                pairs = zip(codes, found, strict=True)
                conjunctions.append(tuple(Component(code or "", one.type) for code, one in pairs))
            else:
                nested.append((parameter.code, root, found))
    except NotSimple:
        return Composite()
    return Composite(tuple(conjunctions), tuple(nested))


def _meant(
    component: Component,
    root: ElementPath,
    parameters: Mapping[str, SearchParameter],
    own: PathsByCode,
) -> Component:
    """The component as a value of the parameter that has its values, where R4 names one that cannot have them.

    The components of DocumentReference's `relationship` name each other's parameter.
    """
    if component.of_resource or any(indexer_for(component.type, one.type_path, ("",)) for one in component.paths):
        return component
    wanted = frozenset(replace(one, steps=(*root.steps, *one.steps)) for one in component.paths)
    for code, found in own.items():
        if found == wanted:
            return replace(component, code=code, type=parameters[code].type)
    return component


def _single(
    component: Component,
    parameters: Mapping[str, SearchParameter],
    own: PathsByCode,
    type_name: str,
) -> str | None:
    """The parameter that has the component's values and nothing but elements that stand once in the resource."""
    wanted = frozenset(component.paths)
    able = [
        (len(found), code)
        for code, found in own.items()
        if parameters[code].type == component.type and wanted <= found and all(_once(one, type_name) for one in found)
    ]
    return min(able)[1] if able and wanted else None


def _once(path: ElementPath, type_name: str) -> bool:
    element = definitions().element(type_name, str(path.steps[0])) if path.steps else None
    return element is not None and not element.many


def shared(found: Composite, written: dict[Nested, str]) -> Composite:
    """`found` with the entries that another composite writes already; `written` remembers who writes which."""
    nested = []
    for code, root, components in found.nested:
        key = root, tuple((one.type, frozenset(one.paths)) for one in components)
        nested.append((written.setdefault(key, code), root, components))
    return replace(found, nested=tuple(nested))


def _component(parameter: SearchParameter, text: str, root: ElementPath, resource_type: str) -> Component:
    text = text.replace("DateTime)", "dateTime)")  # R4's own definition writes `value.as(DateTime)`
    if text.startswith(_OF_RESOURCE):
        found = element_paths(parse(f"{resource_type}.{text.removeprefix(_OF_RESOURCE)}"), resource_type)
        return Component(parameter.code, parameter.type, found, True)
    return Component(parameter.code, parameter.type, element_paths(parse(text), root.type_path))


def composite_indexer(code: str, root: ElementPath, components: Sequence[tuple[Component, Indexer]]) -> Indexer:
    """The function that writes the entries of a resource; `components` with functions that collect their values."""

    def write(resource: Any, entries: EntryCollector) -> None:
        for element in values_at(resource, root.steps):
            parts = []
            for component, collect in components:
                found = EntryCollector()
                collect(resource if component.of_resource else element, found)
                parts.append(list(dict.fromkeys(_fields(component, found))))
            if all(parts):
                entries.texts += [(code, "\n".join(one)) for one in islice(product(*parts), _MOST)]

    return write


def _fields(component: Component, found: EntryCollector) -> Iterator[str]:
    for _, text in found.texts:
        yield component_text(text, component.type == "string")
    for _, lo, hi in found.dates:
        yield f"{lo}\n{hi}"
    for _, low, high, unit in found.quantities:
        yield f"{low}\n{high}\n{unit}"


def width(parameter_type: str) -> int:
    """How many fields a component of this type takes."""
    return {"date": 2, "number": 3, "quantity": 3}.get(parameter_type, 1)
