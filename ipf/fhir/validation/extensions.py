"""The check of extensions: known ones against their definition and its contexts; unknown ones are reported.

An extension with an unknown definition gives an information.  An unknown modifier extension gives a warning, because
a receiver that does not understand it must not use the resource.

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
CheckOf = Callable[[str], Check | None]


def extension_check(
    base: Check, definition: Definition, check_of: CheckOf, modifier: bool, hosts: frozenset[str]
) -> Check:
    """The check of one extension.  `base`: the check of type Extension; `hosts`: names of the extended element."""
    allowed: dict[str, bool | None] = {}

    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        url = value.get("url") if type(value) is dict else None
        known = definition(url) if type(url) is str and ":" in url else None
        if type(url) is not str or known is None or known.get("type") != "Extension":
            base(value, extra, location, run)
            if type(url) is str and (":" in url or "Extension" not in hosts):
                _unknown(url, modifier, location, run)
            return
        profile_check = check_of(url)
        (profile_check or base)(value, extra, location, run)
        if url not in allowed:
            allowed[url] = _is_allowed(known, hosts)
        if (
            allowed[url] is not True
            and not _is_allowed(known, host_paths(location, run))
            and not _is_allowed_by_expression(known, run)
        ):
            locations = ", ".join(one.get("expression", "") for one in known.get("context", ()))
            run.error("extension", f"the extension {url} is not allowed here, only on: {locations}", location)

    return check


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


def _unknown(url: str, modifier: bool, location: str, run: Run) -> None:
    if ":" not in url:
        run.error("extension", f"the extension's url '{url[:100]}' must be absolute", location)
    elif modifier:
        run.warn("extension", f"the modifier extension {url[:200]} is unknown to this server", location)
    else:
        severity = run.policy.unknown_extensions
        run.add(severity, "extension", f"not checked: the extension {url[:200]} is unknown to this server", location)


def _is_allowed(known: Json, hosts: Set[str]) -> bool | None:
    """Whether the contexts name one of the hosts; None when a FHIRPath context has to be evaluated."""
    contexts = known.get("context", ())
    if not contexts:
        return True
    unsure = False
    for one in contexts:
        if one.get("expression") == "Element":
            return True  # allowed on every element
        kind, expression = one.get("type"), one.get("expression", "").rpartition("#")[2].removesuffix("[x]")
        if kind == "extension" or (kind == "element" and (expression in hosts or _is_base(expression, hosts))):
            return True
        unsure = unsure or kind == "fhirpath"
    return None if unsure else False


def _is_base(expression: str, hosts: Set[str]) -> bool:
    """Whether a host is of this type or one derived from it (`Element`, `DomainResource`)."""
    return any(definitions().is_type(host) and definitions().is_a(host, expression) for host in hosts)


def _is_allowed_by_expression(known: Json, run: Run) -> bool:
    """Whether a FHIRPath context of the extension selects anything in the resource."""
    for one in known.get("context", ()):
        if one.get("type") == "fhirpath":
            try:
                if compile(one.get("expression", "")).evaluate(run.scope.resource):
                    return True
            except FhirPathError:
                return True  # the resource is not at fault when the expression cannot be evaluated
    return False
