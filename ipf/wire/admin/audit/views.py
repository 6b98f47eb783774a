"""`POST /admin/audit/views`: what a person is shown by a program that reads on his behalf, for the audit trail.

The operator console reads resources from `/fhir` for the person who is signed in; where reads are not recorded there,
or nobody has a token of his own, this is the record: the page, and references of the resources on it.  The hook of the
audit trail writes it (`audit.py`), with the person of X-Ipf-Actor.  Reads of the admin API record themselves.

Source: interface specification "Operator UI"; docs/reference/admin-api.md "Audit trail".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.ports import Answer, Request
from ipf.wire.admin.route import Route, WhenMasked

PATH = ("audit", "views")
MOST = 200
_REFERENCE = re.compile(r"[A-Z][A-Za-z]{1,60}/[A-Za-z0-9\-.]{1,64}")
_PAGE = re.compile(r"/[A-Za-z0-9\-._~/$]{0,199}")


class Look(NamedTuple):
    """A page, without its query, and the resources on it."""

    page: str
    references: tuple[str, ...]


async def note_view(request: Request) -> Answer:
    """204; the record is written by the hook.  Problem VALUE, MALFORMED."""
    look_of(request.body)
    return Answer(204, b"", (), "")


def look_of(body: bytes) -> Look:
    """The body: `{"page": "/browse/Patient/7", "references": ["Patient/7"]}`.  Problem VALUE, MALFORMED."""
    found = loads(body or b"{}")
    if not isinstance(found, dict) or set(found) != {"page", "references"}:
        raise Problem(Category.VALUE, "the body is an object with page and references")
    page, references = found["page"], found["references"]
    if not isinstance(page, str) or not _PAGE.fullmatch(page):
        raise Problem(Category.VALUE, "page must be a path such as /browse/Patient/7, without a query")
    if not isinstance(references, list) or not 0 < len(references) <= MOST:
        raise Problem(Category.VALUE, f"references must be a list of 1 to {MOST} references")
    if not all(isinstance(one, str) and _REFERENCE.fullmatch(one) for one in references):
        raise Problem(Category.VALUE, "a reference is a type and an id such as Patient/7")
    return Look(page, tuple(dict.fromkeys(references)))


async def _note(_: None, request: Request, __: str) -> Answer:
    return await note_view(request)


ROUTES: tuple[Route[None], ...] = (
    Route(
        "POST", "/audit/views", "auditView", "Record what a person is shown", _note, masked=WhenMasked.PAGE,
        body="ViewRequest", refusals=["422"],
    ),
)  # fmt: skip
