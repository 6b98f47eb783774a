"""References of both sides of a run: `resolve()` in the source, and `reference()` where the result is no Bundle.

In the source a reference is resolved among the entries of a Bundle (fullUrl, or `Type/id`) and the contained resources
(`#id`).  An index of the source is made at the first `resolve()`, so a run stays linear in its source.

A result that is no Bundle of a message refers to its resources as the reference implementation does: `Type/id`, with an
id that is made if the map gives none; to a contained resource `#id`.

Source: https://hl7.org/fhir/R4/bundle.html#references, https://hl7.org/fhir/R4/references.html#contained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ipf.ports import Json

_HISTORY = "/_history/"


class SourceReferences:
    """The resources of a JSON source, by reference."""

    def __init__(self, source: Any) -> None:
        self._source: Json = source if type(source) is dict else {}
        self._entries: dict[str, Json] | None = None
        self._urls: dict[int, str] = {}
        self._contained: dict[str, Json | None] = {}
        self._owners: dict[int, Json] = {}

    def resolve(self, reference: str, items: Iterable[Any] = ()) -> Json | None:
        """The resource; None when the source does not have it.

        `items`: the items that the expression works on; they tell which resource's `#id` is meant.
        """
        entries = self._index()
        if reference.startswith("#"):
            return self._resolve_contained(reference[1:], items)
        return entries.get(reference.partition(_HISTORY)[0])

    def url_of(self, resource: Json) -> str | None:
        """`Type/id`, else the fullUrl of its entry; None when it has neither."""
        if resource.get("id") and resource.get("resourceType"):
            return f"{resource['resourceType']}/{resource['id']}"
        self._index()
        return self._urls.get(id(resource))

    def _index(self) -> dict[str, Json]:
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def _read(self) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for url, resource in _resources(self._source):
            if url:
                self._urls[id(resource)] = url
            name = f"{resource.get('resourceType')}/{resource.get('id')}"
            for key in (url, name):
                if key:
                    found.setdefault(key, resource)
            for one in resource.get("contained") or ():
                if type(one) is dict and one.get("id"):
                    known = self._contained.setdefault(one["id"], one)
                    if known is not one:
                        self._contained[one["id"]] = None  # several resources have one of this id
            if resource.get("contained"):
                self._owners.update(dict.fromkeys(_ids_in(resource), resource))
        return found

    def _resolve_contained(self, name: str, items: Iterable[Any]) -> Json | None:
        for item in items:
            owner = self._owners.get(id(item))
            if owner is not None:
                return _contained_in(owner, name)
        return self._contained.get(name) if name else None


def _resources(source: Json) -> Iterator[tuple[str, Json]]:
    """The source, and the resources of a Bundle with their fullUrls."""
    yield "", source
    for entry in source.get("entry") or ():
        if type(entry) is dict and type(entry.get("resource")) is dict:
            yield str(entry.get("fullUrl") or "").partition(_HISTORY)[0], entry["resource"]


def _contained_in(owner: Json, name: str) -> Json | None:
    if not name or owner.get("id") == name:
        return owner
    return next((one for one in owner["contained"] if type(one) is dict and one.get("id") == name), None)


def _ids_in(element: Any) -> Iterator[int]:
    """id() of each object in an element."""
    stack = [element]
    while stack:
        one = stack.pop()
        if type(one) is dict:
            yield id(one)
            stack.extend(one.values())
        elif type(one) is list:
            stack.extend(one)


Reference = tuple[Json, str, Json]


def point(holder: Json, key: str, before: Iterable[str], after: str) -> None:
    """Write the final text of a reference.  In a list it replaces the texts `before`, and other items stay."""
    held = holder[key]
    if type(held) is list:
        held[:] = [after if one in before else one for one in held]
    else:
        holder[key] = after


def unlink(holder: Json, key: str, text: str) -> bool:
    """Remove a reference, of a list the items with its text; whether there was one."""
    held = holder.get(key)
    kept = [one for one in held if one != text] if type(held) is list else []
    if kept and type(held) is list:
        is_changed = len(kept) < len(held)
        held[:] = kept
        return is_changed
    return holder.pop(key, None) is not None


def settle(
    references: Iterable[Reference],
    named: Iterable[tuple[Json, str]],
    created: Iterable[Reference],
    spend: Callable[[int], None],
) -> None:
    """Give each resource that is referred to an id, and write its final reference, in a result that is no Bundle.

    `named`: resources and the ids made for them.  `created`: elements made by the run, as (parent, name, element).
    `spend`: counts steps of the run.
    """
    pairs = list(named)
    names = {id(resource): name for resource, name in pairs}
    for resource, name in pairs:
        if len(resource) > 1 and "resourceType" in resource:
            resource.setdefault("id", name)
    contained = {id(child) for _, name, child in created if name == "contained"}
    for holder, key, resource in references:
        if key in holder and id(resource) in names and resource.get("id"):
            spend(_length(holder[key]))
            is_inside = id(resource) in contained
            kind = resource["resourceType"]
            before = (f"{kind}/{resource['id']}", f"{kind}/{names[id(resource)]}")
            point(holder, key, before, f"#{resource['id']}" if is_inside else before[0])


def _length(held: Any) -> int:
    return len(held) if type(held) is list else 0


def name_entries(
    bundle: Json, urns: dict[int, str], references: Iterable[Reference], spend: Callable[[int], None]
) -> None:
    """Give the entries of a Bundle that references mean their fullUrls; one that the map has set stays.

    `spend`: counts steps of the run.
    """
    urls: dict[int, str] = {}
    for entry in bundle.get("entry") or ():
        resource = entry.get("resource")
        urn = urns.get(id(resource))
        if urn is not None:
            urls[id(resource)] = entry.get("fullUrl") or urn
            if "fullUrl" not in entry:
                entry["fullUrl"] = urn
    for holder, key, resource in references:
        if key in holder and id(resource) in urls:
            spend(_length(holder[key]))
            point(holder, key, (urns[id(resource)],), urls[id(resource)])
