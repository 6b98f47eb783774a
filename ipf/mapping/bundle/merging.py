"""Two entries of a message for one resource: the first wins, and what the second loses is known.

What arrives: a resource of an entry, and another one with the same identifier.  What leaves: the first with the members
that only the second has, and the members of the second that did not reach it, by path (`ServiceRequest.code`).  A
second patient or visit is a Problem: one number under two of them would put data on somebody else.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import dumps
from ipf.mapping.runtime.mending import rules_of
from ipf.ports import Json

Lost = tuple[Json, str, Any]
"""A resource, the name of a member, and a value that the resource did not take over."""


def fill(resource: Json, twin: Json, lost: list[Lost]) -> None:
    """Add members of the second entry for a resource; the first entry wins, also where it chose another type.

    A contained resource without the member that refers to it is not added: R4 does not allow it (dom-3).
    """
    before = frozenset(resource)
    for key, value in twin.items():
        if key == "contained" and key not in before:
            continue
        if key in resource:
            if resource[key] != value:
                lost.append((resource, key, value))
        elif other_types(resource["resourceType"], key) & resource.keys():
            lost.append((resource, key, value))
        else:
            resource[key] = value
    if "contained" in twin and "contained" not in before:
        _add_contained(resource, twin["contained"], before, lost)
    _keep_valid(resource)


def _add_contained(resource: Json, contained: Any, before: frozenset[str], lost: list[Lost]) -> None:
    added = dumps([value for key, value in resource.items() if key not in before])
    if b'"#' in added:
        resource["contained"] = contained
    else:
        lost.append((resource, "contained", contained))


def renew(resource: Json, twin: Json, lost: list[Lost]) -> None:
    """The same for a second entry that wins."""
    for key, value in twin.items():
        if resource.get(key, value) != value:
            lost.append((resource, key, resource[key]))
        resource[key] = value
    _keep_valid(resource)


def _keep_valid(resource: Json) -> None:
    """The invariants of the type hold for members of two entries together."""
    rules = rules_of(resource["resourceType"])
    if rules is not None and rules.mend is not None:
        rules.mend(resource)


TWO_OWNERS = "the message names two of them for one resource, and it can have one"
_OWNERS = frozenset(("subject", "patient", "beneficiary", "individual", "for", "encounter", "context"))


def dropped_paths(lost: list[Lost]) -> tuple[str, ...]:
    """Paths of lost values, each once.  Call it when references have their final names: then equal ones are equal.

    Problem VALUE: a resource has two subjects, patients or encounters.
    """
    for resource, key, value in lost:
        if key in _OWNERS and _is_other(value, resource.get(key)):
            raise Problem(Category.VALUE, TWO_OWNERS, _path(resource["resourceType"], key))
    return tuple(
        dict.fromkeys(
            _path(resource["resourceType"], key.removeprefix("_"))
            for resource, key, value in lost
            if not _is_within(value, resource.get(key))
        )
    )


@lru_cache(maxsize=4096)
def _path(resource_type: str, key: str) -> str:
    """`Observation.value` for `valueQuantity`."""
    element = definitions().element(resource_type, key)
    return f"{resource_type}.{key}" if element is None else element.path.removesuffix("[x]")


def _is_other(value: Any, held: Any) -> bool:
    """Whether two single References name different resources, or only one of them somebody."""
    if type(value) is not dict or type(held) is not dict or not value:
        return False
    if "identifier" in value or "identifier" in held:
        return False  # the same resource may be named by its number
    return bool(value.get("reference") != held.get("reference"))


def _is_within(value: Any, held: Any) -> bool:
    """Whether everything of a value is in another one, which may have more."""
    if type(value) is dict and type(held) is dict:
        return all(name in held and _is_within(one, held[name]) for name, one in value.items())
    if type(value) is list and type(held) is list:
        return all(any(_is_within(one, other) for other in held) for one in value)
    return bool(value == held)


@lru_cache(maxsize=4096)
def other_types(resource_type: str, key: str) -> frozenset[str]:
    """The other names of a choice (`performedPeriod` for `performedDateTime`), with those of extended primitives."""
    element = definitions().element(resource_type, key.removeprefix("_"))
    chosen = definitions().element(resource_type, element.path.rpartition(".")[2]) if element is not None else None
    if chosen is None or not chosen.choice:
        return frozenset()
    names = {chosen.json_name(one) for one in chosen.types} - {key.removeprefix("_")}
    return frozenset(names | {f"_{one}" for one in names})
