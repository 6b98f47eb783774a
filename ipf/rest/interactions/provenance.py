"""The header `X-Provenance`: a Provenance that is stored in the transaction of the write that it comes with.

It is one line of JSON, UTF-8 or percent-encoded.  Its `target` becomes every version that the write creates, whatever
the client sent there; nothing is stored when nothing is written.  It is checked as a resource that a client sends.

Source: https://hl7.org/fhir/R4/provenance.html#header
"""

from __future__ import annotations

from urllib.parse import unquote

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.ports import Json, Request
from ipf.rest.write.incoming import check_incoming
from ipf.rest.write.permission import check_entry
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import Entry, Method

HEADER, PLACE = "x-provenance", "X-Provenance"
_LONGEST = 16_384
_PLACEHOLDER = [{"reference": "Basic/written"}]


async def provenance_of(request: Request, repository: Repository) -> tuple[Entry, ...]:
    """The entry that stores the Provenance of the header; none without one.

    Problem TOO_LARGE, MALFORMED, VALUE, INVALID or UNAUTHORIZED with the place X-Provenance.
    """
    text = request.headers.get(HEADER)
    if text is None:
        return ()

    def read() -> Entry:
        try:
            return _entry(text, repository)
        except Problem as refused:
            raise refused.inside(PLACE) from refused

    entry: Entry = await repository.run_in_thread(read) if repository.validates else read()
    check_entry(request.caller, entry)
    return (entry,)


def refuse_provenance(request: Request, what: str) -> None:
    """Problem NOT_SUPPORTED for a write that stores no Provenance of the header, rather than dropping it."""
    if HEADER in request.headers:
        text = f"{what} takes no header {PLACE}: send it with a create, an update, a patch or a transaction"
        raise Problem(Category.NOT_SUPPORTED, text, PLACE)


def _entry(text: str, repository: Repository) -> Entry:
    resource = _resource(text)
    checked = check_incoming({**resource, "target": _PLACEHOLDER}, repository)
    kept = {name: value for name, value in checked.items() if name != "target"}
    return Entry(Method.CREATE, "Provenance", None, kept, place=PLACE, targets_unit=True)


def _resource(text: str) -> Json:
    if len(text) > _LONGEST:
        raise Problem(Category.TOO_LARGE, f"the header has more than {_LONGEST} characters")
    try:
        body = text.encode("latin-1").decode()
    except UnicodeError as refused:
        raise Problem(Category.MALFORMED, "the header is not UTF-8") from refused
    resource = loads((unquote(body) if body.lstrip()[:1] == "%" else body).encode())
    if not isinstance(resource, dict) or resource.get("resourceType") != "Provenance":
        raise Problem(Category.VALUE, "the header must be a Provenance")
    return resource
