"""`/admin/audit/export` and `/admin/audit/heads`: the audit trail with its hash chains.

An export is lines of JSON, a page a request.  The first page begins with the line `export`, the public keys, the heads,
and the anchors: the last links before `since`.  Then follow the records with their links by position, then records that
are in no chain, a day each page, then the line `end`.  A page that is not the last one ends with the line `page`, whose
`next` is the parameter `page` of the next request.  `since` and `until` are days of chaining.

`security.audit_proof` verifies it; docs/reference/admin-api.md describes each line.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, NamedTuple

import orjson

from ipf.errors import Category, Problem
from ipf.ports import Answer, Clock, Request
from ipf.ports.audit.chain import AuditChainStore, ChainFilter
from ipf.ports.audit.records import ADMIN, FHIR
from ipf.security.audit.chain import public_pem
from ipf.wire.admin.messages import answer, parameters_of, window
from ipf.wire.admin.route import SURFACE, Mounted, Route, WhenMasked, query
from ipf.wire.admin.schemas.base import TEXT, Schema

NDJSON = "application/x-ndjson"
PAGE = 2000
_MOST_UNLINKED = 1000
_HEADS = 10_000  # of a page of heads that the store is asked for
_FIRST_DAY = "0001-01-01"

Lines = list[dict[str, Any]]


async def list_heads(store: AuditChainStore, request: Request) -> Answer:
    """`GET /admin/audit/heads`: a page of signed heads, newest first, and all public keys."""
    parameters = parameters_of(request)
    limit, offset = window(parameters)
    total, heads = await store.heads(_filter(parameters), limit, offset)
    keys = [{**key._asdict(), "pem": public_pem(key.public_key)} for key in await store.keys()]
    items = [head._asdict() for head in heads]
    found = {"total": total, "limit": limit, "offset": offset, "items": items, "keys": keys}
    return answer(200, {"installation": await store.installation(), **found})


async def export(store: AuditChainStore, clock: Clock, request: Request) -> Answer:
    """`GET /admin/audit/export`: a page.  Problem VALUE for a parameter that cannot be read."""
    parameters = parameters_of(request)
    wanted = _filter(parameters)
    kind, _, at = parameters.get("page", "").partition(":")
    if not kind:
        lines = [*await _head_lines(store, wanted, clock()), *await _record_lines(store, wanted, 0)]
    elif kind == "after" and at.isdecimal() and len(at) < 19:
        lines = await _record_lines(store, wanted, int(at))
    elif kind == "day":
        lines = await _unlinked_lines(store, wanted, _day("page", at))
    else:
        raise Problem(Category.VALUE, "page must be the value that the page before gave")
    return Answer(200, b"".join(orjson.dumps(line) + b"\n" for line in lines), (), NDJSON)


async def _head_lines(store: AuditChainStore, wanted: ChainFilter, now: datetime) -> Lines:
    of_chain = ChainFilter(wanted.tenant, wanted.surface)
    about = {"version": 1, "installation": await store.installation(), "at": now.isoformat()}
    about |= {"tenant": wanted.tenant, "surface": wanted.surface, "since": wanted.since, "until": wanted.until}
    lines: Lines = [{"type": "export", **about}]
    lines += ({"type": "key", **key._asdict()} for key in await store.keys())
    offset = 0
    while True:
        total, heads = await store.heads(of_chain, _HEADS, offset)
        lines += ({"type": "head", "head": head._asdict()} for head in heads)
        offset += len(heads)
        if not heads or offset >= total:
            break
    lines += ({"type": "anchor", "link": link._asdict()} for link in await store.anchors(wanted))
    return lines


async def _record_lines(store: AuditChainStore, wanted: ChainFilter, after: int) -> Lines:
    found = await store.links(wanted, after, PAGE)
    lines: Lines = [{"type": "record", "link": one.link._asdict(), "record": one.record} for one in found]
    following = f"after:{found[-1].link.position}" if len(found) == PAGE else f"day:{wanted.since or _FIRST_DAY}"
    return [*lines, _next(following)]


async def _unlinked_lines(store: AuditChainStore, wanted: ChainFilter, day: str) -> Lines:
    records, following = await store.unlinked(wanted, day, _MOST_UNLINKED)
    lines: Lines = [{"type": "unlinked", "record": record} for record in records]
    if following is not None:
        return [*lines, _next(f"day:{following}")]
    waiting, _ = await store.backlog()
    return [*lines, {"type": "end", "waiting": waiting}]


def _next(page: str) -> dict[str, Any]:
    return {"type": "page", "next": page}


def _filter(parameters: Mapping[str, str]) -> ChainFilter:
    """Parameters of the URL as a filter; a blank one is none."""
    surface = parameters.get("surface") or None
    if surface not in (None, FHIR, ADMIN):
        raise Problem(Category.VALUE, f"surface must be {FHIR} or {ADMIN}")
    tenant = parameters.get("tenant", "*") or "*"
    if not tenant.isprintable():
        raise Problem(Category.VALUE, "tenant must be the name of a tenant, or *")
    days = (_day(name, value) if (value := parameters.get(name)) else None for name in ("since", "until"))
    return ChainFilter(None if tenant == "*" else tenant, surface, *days)


def _day(name: str, value: str) -> str:
    """A day, or the day of a time, in ISO 8601."""
    for read in (date.fromisoformat, datetime.fromisoformat):
        try:
            return f"{read(value):%Y-%m-%d}".rjust(10, "0")
        except ValueError:
            continue
    raise Problem(Category.VALUE, f"{name} must be a day in ISO 8601")


class Chains(NamedTuple):
    """What the operations use."""

    store: AuditChainStore
    clock: Clock


_DAY: Schema = {"type": "string", "format": "date"}
_CHAINS = (
    query("tenant", TEXT, "of this tenant"),
    SURFACE,
    query("since", _DAY, "first day"),
    query("until", _DAY, "last day"),
)
ROUTES: tuple[Route[Chains], ...] = (
    Route(
        "GET", "/audit/heads", "auditHeads", "Signed heads of the chains, newest first, and the keys",
        lambda of, request, _: list_heads(of.store, request), "AuditHeads", masked=WhenMasked.NO, parameters=_CHAINS,
        is_page=True,
    ),
    Route(
        "GET", "/audit/export", "auditExport", "A page of the audit trail with its hash chains, as lines of JSON",
        lambda of, request, _: export(of.store, of.clock, request), "Any", masked=WhenMasked.NO,
        parameters=[*_CHAINS, query("page", TEXT, "`next` of the page before")], answers=(NDJSON, TEXT),
    ),
)  # fmt: skip


def routes(store: AuditChainStore, clock: Clock) -> Mounted[Chains]:
    """The paths below `/admin/audit`."""
    return Mounted(ROUTES, Chains(store, clock))
