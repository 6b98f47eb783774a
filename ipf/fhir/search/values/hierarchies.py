"""`:above` and `:below` of references and canonical URLs, and of URIs.

A reference is followed along the hierarchy of the type that it refers to: `Location.partOf`, `Specimen.parent` and the
like.  A canonical URL with a version is above those with further parts: `|1.2` is above `|1.2.7`.  A URL is above those
below its path.

Source: https://hl7.org/fhir/R4/search.html#reference, #uri; versions: https://hl7.org/fhir/R5/search.html#modifierbelow
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from ipf.errors import Category, Problem
from ipf.fhir.index.entries import clean, token_value
from ipf.fhir.index.sources import sources
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.reference import local_reference
from ipf.fhir.search.values.parameter import RequestedParameter, any_of, on_each_code
from ipf.ports.queries.predicates import NOTHING, AllOf, ReferenceIn, Test, TextEquals, TextPrefix

_PARENTS = ("partof", "part-of", "parent")
_CANONICAL = frozenset({"canonical", "uri", "url"})


@cache
def parents(resource_type: str) -> tuple[str, ...]:
    """Index codes of the references of a type to the resource above it, of the same type; empty without a hierarchy."""
    known, found = definitions().search_parameters(resource_type), sources(resource_type)
    able = [code for code in _PARENTS if code in known and resource_type in known[code].targets]
    return tuple(dict.fromkeys(index for code in able for index in found[code].codes))


def in_hierarchy(requested: RequestedParameter, text: str) -> list[Test]:
    """The test of a reference with `:above` or `:below`.  Problem for a type that has no hierarchy."""
    if any(path.type_path in _CANONICAL for path in requested.source.paths):
        return by_url(requested, text)
    relation: Literal["above", "below"] = "above" if requested.modifier == "above" else "below"
    source, targets = requested.source, requested.parameter.targets or definitions().resource_types
    wanted = (source.refers_to,) if source.refers_to else targets
    literal = local_reference(text, requested.base_url) if "/" in text else None
    if "/" in text and literal is None:
        raise requested.refuse("with a modifier of hierarchies, write an id or Type/id")
    types = [one for one in wanted if literal is None or one == literal.resource_type]
    found: list[Test] = [
        ReferenceIn(source.codes, relation, one, text if literal is None else literal.id, parents(one))
        for one in sorted(types)
        if parents(one)
    ]
    if not found and types:
        names = ", ".join(sorted(types)) if len(types) < 5 else "the types that it refers to"
        text = f"search parameter {requested.name}: the server knows no hierarchy of {names}"
        raise Problem(Category.NOT_SUPPORTED, text, requested.name)
    return found or [NOTHING]


def by_url(requested: RequestedParameter, text: str) -> list[Test]:
    """The test of a URL with `:above` or `:below`: by its version if it has one, else by its path."""
    url, bar, version = (clean(part) for part in text.partition("|"))
    if bar and version:
        return [*_by_version(requested, url, version), *of_version(requested, text)]
    if not url.startswith("http"):
        return [NOTHING]  # only URLs have a hierarchy
    if requested.modifier == "below":
        path = url.rstrip("/") + "/"
        exact = on_each_code(requested, lambda code: TextEquals(code, (url,)))
        return [*exact, *on_each_code(requested, lambda code: TextPrefix(code, path))]
    return on_each_code(requested, lambda code: TextEquals(code, tuple(sorted(_ancestors(url)))))


def of_version(requested: RequestedParameter, text: str) -> list[Test]:
    """The test of a definition's own URL with a version, `url|1.0`: it has them in two elements, each with its index.

    None for a parameter that is not about the `url` of a resource with a `version`, and for a URL without one.
    """
    url, _, version = (clean(part) for part in text.partition("|"))
    known = sources(requested.resource_type) if requested.resource_type else {}
    if not version or not {"url", "version"} <= known.keys() or requested.source.codes != known["url"].codes:
        return []
    exact = [token_value(one, "") for one in _versions_above(version)]
    tests: list[Test] = [TextEquals("version", tuple(sorted(exact if requested.modifier == "above" else exact[-1:])))]
    if requested.modifier == "below":
        tests.append(TextPrefix("version", f"{version}."))
    return [AllOf((TextEquals(code, (url,)), any_of(tests))) for code in requested.source.codes]


def _by_version(requested: RequestedParameter, url: str, version: str) -> list[Test]:
    """The tests of canonical references, whose index has the version in the URL."""
    if requested.modifier == "above":
        values = tuple(sorted(f"{url}|{one}" for one in _versions_above(version)))
        return on_each_code(requested, lambda code: TextEquals(code, values))
    exact = on_each_code(requested, lambda code: TextEquals(code, (f"{url}|{version}",)))
    return [*exact, *on_each_code(requested, lambda code: TextPrefix(code, f"{url}|{version}."))]


def _versions_above(version: str) -> list[str]:
    """`1`, `1.2` and `1.2.7` of `1.2.7`."""
    parts = version.split(".", 20)
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _ancestors(url: str) -> set[str]:
    """The URL itself and what its path lies below, with and without a slash at the end."""
    scheme, separator, rest = url.partition("://")
    parts = rest.split("/")
    above = {scheme + separator + "/".join(parts[:length]) for length in range(1, len(parts))}
    return {url} | above | {one + "/" for one in above}
