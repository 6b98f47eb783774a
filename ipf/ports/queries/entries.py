"""The entries of a FHIR transaction.  `mapping` and `rest` create them, `rest` executes them.

Source: https://hl7.org/fhir/R4/http.html#transaction
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ipf.ports.base import Json
from ipf.ports.identity import Identity, IdentityKey
from ipf.ports.queries.field_sources import FieldSources, SegmentSet, SetMove
from ipf.ports.queries.search import Query


class Method(StrEnum):
    """The interactions of entries, in the order in which a transaction runs them."""

    DELETE = "delete"
    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"


@dataclass(slots=True)
class NumberedLink:
    """A reference of a converted message by an order number.  `holder`: the Reference.

    `resource_type`: ServiceRequest: the order with the number; Observation: the result of this order with the `code`
    and the `sub_id`.
    """

    holder: Json
    resource_type: str
    key: IdentityKey
    code: str = ""
    sub_id: str = ""


@dataclass(slots=True)
class Entry:
    """One requested change.

    `id`: the id in the URL of an update or delete.  `condition`: If-None-Exist of a create, or the search of a
    conditional update or delete.  `full_url`: other entries of the same unit refer to this resource by it.
    `if_match`: the required current version.  `must_be_new`: the update may only create (If-None-Match: *).
    `patch`: returns the new resource for the current one without changing it; may raise a Problem.
    `identity`: of an entry of a converted message instead of a condition: a create writes only what is not there yet,
    an update replaces what is there.
    `sources`: of an update of a converted message, the fields that its elements come from; what the message leaves out
    is kept then.  `sets`: of a Patient or Encounter, the sets of segments that the message states of it.
    `set_move`: of a Patient, the sets that it takes over from another one.
    `numbered`: of a converted message, the references that name a resource by an order number.
    `targets_unit`: of a Provenance, whose target becomes what the unit writes; it is not stored when that is nothing.
    `place`: location of the entry (`Bundle.entry[2]`) for error messages.
    `resource` is never modified, since a retry uses it again.
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
    identity: Identity | None = None
    sources: FieldSources | None = None
    sets: tuple[SegmentSet, ...] = ()
    set_move: SetMove | None = None
    numbered: tuple[NumberedLink, ...] = ()
    targets_unit: bool = False


Link = tuple[Json, str, int]
"""A reference to another entry: the JSON object that contains it, its key in that object, and the index of the entry
that it refers to."""
