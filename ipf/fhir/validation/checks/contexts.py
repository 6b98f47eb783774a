"""The contexts of extensions: where one may stand, and what must be true there.

`element`: a path (`Patient.contact`) or a type (`HumanName`, `Element`).  `extension`: the url of an extension that
holds it, with `#code` for an extension within that one.  `fhirpath`: the element is among the results on the resource.
Each `contextInvariant` is evaluated on the element, with `%extension`.

Source: https://hl7.org/fhir/R4/defining-extensions.html#context
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from ipf.fhir.fhirpath import FhirPathError, Host, compile
from ipf.fhir.fhirpath.items import operators
from ipf.fhir.model.definitions import definitions
from ipf.fhir.validation.findings import Json, Run

_NO_PATH = re.compile(r"\[\d+\]|\.ofType\(\w+\)")
_STEP = re.compile(r"(\w+)(?:\.ofType\((\w+)\))?(?:\[(\d+)\])?")


@dataclass(frozen=True, slots=True)
class Place:
    """The extended element: its JSON value (of a primitive the object `_name`), and the urls of the extensions around
    the new one, from the outside."""

    value: Any
    primitive: Any
    urls: tuple[str, ...]


def is_allowed(known: Json, hosts: Set[str]) -> bool | None:
    """Whether the contexts of type `element` name one of the hosts; None when a context of another type has to tell."""
    contexts = known.get("context", ())
    if not contexts:
        return True
    unsure = False
    for one in contexts:
        kind, expression = one.get("type"), one.get("expression", "").rpartition("#")[2].removesuffix("[x]")
        if kind == "element" and (expression == "Element" or expression in hosts or _is_base(expression, hosts)):
            return True
        unsure = unsure or kind in ("fhirpath", "extension")
    return None if unsure else False


def is_allowed_at(known: Json, location: str, run: Run) -> bool:
    """Whether a context names the element of this extension, whose location is given."""
    if is_allowed(known, host_paths(location, run)):
        return True
    place = place_of(location, run)
    for one in known.get("context", ()):
        kind, expression = one.get("type"), one.get("expression", "")
        if kind == "extension" and _is_within(expression, place.urls):
            return True
        if kind == "fhirpath" and _selects(expression, place, run):
            return True
    return False


def broken_invariant(known: Json, extension: Json, location: str, run: Run) -> str | None:
    """The first contextInvariant that does not hold."""
    rules = known.get("contextInvariant", ())
    if not rules:
        return None
    place = place_of(location, run)
    host = place.primitive if place.primitive is not None else place.value
    variables = {"extension": extension, "resource": run.scope.resource, "rootResource": run.scope.root}
    for rule in rules:
        try:
            if operators.truth(run.evaluate(compile(rule), host, variables, Host(), location)) is False:
                return str(rule)
        except FhirPathError:
            continue  # the resource is not at fault when the expression cannot be evaluated
    return None


def host_paths(location: str, run: Run) -> set[str]:
    """The names of the extended element in extension contexts: `Patient.contact.name`, `HumanName`."""
    scope = run.scope
    steps = _NO_PATH.sub("", location[len(scope.location) :].rpartition(".")[0]).split(".")[1:]
    kind = str(scope.resource.get("resourceType"))
    heads = [kind]
    for step in steps:
        element = definitions().element(kind, step)
        heads = [f"{head}.{step}" for head in heads]
        if element is not None and element.types:
            kind = element.types[0]
            heads += [] if "." in kind else [kind]
    return set(heads)


def place_of(location: str, run: Run) -> Place:
    """The element that an extension at this location extends."""
    value: Any = run.scope.resource
    primitive: Any = None
    urls: list[str] = []
    steps = list(_STEP.finditer(location[len(run.scope.location) :]))
    for name, kind, number in (step.groups() for step in steps[:-1]):
        member = name + (kind[0].upper() + kind[1:] if kind else "")
        holder = value if isinstance(value, dict) else {}
        primitive, value = holder.get(member), holder.get(f"_{member}", holder.get(member))
        if number is not None:
            primitive, value = _item(primitive, int(number)), _item(value, int(number))
        if name in ("extension", "modifierExtension") and isinstance(value, dict):
            urls.append(str(value.get("url")))
    return Place(value, None if isinstance(primitive, dict) else primitive, tuple(urls))


def _item(value: Any, number: int) -> Any:
    return value[number] if isinstance(value, list) and number < len(value) else None


def _is_within(expression: str, urls: tuple[str, ...]) -> bool:
    """Whether the extension that holds this one is the named one."""
    url, _, code = expression.partition("#")
    return urls[-2:] == (url, code) if code else urls[-1:] == (url,)


def _selects(expression: str, place: Place, run: Run) -> bool:
    try:
        found = run.evaluate(compile(expression), run.scope.resource, {}, Host(), run.scope.location)
        run.left.steps_left -= len(found)  # each extension asks anew
    except FhirPathError:
        return True  # the resource is not at fault when the expression cannot be evaluated
    if place.primitive is not None:
        return any(one == place.primitive for one in found)
    return any(one is place.value or one is True for one in found)


def _is_base(expression: str, hosts: Set[str]) -> bool:
    """Whether a host is of this type or one derived from it (`Element`, `DomainResource`)."""
    return any(definitions().is_type(host) and definitions().is_a(host, expression) for host in hosts)
