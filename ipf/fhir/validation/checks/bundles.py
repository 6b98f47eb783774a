"""The check of Bundles: full urls, references between entries, first entries of documents and messages, search results.

A relative reference is resolved against the full url of its entry.  Entries without a full url are found by type and
id.  A document must contain the resources that its Composition refers to.

Sources: https://hl7.org/fhir/R4/bundle.html#references, https://hl7.org/fhir/R4/documents.html
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ipf.fhir.validation.findings import Json, Run

_RESTFUL = re.compile(r"(https?://.+/)([A-Z][A-Za-z]+)/([A-Za-z0-9\-.]{1,64})")
_ONCE = frozenset(("self", "first", "previous", "prev", "next", "last"))
_OF_COMPOSITION = frozenset(
    (
        *("subject", "encounter", "author", "attester", "custodian", "relatesTo", "event", "section"),
        *("party", "targetReference", "detail", "focus", "entry"),
    )
)


class BundleIndex:
    """The entries of a Bundle (or resources of Parameters) by their full url; without one, by type and id."""

    def __init__(self, bundle: Json) -> None:
        self.by_url: dict[str, list[Json]] = defaultdict(list)
        self.by_name: dict[str, list[Json]] = defaultdict(list)
        self._urls: dict[int, str] = {}
        for entry in [*entries(bundle), *_parameters(bundle)]:
            resource, url = entry.get("resource"), entry.get("fullUrl")
            if not isinstance(resource, dict):
                continue
            if isinstance(url, str):
                self.by_url[url].append(resource)
                self._urls[id(resource)] = url
            elif "id" in resource:
                self.by_name[f"{resource.get('resourceType')}/{resource['id']}"].append(resource)

    def url_of(self, resource: Json) -> str | None:
        """The full url of an entry."""
        return self._urls.get(id(resource))

    def find(self, reference: str, base: str | None) -> list[Json]:
        """The entries that a reference in the entry with full url `base` can resolve to."""
        bare, _, version = reference.partition("/_history/")
        found = self.by_url.get(bare)
        if found is None and ":" not in bare:
            restful = _RESTFUL.fullmatch(base or "")
            found = (self.by_url.get(restful[1] + bare) if restful else None) or self.by_name.get(bare)
        if version:
            found = [one for one in found or () if _version(one) == version]
        return found or []


def entries(bundle: Json) -> list[Json]:
    """The entries that are objects."""
    found = bundle.get("entry")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _parameters(resource: Json) -> list[Json]:
    found = resource.get("parameter")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _version(resource: Json) -> Any:
    meta = resource.get("meta")
    return meta.get("versionId") if isinstance(meta, dict) else None


def check_bundle(bundle: Json, index: BundleIndex, location: str, run: Run) -> None:
    """Check the rules of a Bundle that depend on its type."""
    kind = bundle.get("type")
    for number, entry in enumerate(entries(bundle)):
        _check_full_url(entry, kind, f"{location}.entry[{number}]", run)
        if kind == "searchset":
            _check_result(entry, f"{location}.entry[{number}]", run)
    if kind == "document":
        _check_document(bundle, index, location, run)
    elif kind == "message":
        _check_first(bundle, "MessageHeader", location, run)
    elif kind == "searchset":
        _check_links(bundle, location, run)


def _check_first(bundle: Json, kind: str, location: str, run: Run) -> Json | None:
    found = entries(bundle)
    first = found[0].get("resource") if found else None
    if isinstance(first, dict) and first.get("resourceType") == kind:
        return first
    run.error("invalid", f"the first entry of a {bundle.get('type')} must be a {kind}", f"{location}.entry[0]")
    return None


def _check_full_url(entry: Json, kind: Any, location: str, run: Run) -> None:
    url, resource = entry.get("fullUrl"), entry.get("resource")
    if not isinstance(url, str):
        return
    if ":" not in url:
        run.error("invalid", "the fullUrl must be an absolute url", f"{location}.fullUrl")
    restful = _RESTFUL.fullmatch(url)
    if restful is None or not isinstance(resource, dict) or restful[2] != resource.get("resourceType"):
        return
    if "id" in resource and resource["id"] != restful[3]:
        run.error("invalid", "the fullUrl does not end with the id of the resource", f"{location}.fullUrl")
    elif "id" not in resource and kind not in ("transaction", "batch"):
        run.error("invalid", "the fullUrl is a RESTful url, but the resource has no id", f"{location}.fullUrl")


def _check_result(entry: Json, location: str, run: Run) -> None:
    """Search results have an id; entries of mode `outcome` are OperationOutcomes."""
    resource, search = entry.get("resource"), entry.get("search")
    if not isinstance(resource, dict):
        return
    kind = resource.get("resourceType")
    outcome = isinstance(search, dict) and search.get("mode") == "outcome"
    if outcome and kind != "OperationOutcome":
        run.error(
            "invalid", f"an outcome of a search must be an OperationOutcome, not a {kind}", f"{location}.resource"
        )
    if "id" not in resource and kind != "OperationOutcome":
        run.error("required", "a resource in a searchset must have an id", f"{location}.resource")


def _check_links(bundle: Json, location: str, run: Run) -> None:
    seen: set[Any] = set()
    links = bundle.get("link")
    for number, one in enumerate(links if isinstance(links, list) else ()):
        relation = one.get("relation") if isinstance(one, dict) else None
        if isinstance(relation, str) and relation in _ONCE:
            if relation in seen:
                run.error("invalid", f"the link '{relation}' appears more than once", f"{location}.link[{number}]")
            seen.add(relation)


def _check_document(bundle: Json, index: BundleIndex, location: str, run: Run) -> None:
    composition = _check_first(bundle, "Composition", location, run)
    if composition is None:
        return
    base = index.url_of(composition)
    for reference, where in _references(composition, f"{location}.entry[0].resource"):
        if reference[:1] == "#" or (":" in reference and not reference.startswith("urn:")):
            continue
        found = index.find(reference, base)
        if not found:
            run.error("not-found", f"the document does not contain {reference[:100]}", where)
        elif len(found) > 1:
            run.error("multiple-matches", f"the document contains {reference[:100]} {len(found)} times", where)


def _references(value: Any, location: str) -> Iterator[tuple[str, str]]:
    """The references of a Composition that a document must contain, with their locations."""
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _references(each, f"{location}[{number}]")
    elif isinstance(value, dict):
        if isinstance(value.get("reference"), str):
            yield value["reference"], location
        for name, item in value.items():
            if name in _OF_COMPOSITION:
                yield from _references(item, f"{location}.{name}")
