"""The value set of an element: the parameters `context` and `contextDirection` of `$expand` and `$validate-code`.

Arrives: `[URL of a StructureDefinition]#[path or id of an element]`.  Leaves: the canonical of the value set that is
bound to the element.  An element below one that the definition does not unfold is looked up in the type of that one.

Sources: https://hl7.org/fhir/R4/valueset-operation-expand.html,
https://hl7.org/fhir/R4/valueset-operation-validate-code.html
"""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.fhir.profiles.library import Structures
from ipf.fhir.profiles.rows import canonical
from ipf.fhir.profiles.snapshot import SnapshotError
from ipf.ports import Json, Request
from ipf.rest.http.arguments import Arguments
from ipf.rest.write.conformance import Definitions
from ipf.rest.write.permission import if_readable
from ipf.rest.write.repository import Repository

CONTEXT = ("context", "contextDirection")
_DIRECTIONS = ("incoming", "outgoing")
_DEEPEST = 30  # names of a path
_FORM = "context must be [URL of a StructureDefinition]#[path of an element]"


async def bound_value_set(
    request: Request, known: Definitions, arguments: Arguments, repository: Repository
) -> str | None:
    """The canonical of the value set that `context` means; None without `context`.

    Problem VALUE for one that is not of this form or has no value set, NOT_FOUND for an unknown StructureDefinition.
    """
    context, direction = arguments.text("context"), arguments.text("contextDirection")
    if direction is not None and (context is None or direction not in _DIRECTIONS):
        text = "contextDirection goes with context, and must be incoming or outgoing"
        raise Problem(Category.VALUE, text, "contextDirection")
    if context is None:
        return None
    if arguments.has("url") or arguments.has("valueSet") or len(request.path) == 3:
        raise Problem(Category.VALUE, "context names the value set: give no url and no valueSet with it", "context")
    url, _, path = context.partition("#")
    if not url or not path or path.count(".") > _DEEPEST:
        raise Problem(Category.VALUE, _FORM, "context")
    structures = known.validator.structures
    if not await _is_readable(url, known, request, repository) or structures.get(url) is None:
        raise Problem(Category.NOT_FOUND, f"the StructureDefinition {url[:200]} is not loaded", "context")
    found: str = await repository.run_in_thread(lambda: _bound(structures, url, path))
    return found


async def _is_readable(url: str, known: Definitions, request: Request, repository: Repository) -> bool:
    """Whether the caller may read the definition, if a client stored it."""
    stored = known.stored.get(("StructureDefinition", url.partition("|")[0]))
    if stored is None:
        return True
    version = await repository.store.read(request.tenant, "StructureDefinition", str(stored["id"]))
    return if_readable(version, request.caller) is not None


def _bound(structures: Structures, url: str, path: str) -> str:
    try:
        element = _element(structures, url, path)
    except SnapshotError as error:
        raise Problem(Category.VALUE, f"the snapshot of {url[:200]} cannot be made: {error}", "context") from error
    if element is None:
        raise Problem(Category.VALUE, f"{url[:200]} has no element {path[:100]}", "context")
    found = element.get("binding", {}).get("valueSet")
    if not isinstance(found, str):
        raise Problem(Category.VALUE, f"no value set is bound to {path[:100]} of {url[:200]}", "context")
    return found


def _element(structures: Structures, url: str, path: str) -> Json | None:
    """The element with this id or path."""
    elements = structures.snapshot(url)
    found = next((one for one in elements if path in (one["id"], one["path"])), None) or _choice(elements, path)
    if found is not None or "." not in path:
        return found
    outer, _, name = path.rpartition(".")
    parent = _element(structures, url, outer)
    types: list[Json] = parent.get("type", []) if parent is not None else []
    if len(types) != 1:
        return None
    code = str(types[0]["code"])
    return _element(structures, next(iter(types[0].get("profile", ())), canonical(code)), f"{code}.{name}")


def _choice(elements: list[Json], path: str) -> Json | None:
    """The element `value[x]` that a path means with `valueCodeableConcept`."""
    for one in elements:
        start = one["path"].removesuffix("[x]")
        if start != one["path"] and path.startswith(start):
            named = path[len(start) :]
            if any(named == f"{each['code'][:1].upper()}{each['code'][1:]}" for each in one.get("type", ())):
                return one
    return None
