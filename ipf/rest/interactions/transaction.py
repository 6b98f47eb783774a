"""POST [base] with a Bundle: https://hl7.org/fhir/R4/http.html#transaction

A transaction becomes one unit, stored whole or not at all; the writes of a batch become units of their own that share
one commit, a few hundred at a time.  Reads, searches and operations are answered after the writes.  `entries_of` is
also what a converted message goes through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.fhir.model.bundle import ResponseEntry, etag, response
from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Json, Request, Version
from ipf.ports.threads import LARGE_BODY, RunInThread, here
from ipf.rest.http.exchange import location, preference, resource_body
from ipf.rest.http.formats import Format, sent_format
from ipf.rest.http.outcome import operation_outcome, success
from ipf.rest.interactions.bundle_entries import asks_only, entries_of, entry_of, request_for
from ipf.rest.interactions.patch import patch_of
from ipf.rest.interactions.write_response import describe
from ipf.rest.write.commit import commit
from ipf.rest.write.incoming import check_incoming
from ipf.rest.write.large_bundle import (
    STREAMED_BYTES,
    Entries,
    clear_gradually,
    split_entries,
    without_garbage_collection,
)
from ipf.rest.write.permission import check_entry, visible
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import Entry, EntryResult, Method, Outcome, Unit, unit_for
from ipf.security.audit import check_immutable

Perform = Callable[[Request, Repository], Awaitable[Answer]]

__all__ = ["entries_of", "transaction"]

_ORDER = (Method.DELETE, Method.CREATE, Method.UPDATE, Method.PATCH)
_NOT_WRITTEN = (Outcome.FOUND, Outcome.UNCHANGED)
_TOGETHER = 200  # entries of a batch in one database transaction


async def transaction(request: Request, repository: Repository, perform: Perform) -> Answer:
    """Carry out a transaction or batch Bundle; `perform` answers its reads."""
    is_large = len(request.body) >= LARGE_BODY
    run_in_thread: RunInThread = repository.run_in_thread if is_large else here
    with without_garbage_collection() if is_large else nullcontext():
        work = await _carried_out(request, repository, run_in_thread)
    await work.read(perform)
    body: bytes = await run_in_thread(work.response)
    await run_in_thread(lambda: clear_gradually(work.answers))
    return Answer(200, body, about=work.stored)


async def _carried_out(request: Request, repository: Repository, run_in_thread: RunInThread) -> _Work:
    """The Bundle, its writes done.  `run_in_thread`: where it is read, and answered."""
    work: _Work = await run_in_thread(lambda: _work(request, repository))
    ends = await work.write()
    await run_in_thread(lambda: work.answer(ends))
    await run_in_thread(lambda: clear_gradually(work.writes))
    return work


def _work(request: Request, repository: Repository) -> _Work:
    """The Bundle in a request, read.  Problem VALUE, TOO_LARGE, or what is wrong with an entry."""
    bundle, items = _read(request)
    kind = bundle.get("type")
    if kind not in ("transaction", "batch"):
        raise Problem(Category.VALUE, "the Bundle's type must be transaction or batch", "Bundle.type")
    work = _Work(request, repository, kind == "transaction")
    if len(items) > repository.max_bundle_entries:
        text = f"a Bundle may have {repository.max_bundle_entries} entries, this one has {len(items)}"
        raise Problem(Category.TOO_LARGE, text, "Bundle.entry")
    work.sort(items)
    return work


def _read(request: Request) -> tuple[Json, Sequence[Any] | Entries]:
    """The Bundle and its entries; those of a large one are read when it is their turn."""
    content_type = request.headers.get("content-type") or Format.JSON.value
    if len(request.body) >= STREAMED_BYTES and sent_format(content_type) is Format.JSON:
        found = split_entries(request.body)
        if found is not None and found[0].get("resourceType") == "Bundle":
            return found
    bundle = resource_body(request, "Bundle")
    items = bundle.get("entry", [])
    if not isinstance(items, list):
        raise Problem(Category.MALFORMED, "Bundle.entry must be a list", "Bundle.entry")
    return bundle, items


@dataclass(slots=True)
class _Work:
    """The entries of one Bundle by what is to be done with them, and the answers, by number."""

    request: Request
    repository: Repository
    whole: bool
    writes: dict[int, Entry] = field(default_factory=dict)
    reads: dict[int, Request] = field(default_factory=dict)
    answers: dict[int, ResponseEntry] = field(default_factory=dict)
    stored: list[Version] = field(default_factory=list)

    def sort(self, items: Iterable[Any]) -> None:
        """Read every entry; one that cannot be read fails a transaction, and is answered as such in a batch."""
        for number, item in enumerate(items):
            place = f"Bundle.entry[{number}]"
            try:
                if asks_only(item, place):
                    self.reads[number] = request_for(item, self.request, place)
                else:
                    entry = _admitted(item, place, self.request.base_url, self.repository)
                    check_entry(self.request.caller, entry)
                    check_immutable(entry.resource_type, entry.method)
                    self.writes[number] = entry
            except Problem as problem:
                self._fail(number, problem)
        if self.whole:
            _refuse_shared_names(self.writes.values())

    async def write(self) -> list[tuple[int, EntryResult | Problem]]:
        """Store the writes, as one unit, or each as its own; how each of them ended."""
        if not self.writes:
            return []
        if self.whole:
            unit = unit_for(self.request, *self.writes.values(), distinct=True)
            is_large = len(self.request.body) >= LARGE_BODY
            ends: Sequence[EntryResult | Problem] = (await self.repository.commit_one(unit, is_large=is_large)).entries
            numbers = list(self.writes)
        else:
            numbers = sorted(self.writes, key=lambda number: (_ORDER.index(self.writes[number].method), number))
            units = [unit_for(self.request, self.writes[number]) for number in numbers]
            parts = [units[start : start + _TOGETHER] for start in range(0, len(units), _TOGETHER)]
            ends = [end for part in parts for end in await self._store(part)]
        return list(zip(numbers, ends, strict=True))

    def answer(self, ends: Iterable[tuple[int, EntryResult | Problem]]) -> None:
        """Answer the writes."""
        for number, end in ends:
            if isinstance(end, Problem):
                self._fail(number, end)
            else:
                self.answers[number] = self._written(end)
                if end.version is not None and end.outcome not in _NOT_WRITTEN:
                    self.stored.append(end.version)

    async def _store(self, units: Sequence[Unit]) -> list[EntryResult | Problem]:
        """Units of one entry each, in one database transaction."""
        if self.repository.integrity is not None:
            return [await self._store_checked(unit) for unit in units]
        own = self.repository
        results = await commit(units, own.store, own.matcher, own.clock, run_in_thread=own.run_in_thread)
        return [result if isinstance(result, Problem) else result.entries[0] for result in results]

    async def _store_checked(self, unit: Unit) -> EntryResult | Problem:
        """One entry on its own, as it must see the references of those before it."""
        try:
            return (await self.repository.commit_one(unit)).entries[0]
        except StoreUnreachable:
            raise
        except Problem as problem:
            return problem

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

    def response(self) -> bytes:
        """The Bundle of the answers."""
        answers = [self.answers[number] for number in sorted(self.answers)]
        return response(f"{'transaction' if self.whole else 'batch'}-response", answers)

    def _fail(self, number: int, problem: Problem) -> None:
        if self.whole:
            raise problem
        self.answers[number] = _failed(problem)

    def _written(self, result: EntryResult) -> ResponseEntry:
        version, form = result.version, preference(self.request, "return")
        if version is None or version.deleted:
            return ResponseEntry(_status(result.status), etag=etag(version) if version else None)
        findings = self.repository.warnings(result)
        reported = form == "OperationOutcome" or findings
        whole = form == "representation" and visible([version], self.request.caller)
        return ResponseEntry(
            _status(result.status),
            location(version, self.request.base_url),
            etag(version),
            version.last_updated,
            resource=version.body if whole else b"",
            outcome=dumps(success(describe(result), findings)) if reported else b"",
            full_url=f"{self.request.base_url}/{version.resource_type}/{version.id}",
        )


def _refuse_shared_names(entries: Iterable[Entry]) -> None:
    """Problem VALUE when two entries have one fullUrl: a reference to it would mean either."""
    seen: set[str] = set()
    for entry in entries:
        if entry.full_url is not None and entry.full_url in seen:
            raise Problem(Category.VALUE, "two entries have the same fullUrl", f"{entry.place}.fullUrl")
        seen.add(entry.full_url or "")


def _failed(problem: Problem) -> ResponseEntry:
    return ResponseEntry(_status(problem.rendering.http_status), outcome=dumps(operation_outcome(problem)))


def _status(code: int) -> str:
    return f"{code} {HTTPStatus(code).phrase}"


def _admitted(item: Any, place: str, base_url: str, repository: Repository) -> Entry:
    """The change that an entry asks for; its resource has passed the door, or its patch will."""
    entry = entry_of(item, place, base_url, patches=True)
    if entry.resource is None:
        return entry
    if entry.method is Method.PATCH:
        return replace(entry, resource=None, patch=patch_of(entry.resource, repository, place))
    resource = check_incoming(entry.resource, repository, place)
    return entry if resource is entry.resource else replace(entry, resource=resource)
