"""SearchParameter resources that extend those of R4: they are checked, then used by all searches of the process.

A parameter is served while its status is `active`.  A code that R4 defines for a type keeps R4's meaning.  Which
parameters there are is a matter of the database; a process learns it with the epoch of its transactions
(`rest/write/commit.py`), before it plans anything.

Source: https://hl7.org/fhir/R4/searchparameter.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ipf.errors import Category, Issue, Problem
from ipf.fhir.fhirpath import FhirPathError, parse
from ipf.fhir.index import extract as index
from ipf.fhir.index import sources as index_sources
from ipf.fhir.model.definitions import SearchParameter, definitions
from ipf.fhir.search.language import query

Json = dict[str, Any]

_TYPES = frozenset({"composite", "date", "number", "quantity", "reference", "string", "token", "uri"})
_CODE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_PLACE = "SearchParameter"


def check(resource: Json, *, is_served: bool = True) -> None:
    """Refuse what could not be served.  Problem BUSINESS_RULE with one issue for each reason.

    `is_served`: whether it is of the tenant whose search parameters count, for all; others may keep inactive ones.
    """
    issues = list(_issues(resource)) if resource.get("status") == "active" else []
    if resource.get("status") == "active" and not is_served:
        text = "it would not be used: active search parameters are those of the default tenant, for all tenants"
        issues.append(Issue(text, f"{_PLACE}.status"))
    if issues:
        raise Problem(Category.BUSINESS_RULE, "the search parameter cannot be served", issues=tuple(issues))


def _issues(resource: Json) -> Iterator[Issue]:
    code, kind, bases = resource.get("code"), resource.get("type"), resource.get("base") or ()
    if not isinstance(code, str) or _CODE.fullmatch(code) is None:
        yield Issue("a code is made of letters, digits, - and _", f"{_PLACE}.code")
    if kind not in _TYPES:
        yield Issue(f"parameters of type {kind} are not served", f"{_PLACE}.type")
    for base in bases:
        if not definitions().is_a(str(base), "Resource"):
            yield Issue(f"{base} is no resource type of R4", f"{_PLACE}.base")
    if not bases:
        yield Issue("a search parameter needs a base", f"{_PLACE}.base")
    expression = resource.get("expression")
    if not isinstance(expression, str) or not expression:
        yield Issue("a search parameter needs an expression", f"{_PLACE}.expression")
        return
    try:
        parse(expression)
    except FhirPathError as refused:
        yield Issue(f"the expression is no FHIRPath: {refused}", f"{_PLACE}.expression")


def served(resource: Json | None) -> dict[tuple[str, str], SearchParameter]:
    """(base, code) -> parameter of an active SearchParameter, those that R4 defines left out; empty for any other."""
    if resource is None or resource.get("status") != "active" or any(_issues(resource)):
        return {}
    code = str(resource["code"])
    parts = resource.get("component", ())
    components = tuple((str(one.get("definition")), str(one.get("expression"))) for one in parts)
    targets = tuple(str(one) for one in resource.get("target", ()))
    url, kind, expression = str(resource.get("url", "")), str(resource["type"]), str(resource["expression"])
    made = SearchParameter(code, kind, expression, targets, url, components)
    known = definitions()
    return {(base, code): made for base in resource["base"] if not known.is_defined(base, code)}


def changed(before: Json | None, after: Json | None) -> tuple[list[str], list[tuple[str, str]]]:
    """(types to be indexed anew, parameters whose entries are worth nothing any more) when one replaces the other."""
    old, new = served(before), served(after)
    different = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    types = {name for base, _ in different & new.keys() for name in concrete(base)}
    stale = {(name, code) for base, code in different & old.keys() for name in concrete(base)}
    return sorted(types), sorted(stale)


def concrete(base: str) -> list[str]:
    """The resource types that a base means."""
    known = definitions()
    return [one for one in known.resource_types if known.is_a(one, base)]


_shipped: list[Json] = []  # in addition to those of the store


def ship(resources: Sequence[Json]) -> None:
    """Serve these whatever the store has; called before the first transaction."""
    _shipped[:] = resources
    install(())


def install(resources: Sequence[Json]) -> None:
    """Serve these, and what was shipped, from now on in this process; where two say the same code, the first."""
    found: dict[str, dict[str, SearchParameter]] = {}
    for resource in (*resources, *_shipped):
        for (base, code), parameter in served(resource).items():
            found.setdefault(base, {}).setdefault(code, parameter)
    if definitions().set_custom(found):
        for module in (index_sources, index, query):
            module.forget()
