"""Extensions: known ones against their definition and where they may stand, unknown ones as what they are.

An extension without a definition here is reported (information); a modifier extension without one is a warning, since
who does not understand it must not use the resource.

Source: https://hl7.org/fhir/R4/extensibility.html, https://hl7.org/fhir/R4/defining-extensions.html#context
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from typing import Any

from ipf.fhir.fhirpath import FhirPathError, compile
from ipf.fhir.model.definitions import definitions
from ipf.fhir.validation.findings import Check, Json, Run

_NO_PATH = re.compile(r"\[\d+\]|\.ofType\(\w+\)")
Definition = Callable[[str], Json | None]
ShapeOf = Callable[[str], Check | None]


def extension_check(
    base: Check, definition: Definition, shape_of: ShapeOf, modifier: bool, hosts: frozenset[str]
) -> Check:
    """The check of one extension.  `base`: of the type Extension; `hosts`: what the element it stands on is called."""
    allowed: dict[str, bool | None] = {}

    def check(value: Any, extra: Any, place: str, run: Run) -> None:
        url = value.get("url") if type(value) is dict else None
        known = definition(url) if type(url) is str and ":" in url else None
        if type(url) is not str or known is None or known.get("type") != "Extension":
            base(value, extra, place, run)
            if type(url) is str and (":" in url or "Extension" not in hosts):
                _unknown(url, modifier, place, run)
            return
        shape = shape_of(url)
        (shape or base)(value, extra, place, run)
        if url not in allowed:
            allowed[url] = _is_allowed(known, hosts)
        if allowed[url] is not True and not _is_allowed(known, host_paths(place, run)) and not _by_rules(known, run):
            places = ", ".join(one.get("expression", "") for one in known.get("context", ()))
            run.error("extension", f"the extension {url} may not stand here, only on: {places}", place)

    return check


def host_paths(place: str, run: Run) -> set[str]:
    """What the element that an extension stands on is called: `Patient.contact.name` is also `HumanName`."""
    scope = run.scope
    steps = _NO_PATH.sub("", place[len(scope.place) :].rpartition(".")[0]).split(".")[1:]
    kind = str(scope.resource.get("resourceType"))
    heads = [kind]  # ways to say where we are
    for step in steps:
        element = definitions().element(kind, step)
        heads = [f"{head}.{step}" for head in heads]
        if element is not None and element.types:
            kind = element.types[0]
            heads += [] if "." in kind else [kind]
    return set(heads)


def _unknown(url: str, modifier: bool, place: str, run: Run) -> None:
    if ":" not in url:
        run.error("extension", f"the extension's url '{url[:100]}' must be absolute", place)
    elif modifier:
        run.warn("extension", f"the modifier extension {url[:200]} is not known here", place)
    else:
        severity = run.policy.unknown_extensions
        run.add(severity, "extension", f"the extension {url[:200]} is not known here, and not checked", place)


def _is_allowed(known: Json, hosts: Set[str]) -> bool | None:
    """Whether its contexts name one of the hosts; None when only an expression can say."""
    contexts = known.get("context", ())
    if not contexts:
        return True
    unsure = False
    for one in contexts:
        if one.get("expression") == "Element":
            return True  # on anything
        kind, expression = one.get("type"), one.get("expression", "").rpartition("#")[2].removesuffix("[x]")
        if kind == "extension" or (kind == "element" and (expression in hosts or _is_base(expression, hosts))):
            return True
        unsure = unsure or kind == "fhirpath"
    return None if unsure else False


def _is_base(expression: str, hosts: Set[str]) -> bool:
    """`Element`, `DomainResource`: a type that one of the hosts is made from."""
    return any(definitions().is_type(host) and definitions().is_a(host, expression) for host in hosts)


def _by_rules(known: Json, run: Run) -> bool:
    """Whether one of its FHIRPath contexts selects anything in the resource."""
    for one in known.get("context", ()):
        if one.get("type") == "fhirpath":
            try:
                if compile(one.get("expression", "")).evaluate(run.scope.resource):
                    return True
            except FhirPathError:
                return True  # an expression that cannot be evaluated is no error of the resource
    return False
