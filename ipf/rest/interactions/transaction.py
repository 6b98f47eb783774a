"""POST [base] with a Bundle: https://hl7.org/fhir/R4/http.html#transaction

A transaction becomes one unit, stored completely or not at all.  Its reads, searches and operations run after its
writes and before the commit, so that nothing is stored when one fails.  Each write of a batch becomes a unit of its
own; a few hundred share one commit.  The reads of a batch run after the writes.

Where a conditional delete deletes all matches (`delete_many.py`), it becomes one deletion for each before the commit,
and they are searched again when others changed them meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from itertools import chain, islice
from typing import Any, TypeVar

from ipf.errors import Category, Problem, StoreUnreachable, WriteConflict
from ipf.fhir.model.bundle import ResponseEntry, etag, response
from ipf.fhir.model.json import dumps
from ipf.ports import Answer, FhirTransaction, Json, Request, Version
from ipf.ports.threads import LARGE_BODY, RunInThread, run_inline, without_full_collections
from ipf.rest.http.exchange import applied, location, preference, resource_body
from ipf.rest.http.formats import Format, sent_format
from ipf.rest.http.outcome import operation_outcome, success
from ipf.rest.interactions.bundle_entries import check_only_reads, entries_of, entry_of, is_read, located, request_for
from ipf.rest.interactions.delete_many import ATTEMPTS, deletions, kept_changing
from ipf.rest.interactions.patch import patch_of
from ipf.rest.interactions.provenance import provenance_of, refuse_provenance
from ipf.rest.interactions.write_response import FORMS, describe
from ipf.rest.write.commit import Reads, commit
from ipf.rest.write.incoming import check_incoming
from ipf.rest.write.job_results import read
from ipf.rest.write.large_bundle import (
    STREAMED_BYTES,
    Entries,
    clear_gradually,
    split_entries,
)
from ipf.rest.write.named_conditions import with_known_names
from ipf.rest.write.permission import check_entry, visible
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import Entry, EntryResult, Method, Outcome, Unit, unit_for
from ipf.security.audit.rules import check_immutable

T = TypeVar("T")
Perform = Callable[[Request, Repository], Awaitable[Answer]]
Ends = Sequence[EntryResult]
"""The results of one entry: one, or those of all deletions of a conditional delete."""

__all__ = ["entries_of", "transaction"]

_ORDER = (Method.DELETE, Method.CREATE, Method.UPDATE, Method.PATCH)
_DELETED = EntryResult(204, Outcome.DELETED, None)
_BATCH_SIZE = 200  # entries of a batch in one database transaction


async def transaction(request: Request, repository: Repository, perform: Perform) -> Answer:
    """Process a transaction or batch Bundle; `perform` handles its reads."""
    is_large = len(request.body) >= LARGE_BODY
    run_in_thread: RunInThread = repository.run_in_thread if is_large or repository.validates else run_inline
    with without_full_collections() if is_large else nullcontext():
        work = await _execute_writes(request, repository, run_in_thread, perform)
    if not work.is_transaction:
        await work.read(perform)
    body: bytes = await run_in_thread(work.response)
    await run_in_thread(lambda: clear_gradually(work.responses))
    return Answer(200, body, applied(request, "return", *FORMS), about=work.about)


async def _execute_writes(
    request: Request, repository: Repository, run_in_thread: RunInThread, perform: Perform
) -> _BundleWork:
    """Parse the Bundle and store its writes.  `run_in_thread`: runs parsing and rendering."""
    work: _BundleWork = await run_in_thread(lambda: _read_work(request, repository))
    work.provenance = await provenance_of(request, repository)
    results = await work.write(perform)
    await run_in_thread(lambda: work.add_responses(results))
    await run_in_thread(lambda: clear_gradually(work.writes))
    return work


def _read_work(request: Request, repository: Repository) -> _BundleWork:
    """The parsed Bundle of a request.  Problem VALUE, TOO_LARGE, or the problem of an entry."""
    bundle, items = _read(request)
    kind = bundle.get("type")
    if kind not in ("transaction", "batch"):
        raise Problem(Category.VALUE, "the type of the Bundle must be transaction or batch", "Bundle.type")
    work = _BundleWork(request, repository, kind == "transaction")
    if not work.is_transaction:
        refuse_provenance(request, "a batch")
    if len(items) > repository.max_bundle_entries:
        text = f"the Bundle has {len(items)} entries; the limit is {repository.max_bundle_entries}"
        raise Problem(Category.TOO_LARGE, text, "Bundle.entry")
    work.read_entries(items)
    return work


def _read(request: Request) -> tuple[Json, Sequence[Any] | Entries]:
    """The Bundle and its entries; entries of a large Bundle are parsed one at a time."""
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
class _BundleWork:
    """The writes, reads and responses of one Bundle, by entry number."""

    request: Request
    repository: Repository
    is_transaction: bool
    writes: dict[int, Entry] = field(default_factory=dict)
    deletes: dict[int, Entry] = field(default_factory=dict)  # conditional ones, of all matches
    reads: dict[int, Request] = field(default_factory=dict)
    responses: dict[int, ResponseEntry] = field(default_factory=dict)
    about: list[Version] = field(default_factory=list)
    provenance: tuple[Entry, ...] = ()

    def read_entries(self, items: Iterable[Any]) -> None:
        """Parse every entry; an invalid one fails a transaction, and gets an error response in a batch."""
        for number, item in enumerate(items):
            place = f"Bundle.entry[{number}]"
            try:
                if is_read(item, place):
                    if self.is_transaction:
                        check_only_reads(item, place)
                    self.reads[number] = request_for(item, self.request, place)
                else:
                    entry = _entry_of(item, place, self.request.base_url, self.repository)
                    check_entry(self.request.caller, entry)
                    check_immutable(entry.resource_type, entry.method)
                    is_many = entry.method is Method.DELETE and entry.condition is not None and entry.if_match is None
                    (self.deletes if is_many and self.repository.deletes_many else self.writes)[number] = entry
            except Problem as problem:
                self._fail(number, problem)
        if self.is_transaction:
            _check_unique_full_urls(self.writes.values())
            if self.deletes:
                every = [*self.writes.values(), *self.deletes.values()]
                entries, _ = with_known_names(every, self.request.base_url)
                self.deletes = dict(zip(self.deletes, entries[len(self.writes) :], strict=True))

    async def write(self, perform: Perform) -> list[tuple[int, Ends | Problem]]:
        """Store the writes, as one unit or one unit each; their results by entry number.

        Of a transaction, the reads run by `perform` too.
        """
        if not self.writes and not self.deletes:
            if self.is_transaction:
                await self.read_all(perform, self.repository)
            return []
        done = await self._done()
        if self.is_transaction:
            if 0 not in done:
                return await self._store_all(perform)
            await self.read_all(perform, self.repository)
            return self._by_entry(done[0], None)
        numbers = sorted(
            (number for number in self.writes if number not in done),
            key=lambda number: (_ORDER.index(self.writes[number].method), number),
        )
        results: list[tuple[int, Ends | Problem]] = [*done.items()]
        results += [(number, await self._delete_all(number)) for number in self.deletes if number not in done]
        units = [unit_for(self.request, self.writes[number], part=self._part(number)) for number in numbers]
        parts = [units[start : start + _BATCH_SIZE] for start in range(0, len(units), _BATCH_SIZE)]
        return [*results, *zip(numbers, [end for part in parts for end in await self._store(part)], strict=True)]

    async def _done(self) -> dict[int, Sequence[EntryResult]]:
        """What the job has written before a crash, by part."""
        jobs, request = self.repository.jobs, self.request
        if jobs is None or not request.job:
            return {}
        found = await jobs.results(request.tenant, request.job)
        return {number: await read(text, request.tenant, self.repository.store) for number, text in found.items()}

    def _part(self, number: int) -> tuple[str, int] | None:
        return (self.request.job, number) if self.request.job else None

    async def _store_all(self, perform: Perform) -> list[tuple[int, Ends | Problem]]:
        """Store all writes as one unit, with the reads."""

        async def store(deleted: Mapping[int, list[Entry]]) -> list[tuple[int, Ends | Problem]]:
            entries = [*self.writes.values(), *chain.from_iterable(deleted.values()), *self.provenance]
            unit = unit_for(self.request, *entries, distinct=True, part=self._part(0))
            is_large = len(self.request.body) >= LARGE_BODY or self._has_patch or unit.part is not None
            result = await self.repository.commit_one(unit, is_large=is_large, reads=self._reads_within(perform))
            return self._by_entry(result.entries, deleted)

        return await self._with_deletions(self.deletes, store)

    async def _delete_all(self, number: int) -> Ends | Problem:
        """Delete all matches of an entry of a batch in one transaction."""

        async def store(deleted: Mapping[int, list[Entry]]) -> Ends:
            unit = unit_for(self.request, *deleted[number], part=self._part(number))
            return (await self.repository.commit_one(unit)).entries if unit.entries else ()

        try:
            return await self._with_deletions({number: self.deletes[number]}, store)
        except StoreUnreachable:
            raise
        except Problem as problem:
            return problem

    async def _with_deletions(
        self, entries: Mapping[int, Entry], store: Callable[[Mapping[int, list[Entry]]], Awaitable[T]]
    ) -> T:
        """What `store` makes of the deletions; it is called again with others when one was changed meanwhile."""
        places = {entry.place for entry in entries.values()}
        for _ in range(ATTEMPTS):
            try:
                return await store(await deletions(entries, self.request, self.repository))
            except Problem as problem:
                if problem.category is not Category.PRECONDITION or problem.place not in places:
                    raise
        raise kept_changing()

    def _by_entry(
        self, ends: Sequence[EntryResult], deleted: Mapping[int, list[Entry]] | None
    ) -> list[tuple[int, Ends | Problem]]:
        """The results of a transaction by entry number.  `deleted` None: which entry deleted what is not known.

        The last one is that of the Provenance, if there is one.
        """
        ends = ends[: len(ends) - len(self.provenance)]
        found: list[tuple[int, Ends | Problem]] = [
            (number, [end]) for number, end in zip(self.writes, ends[: len(self.writes)], strict=True)
        ]
        rest = iter(ends[len(found) :])
        for number in self.deletes:
            known = deleted is not None or len(self.deletes) == 1
            many = list(rest if deleted is None else islice(rest, len(deleted[number])))
            found.append((number, many if known else [_DELETED]))
        return found

    def add_responses(self, results: Iterable[tuple[int, Ends | Problem]]) -> None:
        """Add the responses of the writes."""
        for number, ends in results:
            if isinstance(ends, Problem):
                self._fail(number, ends)
                continue
            one = len(ends) == 1
            self.responses[number] = self._write_response(ends[0]) if one else self._many_response(len(ends))
            self.about += [end.version for end in ends if end.version is not None]

    @property
    def _has_patch(self) -> bool:
        """Whether it applies a patch, which may cost much in few bytes."""
        return any(one.method is Method.PATCH for one in self.writes.values())

    async def _store(self, units: Sequence[Unit]) -> list[Ends | Problem]:
        """Store units of one entry each in one database transaction."""
        if self.repository.integrity is not None:
            return [await self._store_checked(unit) for unit in units]
        repository = self.repository
        results = await commit(
            units,
            repository.store,
            repository.matcher,
            repository.clock,
            run_in_thread=repository.run_in_thread,
            is_large=self._has_patch,
            names=repository.names,
        )
        return [result if isinstance(result, Problem) else result.entries for result in results]

    async def _store_checked(self, unit: Unit) -> Ends | Problem:
        """Store one entry in its own transaction, so that the integrity check sees earlier entries."""
        try:
            return (await self.repository.commit_one(unit)).entries
        except StoreUnreachable:
            raise
        except Problem as problem:
            return problem

    def _reads_within(self, perform: Perform) -> Reads | None:
        """The reads of a transaction, within it; None when it has none."""

        async def read(transaction: FhirTransaction) -> None:
            await self.read_all(perform, self.repository.within(transaction))

        return read if self.reads else None

    async def read_all(self, perform: Perform, repository: Repository) -> None:
        """Run the reads of a transaction; Problem, with the place of its entry, when one fails.  May be repeated."""
        self.about.clear()
        for number, request in self.reads.items():
            try:
                self._add_answer(number, await perform(request, repository))
            except (StoreUnreachable, WriteConflict):
                raise
            except Problem as problem:
                raise located(problem, f"Bundle.entry[{number}].request.url") from problem

    async def read(self, perform: Perform) -> None:
        """Run the reads of a batch, after the writes."""
        for number, request in self.reads.items():
            try:
                answer = await perform(request, self.repository)
            except Problem as problem:
                self._answer_failure(number, problem)
            else:
                self._add_answer(number, answer)

    def _add_answer(self, number: int, answer: Answer) -> None:
        self.about += answer.about
        tag = dict(answer.headers).get("ETag")
        self.responses[number] = ResponseEntry(_status(answer.status), etag=tag, resource=answer.body)

    def response(self) -> bytes:
        """The response Bundle."""
        responses = [self.responses[number] for number in sorted(self.responses)]
        return response(f"{'transaction' if self.is_transaction else 'batch'}-response", responses)

    def _fail(self, number: int, problem: Problem) -> None:
        if self.is_transaction:
            raise problem
        self._answer_failure(number, problem)

    def _answer_failure(self, number: int, problem: Problem) -> None:
        self.responses[number] = _failure_response(problem)
        if self.request.draft is not None:
            self.request.draft.failed(self._target(number), problem.rendering.http_status)

    def _target(self, number: int) -> str:
        """The path of an entry; "" when it could not be read."""
        if number in self.reads:
            return "/".join(self.reads[number].path)
        entry = self.writes.get(number) or self.deletes.get(number)
        return "" if entry is None else entry.resource_type if entry.id is None else f"{entry.resource_type}/{entry.id}"

    def _many_response(self, count: int) -> ResponseEntry:
        """Of a conditional delete of several resources, or of none."""
        is_reported = preference(self.request, "return") == "OperationOutcome"
        return ResponseEntry(_status(204), outcome=dumps(success(f"{count} resources deleted")) if is_reported else b"")

    def _write_response(self, result: EntryResult) -> ResponseEntry:
        version, form = result.version, preference(self.request, "return")
        if version is None or version.deleted:
            return ResponseEntry(_status(result.status), etag=etag(version) if version else None)
        findings = self.repository.warnings(result, self.request.caller)
        reported = form == "OperationOutcome" or findings
        has_body = form == "representation" and visible([version], self.request.caller)
        return ResponseEntry(
            _status(result.status),
            location(version, self.request.base_url),
            etag(version),
            version.last_updated,
            resource=version.body if has_body else b"",
            outcome=dumps(success(describe(result), findings)) if reported else b"",
            full_url=f"{self.request.base_url}/{version.resource_type}/{version.id}",
        )


def _check_unique_full_urls(entries: Iterable[Entry]) -> None:
    """Problem VALUE when two entries have the same fullUrl: a reference to it would be ambiguous."""
    seen: set[str] = set()
    for entry in entries:
        if entry.full_url is not None and entry.full_url in seen:
            raise Problem(Category.VALUE, "two entries have the same fullUrl", f"{entry.place}.fullUrl")
        seen.add(entry.full_url or "")


def _failure_response(problem: Problem) -> ResponseEntry:
    return ResponseEntry(_status(problem.rendering.http_status), outcome=dumps(operation_outcome(problem)))


def _status(code: int) -> str:
    return f"{code} {HTTPStatus(code).phrase}"


def _entry_of(item: Any, place: str, base_url: str, repository: Repository) -> Entry:
    """The write of an entry, with its resource checked; a patch is checked when it is applied."""
    entry = entry_of(item, place, base_url, patches=True)
    if entry.resource is None:
        return entry
    if entry.method is Method.PATCH:
        return replace(entry, resource=None, patch=patch_of(entry.resource, repository, place))
    resource = check_incoming(entry.resource, repository, place)
    return entry if resource is entry.resource else replace(entry, resource=resource)
