"""POST [base] with a Bundle: https://hl7.org/fhir/R4/http.html#transaction

A transaction becomes one unit, stored whole or not at all; the writes of a batch become units of their own that share
one commit.  Reads are answered after the writes.  `entries_of` is also what a converted message goes through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from ipf.errors import Category, Problem
from ipf.fhir.bundle import ResponseEntry, etag, response
from ipf.fhir.json import dumps
from ipf.fhir.query import Query, parse_criteria
from ipf.ports import Answer, Json, Request
from ipf.rest.admit import admit
from ipf.rest.commit import commit
from ipf.rest.exchange import describe, if_match, location, parameters, preference, resource_body
from ipf.rest.ids import is_id
from ipf.rest.outcome import operation_outcome, success
from ipf.rest.repository import Repository
from ipf.rest.unit import Entry, EntryResult, Method, Unit

Perform = Callable[[Request, Repository], Awaitable[Answer]]

_METHODS = {"POST": Method.CREATE, "PUT": Method.UPDATE, "DELETE": Method.DELETE}
_TEXTS = ("ifNoneExist", "ifMatch", "ifNoneMatch")
_READS = frozenset({"GET", "HEAD"})
_ORDER = (Method.DELETE, Method.CREATE, Method.UPDATE)


def entries_of(bundle: Json) -> tuple[Entry, ...]:
    """The writes of a transaction Bundle.  Problem VALUE or NOT_SUPPORTED with the place of the entry."""
    return tuple(_entry_of(item, f"Bundle.entry[{number}]") for number, item in enumerate(bundle.get("entry", ())))


async def transaction(request: Request, repository: Repository, perform: Perform) -> Answer:
    """Carry out a transaction or batch Bundle; `perform` answers its reads."""
    bundle = resource_body(request, "Bundle")
    kind = bundle.get("type")
    if kind not in ("transaction", "batch"):
        raise Problem(Category.VALUE, "the Bundle's type must be transaction or batch", "Bundle.type")
    work = _Work(request, repository, kind == "transaction")
    work.sort(_items(bundle))
    await work.write()
    await work.read(perform)
    return Answer(200, response(f"{kind}-response", [work.answers[number] for number in sorted(work.answers)]))


def _items(bundle: Json) -> list[Any]:
    items = bundle.get("entry", [])
    if not isinstance(items, list):
        raise Problem(Category.MALFORMED, "Bundle.entry must be a list", "Bundle.entry")
    return items


@dataclass(slots=True)
class _Work:
    """The entries of one Bundle by what is to be done with them, and the answers, by number."""

    request: Request
    repository: Repository
    whole: bool
    writes: dict[int, Entry] = field(default_factory=dict)
    reads: dict[int, Request] = field(default_factory=dict)
    answers: dict[int, ResponseEntry] = field(default_factory=dict)

    def sort(self, items: Sequence[Any]) -> None:
        """Read every entry; one that cannot be read fails a transaction, and is answered as such in a batch."""
        for number, item in enumerate(items):
            place = f"Bundle.entry[{number}]"
            try:
                method = _request_of(item, place).get("method")
                if method in _READS:
                    self.reads[number] = _read_of(item["request"], self.request, place)
                else:
                    self.writes[number] = self._admitted(_entry_of(item, place, self.request.base_url))
            except Problem as problem:
                self._fail(number, problem)

    async def write(self) -> None:
        """Store the writes: as one unit, or each as its own."""
        if not self.writes:
            return
        tenant, correlation_id = self.request.tenant, self.request.correlation_id
        if self.whole:
            unit = Unit(tenant, tuple(self.writes.values()), correlation_id)
            ends: Sequence[EntryResult | Problem] = (await self.repository.commit_one(unit)).entries
            numbers = list(self.writes)
        else:
            numbers = sorted(self.writes, key=lambda number: (_ORDER.index(self.writes[number].method), number))
            units = [Unit(tenant, (self.writes[number],), correlation_id) for number in numbers]
            results = await commit(units, self.repository.store, self.repository.matcher, self.repository.clock)
            ends = [result if isinstance(result, Problem) else result.entries[0] for result in results]
        for number, end in zip(numbers, ends, strict=True):
            if isinstance(end, Problem):
                self._fail(number, end)
            else:
                self.answers[number] = self._written(end)

    async def read(self, perform: Perform) -> None:
        """Answer the reads, after the writes and seeing them."""
        for number, request in self.reads.items():
            try:
                answer = await perform(request, self.repository)
            except Problem as problem:
                self.answers[number] = _failed(problem)
            else:
                tag = dict(answer.headers).get("ETag")
                self.answers[number] = ResponseEntry(_status(answer.status), etag=tag, resource=answer.body)

    def _admitted(self, entry: Entry) -> Entry:
        if entry.resource is None:
            return entry
        resource = admit(entry.resource, self.repository, entry.place)
        return entry if resource is entry.resource else replace(entry, resource=resource)

    def _fail(self, number: int, problem: Problem) -> None:
        if self.whole:
            raise problem
        self.answers[number] = _failed(problem)

    def _written(self, result: EntryResult) -> ResponseEntry:
        version, form = result.version, preference(self.request, "return")
        if version is None or version.deleted:
            return ResponseEntry(_status(result.status), etag=etag(version) if version else None)
        return ResponseEntry(
            _status(result.status),
            location(version, self.request.base_url),
            etag(version),
            version.last_updated,
            resource=version.body if form == "representation" else b"",
            outcome=dumps(success(describe(result))) if form == "OperationOutcome" else b"",
            full_url=f"{self.request.base_url}/{version.resource_type}/{version.id}",
        )


def _failed(problem: Problem) -> ResponseEntry:
    return ResponseEntry(_status(problem.rendering.http_status), outcome=dumps(operation_outcome(problem)))


def _status(code: int) -> str:
    return f"{code} {HTTPStatus(code).phrase}"


def _request_of(item: Any, place: str) -> Json:
    asked = item.get("request") if isinstance(item, dict) else None
    if not isinstance(asked, dict) or not (isinstance(asked.get("url"), str) and isinstance(asked.get("method"), str)):
        raise Problem(Category.REQUIRED, "an entry needs request.method and request.url", f"{place}.request")
    if len(asked) > 2:  # more than the two
        for name in _TEXTS:
            if name in asked and not isinstance(asked[name], str):
                raise Problem(Category.MALFORMED, f"{name} must be a text", f"{place}.request.{name}")
    if not isinstance(item.get("fullUrl", ""), str):
        raise Problem(Category.MALFORMED, "fullUrl must be a text", f"{place}.fullUrl")
    return asked


def _entry_of(item: Any, place: str, base_url: str | None = None) -> Entry:
    """A Bundle entry as the change it asks for."""
    asked = _request_of(item, place)
    method = _METHODS.get(asked["method"])
    if method is None:
        raise Problem(Category.NOT_SUPPORTED, "the method must be POST, PUT or DELETE", f"{place}.request.method")
    target, search = _target(asked["url"], base_url)
    resource_type, id = target, None
    if "/" in target:
        resource_type, _, id = target.partition("/")
        if not is_id(id) or method is Method.CREATE:
            raise Problem(Category.VALUE, "the url does not fit the method", f"{place}.request.url")
    resource = None if method is Method.DELETE else _resource_of(item, resource_type, place)
    condition = _condition(method, asked, resource_type, id, search, place)
    if method is Method.UPDATE and resource is not None:
        id = _update_id(resource, id, condition, place)
    tag = asked.get("ifMatch")
    version = if_match(tag) if tag is not None else None
    return Entry(method, resource_type, id, resource, condition, item.get("fullUrl"), version, place)


def _target(url: str, base_url: str | None) -> tuple[str, str | None]:
    """Path relative to the base, and the search."""
    if base_url is not None:
        url = url.removeprefix(base_url)
    target, mark, search = url.partition("?")
    return target.removeprefix("/"), search if mark else None


def _resource_of(item: Json, resource_type: str, place: str) -> Json:
    resource = item.get("resource")
    if not isinstance(resource, dict) or resource.get("resourceType") != resource_type:
        raise Problem(Category.VALUE, f"a resource of type {resource_type[:60]} is expected", f"{place}.resource")
    return resource


def _condition(
    method: Method, asked: Json, resource_type: str, id: str | None, search: str | None, place: str
) -> Query | None:
    """If-None-Exist of a create, or the search in the URL of a conditional update or delete."""
    if method is Method.CREATE:
        search = asked.get("ifNoneExist")
        if search is None:
            return None
        search = search.rpartition("?")[2]
    elif id is not None:
        return None
    query = parse_criteria(f"{resource_type}?{search or ''}")
    if not query.terms:
        raise Problem(Category.VALUE, "an id or search parameters are needed", f"{place}.request.url")
    return query


def _update_id(resource: Json, id: str | None, condition: Query | None, place: str) -> str | None:
    own = resource.get("id")
    if condition is not None:
        return own if is_id(own) else None
    if own is not None and own != id:
        raise Problem(Category.VALUE, "the resource's id must be that of the URL", f"{place}.resource.id")
    return id


def _read_of(asked: Json, outer: Request, place: str) -> Request:
    """The request that a read in a Bundle stands for."""
    target, search = _target(asked["url"], outer.base_url)
    pairs = parameters(search or "", f"{place}.request.url")
    path = tuple(unquote(segment) for segment in target.split("/"))
    known = asked.get("ifNoneMatch")
    headers = {"if-none-match": known} if known is not None else {}
    return Request("GET", path, tuple(pairs), headers, b"", outer.base_url, outer.correlation_id, outer.tenant)
