"""POST [base]/$import: resources from NDJSON, each stored under its id as by PUT, as a job.

A step reads one input and stores its lines in transactions of 200.  Each line is a part of the job whose result is
stored with it, so that a job that is continued after a crash stores no line twice.  A line that is refused is reported
with its number and its reason, and the others are stored.  An input may be gzipped; it is unpacked while it is read.

Source: https://github.com/smart-on-fhir/bulk-import/blob/master/import-manifest.md
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from itertools import islice

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.fhir.model.bundle import instant
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.structure.primitives import is_id
from ipf.ports import Answer, Json, Request
from ipf.ports.jobs import Job, JobFile
from ipf.rest.http.outcome import operation_outcome
from ipf.rest.imports.manifest import Input, inputs_of
from ipf.rest.jobs.jobs import Step, advanced, finished, job_state, jobs_of, start_job, wants_async
from ipf.rest.jobs.runner import LEASE_SECONDS
from ipf.rest.write.commit import commit
from ipf.rest.write.incoming import check_incoming
from ipf.rest.write.permission import check_entry
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import Entry, Method, Unit, unit_for
from ipf.security.access import required
from ipf.security.audit.rules import check_immutable

IMPORT = "import"
_BATCH = 200  # lines in one transaction
_BATCH_BYTES = 16 * 1024 * 1024  # of the lines of a transaction; at least one line is in it
_LONGEST_LINE = 16 * 1024 * 1024  # of a gzipped input, unpacked
_GZIP = b"\x1f\x8b"  # no JSON begins so
_MAX_LINES = 4_000_000  # of one input; the number of a part has room for 500 inputs
_MAX_ERRORS = 10_000  # lines of one input that are reported one by one
_ATTEMPTS = 3  # to read an input


async def bulk_import(request: Request, repository: Repository) -> Answer:
    """Start a job: 202 with the URL of its status.  The token must allow to create and update the types."""
    if not wants_async(request):
        raise Problem(Category.REQUIRED, "$import needs the header Prefer: respond-async")
    inputs = await repository.parsed(request, lambda: inputs_of(request, repository))
    for one in inputs:
        for right in "cu" if one["type"] else "":
            required(request.caller, one["type"], right)
        if one["url"] and repository.fetch is None:
            raise Problem(Category.NOT_SUPPORTED, "this server does not fetch inputs: send the lines as the body")
    return await start_job(request, repository, IMPORT, {"inputs": inputs, "at": 0, "attempts": 0, "output": []})


async def import_step(job: Job, request: Request, repository: Repository) -> Step:
    """Store the lines of the next input."""
    state = job_state(job)
    number, one = int(state["at"]), state["inputs"][state["at"]]
    try:
        content = await _content(one, request, repository)
    except Problem as problem:
        if problem.category is Category.UPSTREAM and state["attempts"] + 1 < _ATTEMPTS:
            again = {**state, "attempts": state["attempts"] + 1}
            return Step(advanced(job, again, f"input {number + 1}: {problem.text}"), Answer(202))
        done = _Lines(one)
        done.refuse(problem, None)
    else:
        done = await _store(job, number, one, content, request, repository)
    state["output"].append({"type": one["type"], "inputUrl": one["url"], "count": done.stored, "errors": done.failed})
    state |= {"at": number + 1, "attempts": 0}
    after = advanced(job, state, f"{number + 1} of {len(state['inputs'])} inputs")
    if state["at"] == len(state["inputs"]):
        after = finished(after, await _answer(after, done.file, request, repository))
    return Step(after, Answer(200), done.file)


async def _content(one: Input, request: Request, repository: Repository) -> bytes:
    if not one["url"]:
        return request.body
    if repository.fetch is None:
        raise Problem(Category.NOT_SUPPORTED, "this server does not fetch inputs")
    return await repository.fetch(one["url"])


@dataclass(slots=True)
class _Lines:
    """What became of the lines of an input.  `read`: how many were read; `has_more`: there may be others."""

    input: Input
    read: int = 0
    has_more: bool = True
    stored: int = 0
    failed: int = 0
    errors: list[bytes] = field(default_factory=list)

    def refuse(self, problem: Problem, number: int | None) -> None:
        """A line, or the input as a whole, is not stored."""
        self.failed += 1
        if len(self.errors) < _MAX_ERRORS:
            self.errors.append(dumps(operation_outcome(problem if number is None else _at(problem, number))) + b"\n")

    @property
    def file(self) -> JobFile | None:
        """The errors; None when there are none."""
        return JobFile(self.input["url"], len(self.errors), b"".join(self.errors)) if self.errors else None


def _at(problem: Problem, number: int) -> Problem:
    """The same failure, with the number of its line."""
    line = f"line {number}"
    issues = tuple(replace(one, place=f"{line}: {one.place}" if one.place else line) for one in problem.issues)
    return Problem(problem.category, problem.text, line, issues=issues)


async def _store(job: Job, number: int, one: Input, content: bytes, request: Request, repository: Repository) -> _Lines:
    """Store the lines of one input.  Problem CONFLICT when another worker has the job, or it was removed."""
    jobs, lines = jobs_of(repository), lines_of(content)
    done, base = _Lines(one), number * _MAX_LINES
    while done.has_more:
        first = base + done.read
        before = await jobs.results(job.tenant, job.id, first, first + _BATCH - 1)
        units: list[Unit] = await repository.run_in_thread(
            partial(_units, job, lines, base, before, done, request, repository)
        )
        for unit, problem in await _commit(units, repository):
            if problem is None:
                done.stored += 1
            else:
                assert unit.part is not None
                done.refuse(problem, unit.part[1] - base + 1)
        progress = f"input {number + 1}: {done.stored} lines stored, {done.failed} refused"
        if not await jobs.renew(job, LEASE_SECONDS, progress):
            raise Problem(Category.CONFLICT, "the job was removed, or another worker has it")
    return done


def lines_of(content: bytes) -> Iterator[bytes]:
    """The lines of an input.  Problem VALUE for gzip that cannot be unpacked, TOO_LARGE for a line of it."""
    if not content.startswith(_GZIP):
        yield from BytesIO(content)
        return
    with gzip.open(BytesIO(content)) as unpacked:
        try:
            while line := unpacked.readline(_LONGEST_LINE + 1):
                if len(line) > _LONGEST_LINE:
                    text = f"a line of a gzipped input has at most {_LONGEST_LINE} bytes; those after it were not read"
                    raise Problem(Category.TOO_LARGE, text)
                yield line
        except (OSError, EOFError, zlib.error) as broken:
            raise Problem(Category.VALUE, "the input is no complete gzip; the lines before were read") from broken


def _batch(lines: Iterator[bytes], done: _Lines) -> Iterator[tuple[int, bytes]]:
    """The next lines with their numbers, from 0.  An input that cannot be read further is refused."""
    size = 0
    try:
        for line in islice(lines, _BATCH):
            if done.read == _MAX_LINES:
                raise Problem(Category.TOO_LARGE, f"an input has at most {_MAX_LINES} lines; the others were not read")
            done.read += 1
            yield done.read - 1, line.strip()
            size += len(line)
            if size >= _BATCH_BYTES:
                return
    except Problem as problem:
        done.refuse(problem, None if done.read == _MAX_LINES else done.read + 1)
        done.has_more = False


def _units(
    job: Job, lines: Iterator[bytes], base: int, before: Container[int], done: _Lines,
    request: Request, repository: Repository,
) -> list[Unit]:  # fmt: skip
    """The lines of a batch that are not stored yet; those that cannot be are refused."""
    found, first = [], done.read
    for number, line in _batch(lines, done):
        if base + number in before:
            done.stored += 1
        elif line:
            try:
                entry = _entry(line, done.input["type"], request, repository)
            except Problem as problem:
                done.refuse(problem, number + 1)
            else:
                found.append(unit_for(request, entry, part=(job.id, base + number)))
    done.has_more = done.has_more and done.read > first
    return found


def _entry(line: bytes, kind: str, request: Request, repository: Repository) -> Entry:
    resource: Json = loads(line)
    if not isinstance(resource, dict) or not isinstance(resource.get("resourceType"), str):
        raise Problem(Category.MALFORMED, "a line must be one resource")
    if kind and resource["resourceType"] != kind:
        raise Problem(Category.VALUE, f"resourceType must be {kind}, the type of the input", "resourceType")
    id = resource.get("id")
    if not is_id(id):
        raise Problem(Category.REQUIRED, "a resource that is imported needs an id", "id")
    resource = check_incoming(resource, repository)
    entry = Entry(Method.UPDATE, resource["resourceType"], id, resource)
    check_immutable(entry.resource_type, "PUT")
    check_entry(request.caller, entry)
    required(request.caller, entry.resource_type, "c")
    return entry


async def _commit(units: Sequence[Unit], repository: Repository) -> list[tuple[Unit, Problem | None]]:
    """Store units of one line each; the reason of each that was not stored."""
    if not units:
        return []
    if repository.integrity is not None:  # one by one, so that the check sees earlier lines
        return [(unit, await _refusal(unit, repository)) for unit in units]
    parts = units, repository.store, repository.matcher, repository.clock
    ends = await commit(*parts, run_in_thread=repository.run_in_thread, names=repository.names)
    return [(unit, end if isinstance(end, Problem) else None) for unit, end in zip(units, ends, strict=True)]


async def _refusal(unit: Unit, repository: Repository) -> Problem | None:
    try:
        await repository.commit_one(unit)
    except StoreUnreachable:
        raise
    except Problem as problem:
        return problem
    return None


async def _answer(job: Job, last: JobFile | None, request: Request, repository: Repository) -> bytes:
    """The manifest of what was imported.  `last`: a file that is stored with the answer."""
    output = job_state(job)["output"]
    files = list(await jobs_of(repository).files(job.tenant, job.id))
    if last is not None:
        files.append((len(files) + 1, last.name, last.count))
    base, errors = f"{request.base_url}/$job-file/{job.id}", []
    for number, name, count in files:
        error = {"type": "OperationOutcome", "url": f"{base}/{number}", "count": count}
        errors.append(error | ({"inputUrl": name} if name else {}))
    return dumps({
        "transactionTime": instant(repository.clock()),
        "request": f"{request.base_url}/$import",
        "requiresAccessToken": repository.smart is not None,
        "output": [{name: one[name] for name in ("type", "inputUrl", "count") if one[name] != ""} for one in output],
        "error": errors,
    })  # fmt: skip
