"""The value set that a request means, and its members."""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.implicit import set_and_version
from ipf.fhir.terminology.valueset import Membership, facts_of
from ipf.ports import Json
from ipf.rest.http.arguments import Arguments
from ipf.rest.write.conformance import Conformance


def value_set_of(
    resource: Json | None,
    conformance: Conformance,
    terminology: Terminology,
    arguments: Arguments,
    bound: str | None = None,
) -> tuple[Json, Membership | None]:
    """The value set from the request, by id (`resource`), or by url, and its members; None when it is not loaded.

    `bound`: the canonical of the one that the request means without naming it.
    """
    resource = arguments.structure("valueSet", "ValueSet") or resource
    if resource is not None:
        return resource, terminology.expansion(facts_of(resource))
    url, of_url = set_and_version(bound or arguments.required("url"))
    version = arguments.text("valueSetVersion") or of_url
    canonical = f"{url}|{version}" if version else url
    found = terminology.resource("ValueSet", canonical) or conformance.catalog.by_url("ValueSet", canonical)
    if found is None and version:
        other = terminology.resource("ValueSet", url) or conformance.catalog.by_url("ValueSet", url)
        if other is not None and other.get("version"):
            text = f"the value set {canonical[:300]} is not loaded; loaded: version {str(other['version'])[:100]}"
            raise Problem(Category.NOT_FOUND, text)
    members = terminology.members(canonical)
    return found or {"resourceType": "ValueSet", "url": url, "status": "unknown"}, members


def enumerable(members: Membership | None, url: str) -> Membership:
    """A membership that can be enumerated; Problem with the reason when it cannot."""
    if members is None:
        raise Problem(Category.NOT_FOUND, f"the value set {url[:200]} is not loaded")
    if members.errors:
        raise unusable(members, url)
    open_ends = sorted({*members.unknown, *(set(members.tests) - set(members.codes))})
    if open_ends:
        named = ", ".join(one or "another value set" for one in open_ends)
        text = f"the value set {url[:200]} cannot be expanded; not loaded: {named[:300]}"
        raise Problem(Category.NOT_SUPPORTED, text)
    return members


def unusable(members: Membership, url: str) -> Problem:
    """What is wrong with a value set: its place and the rule."""
    text = f"the value set {url[:200] or 'of the request'} cannot be listed: {'; '.join(sorted(members.errors))[:600]}"
    return Problem(Category.COSTLY if members.is_costly else Category.VALUE, text)
