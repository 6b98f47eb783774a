"""The operator API as a table: each row is an operation.

A row says method and path, who may use the operation, what it takes and answers, and which function does it.  Klein's
routes (`klein_app.mount`), the OpenAPI documents (`schemas.document`), the page `/admin/docs`, the labels of the HTTP
metrics, and the rights of the console and of its proxy (`console.serving.rights`) are made from these rows.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Generic, TypeVar

from ipf.ports import Answer, Request
from ipf.ports.audit.records import ADMIN, FHIR
from ipf.wire.admin.schemas.base import TEXT, Schema

P = TypeVar("P")

Handle = Callable[[P, Request, str], Awaitable[Answer]]
"""What does an operation: its part of the service, the request, and the variable of the path ("" without one)."""

WRONG_STATE = "the state does not allow it"
ERROR, CONFLICT = "Error", "Conflict"
"""Bodies of 409: the common one, and the one that states the status of a message."""

_VARIABLE = re.compile(r"\{(\w+)\}")


class Role(IntEnum):
    """What a person may do; each includes the ones before."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


class WhenMasked(Enum):
    """Whether a role that sees no patient data (IPF_UI_MASK) may use an operation."""

    YES = "yes"
    PAGE = "page"
    """Through a page alone, which writes the body: a body of a script may search by what is masked."""
    NO = "no"


@dataclass(frozen=True, slots=True)
class Route(Generic[P]):
    """One operation.

    `path`: below the mount, with at most one variable, `{id}`; `variable`: its schema.  `name`: the operationId.
    `returns`: the name of the schema of the answer; None = no body.  `body`: the same for the request.  `sends`,
    `answers`: media type and schema of a body that is not JSON.  `status`: of success, with `returns`.  `statuses`:
    further ones, with description and schema.  `refusals`: besides those of every operation.  `conflict`: when it
    answers 409, with the body `conflict_body`.  `is_page`: it answers a page of a list.
    """

    method: str
    path: str
    name: str
    summary: str
    handle: Handle[P]
    returns: str | None = None
    role: Role = Role.VIEWER
    masked: WhenMasked = WhenMasked.YES
    parameters: Sequence[Schema] = ()
    variable: Schema = field(default_factory=lambda: {"type": "integer"})
    body: str | None = None
    sends: tuple[str, Schema] | None = None
    answers: tuple[str, Schema] | None = None
    status: str = "200"
    statuses: Mapping[str, tuple[str, Schema]] = field(default_factory=dict)
    refusals: Sequence[str] = ()
    conflict: str = ""
    conflict_body: str = ERROR
    is_page: bool = False
    needs_token: bool = True

    @property
    def variable_name(self) -> str | None:
        """The name of the variable in the path."""
        found = _VARIABLE.search(self.path)
        return None if found is None else found[1]


@dataclass(frozen=True, slots=True)
class Mounted(Generic[P]):
    """Rows, and the part of the service that their functions work with."""

    routes: Sequence[Route[P]]
    part: P


def query(name: str, schema: Schema, description: str) -> Schema:
    """A parameter of the query."""
    return {"name": name, "in": "query", "description": description, "schema": schema}


SURFACE: Schema = query("surface", {"enum": [FHIR, ADMIN]}, "fhir: the FHIR API; admin: this one")
TENANT: Schema = query("tenant", TEXT, "whose; * = of all tenants; without it those of the tenant default")

AnyRoute = Route[Any]
AnyMounted = Mounted[Any]
