"""The entries of a FHIR transaction: mapping and `rest` make them, `rest` plans them.

Source: https://hl7.org/fhir/R4/http.html#transaction
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ipf.ports.base import Json
from ipf.ports.search import Query


class Method(StrEnum):
    """The interactions of entries, in the order in which a transaction runs them."""

    DELETE = "delete"
    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"


@dataclass(slots=True)
class Entry:
    """One requested change.

    `id`: the id in the URL of an update or delete.  `condition`: If-None-Exist of a create, or the search of a
    conditional update or delete.  `full_url`: the name by which other entries of the same unit refer to this resource.
    `if_match`: the version that must be current.  `must_be_new`: an update that may only create (If-None-Match: *).
    `patch`: of a patch, what makes the new resource of the current one (never changing it); it may raise a Problem.
    `place`: where the entry stands (`Bundle.entry[2]`), for messages.
    `resource` is never changed by us; it may be used again for a second attempt.
    """

    method: Method
    resource_type: str
    id: str | None = None
    resource: Json | None = None
    condition: Query | None = None
    full_url: str | None = None
    if_match: int | None = None
    place: str | None = None
    must_be_new: bool = False
    patch: Callable[[Json], Json] | None = None


Link = tuple[Json, str, int]
"""A reference to another entry, when whoever made the resources knows where they stand: the object that holds it, its
name there, and the number of the entry that it means."""
