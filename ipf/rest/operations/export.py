"""$export: https://hl7.org/fhir/uv/bulkdata/STU2/export.html

GET or POST [base]/$export, [base]/Patient/$export and [base]/Group/[id]/$export start a job (202, Content-Location).
[base]/$export-status/[job] returns its progress (202 with X-Progress), then the manifest (200); DELETE cancels it.
[base]/$export-file/[job]/[number] is one file.  Jobs are rows: after a crash any process continues them.
`_deident=true`, a parameter of our own, exports de-identified copies (`security/deident`).
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from urllib.parse import urlencode

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import http_date, instant
from ipf.fhir.model.dates import date_range, moment
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.search.parameters.compartments import compartments
from ipf.ports import OPEN, Answer, Json, Request, Version
from ipf.ports.fhir.exports import ExportJob, Exports
from ipf.rest.http.arguments import value_of
from ipf.rest.http.exchange import applied, preference, resource_body, selection
from ipf.rest.operations.export_filters import TYPE_FILTER, read_filters
from ipf.rest.write.permission import if_readable, unlimited_types
from ipf.rest.write.repository import Repository
from ipf.rest.write.visibility import visible_now
from ipf.security.access import limits
from ipf.security.deident.resource import Deidentification

NDJSON = "application/fhir+ndjson"
_NDJSON_NAMES = frozenset({NDJSON, "application/fhir ndjson", "application/ndjson", "ndjson"})
_GRANTS = ("subject", "client", "issuer", "scopes", "tenant", "patient", "user")
_PARAMETERS = frozenset({"_since", "_type", "_outputFormat", "_deident", TYPE_FILTER})


async def export(request: Request, repository: Repository) -> Answer:
    """Start a job: 202 with the URL of its status."""
    exports = _exports(repository)
    if (preference(request, "respond-async") is None) and "respond-async" not in request.headers.get("prefer", ""):
        raise Problem(Category.REQUIRED, "$export needs the header Prefer: respond-async")
    level = await _level(request, repository)
    values = await repository.parsed(request, lambda: _parameters(request))
    now, types = repository.clock(), values.get("_type", [])
    deident = _deident(values.get("_deident", []), repository)
    wanted = _types(types, level) if deident is None else _exported(_types(types, level), deident, is_named=bool(types))
    exported = tuple(unlimited_types(request.caller, wanted, bool(types)))
    job = ExportJob(
        request.tenant,
        secrets.token_urlsafe(24).replace("_", "-"),
        _url(request),
        level,
        exported,
        _since(values.get("_since", [])),
        now.replace(microsecond=now.microsecond // 1000 * 1000),
        now + timedelta(hours=repository.export_hours),
        caller=request.caller if limits(request.caller) else OPEN,
        deident=None if deident is None else deident.title,
        filters=_filters(values, exported, request, is_deident=deident is not None),
    )
    if repository.job_limit is not None:
        repository.job_limit.check(request)
    await exports.create(job)
    handled = [value for _, value in applied(request, "handling", "lenient", "strict")]
    preferences = ("Preference-Applied", ", ".join(["respond-async", *handled]))
    return Answer(202, b"", [("Content-Location", f"{request.base_url}/$export-status/{job.id}"), preferences])


async def export_status(request: Request, repository: Repository) -> Answer:
    """202 while the job runs, 200 with the manifest when it is done; a failure as an OperationOutcome."""
    job = await _job(request, repository)
    if job.status == "failed":
        raise Problem(Category.INTERNAL, f"the export failed: {job.error}")
    if job.status == "running":
        return Answer(202, b"", [("X-Progress", f"{job.exported} resources"), ("Retry-After", "2")])
    parts = await _exports(repository).parts(job.tenant, job.id)
    base = f"{request.base_url}/$export-file/{job.id}"
    manifest = {
        "transactionTime": instant(job.transaction_time),
        "request": job.request_url,
        "requiresAccessToken": repository.smart is not None,
        "output": [{"type": kind, "url": f"{base}/{number}", "count": count} for number, kind, count in parts],
        "error": [],
    }
    if job.deident is not None:
        manifest["extension"] = {"deidentified": job.deident}
    return Answer(200, dumps(manifest), [("Expires", http_date(job.expires_at))], "application/json")


async def export_cancel(request: Request, repository: Repository) -> Answer:
    """202; the job and its files are deleted."""
    job = await _job(request, repository)
    await _exports(repository).remove(job.tenant, job.id)
    return Answer(202)


async def export_file(request: Request, repository: Repository) -> Answer:
    """One file of a job: resources of one type, one per line."""
    _, id, number = request.path
    wanted = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
    part = await _exports(repository).part(request.tenant, id[:100], wanted)
    if part is None:
        raise Problem(Category.NOT_FOUND, "the export file does not exist")
    unlimited_types(request.caller, [part.resource_type], named=True)
    if not limits(request.caller):
        return Answer(200, part.body, content_type=NDJSON)
    job = await _exports(repository).get(request.tenant, id[:100])
    if job is None or job.deident is None:
        return Answer(200, await _visible_lines(part.body, request, repository), content_type=NDJSON)
    if any(getattr(job.caller, name) != getattr(request.caller, name) for name in _GRANTS):
        # copies cannot be compared with what is stored, so nobody can tell which of them this caller may see
        raise Problem(Category.FORBIDDEN, "a file of a de-identified export is for the caller who asked for it")
    return Answer(200, part.body, content_type=NDJSON)


async def _visible_lines(body: bytes, request: Request, repository: Repository) -> bytes:
    """The resources that labels and Consents let the caller see now; the file may have been written before."""
    versions = []
    for number, line in enumerate(body.splitlines()):
        resource: Json = loads(line)
        kind, id, meta = str(resource["resourceType"]), str(resource["id"]), resource["meta"]
        when = datetime.fromisoformat(meta["lastUpdated"])
        versions.append(Version(number, kind, id, int(meta["versionId"]), when, line))
    seen = await visible_now(versions, request.caller, request.tenant, repository.store, "r")
    return b"".join(one.body + b"\n" for one in seen)


def _exports(repository: Repository) -> Exports:
    if repository.exports is None:
        raise Problem(Category.NOT_SUPPORTED, "this server does not support $export")
    return repository.exports


async def _job(request: Request, repository: Repository) -> ExportJob:
    job = await _exports(repository).get(request.tenant, request.path[1][:100])
    if job is None:
        raise Problem(Category.NOT_FOUND, "the export does not exist")
    unlimited_types(request.caller, job.types, named=True)
    return job


async def _level(request: Request, repository: Repository) -> str:
    path = request.path
    if len(path) == 1:
        return "system"
    if len(path) == 2 and path[0] == "Patient":
        return "patient"
    if len(path) != 3 or path[0] != "Group":
        raise Problem(Category.NOT_FOUND, "$export is defined for the system, for Patient and for a Group")
    group = if_readable(await repository.store.read(request.tenant, "Group", path[1]), request.caller)
    if group is None or group.deleted:
        raise Problem(Category.NOT_FOUND, f"Group/{path[1]} does not exist")
    return f"group:{path[1]}"


def _sent(request: Request) -> list[Json]:
    sent = resource_body(request, "Parameters").get("parameter", [])
    if not isinstance(sent, list) or not all(isinstance(one, dict) for one in sent):
        raise Problem(Category.MALFORMED, "a parameter must be a JSON object", "Parameters.parameter")
    return sent


def _parameters(request: Request) -> dict[str, list[str]]:
    """The parameters in the URL, or in the Parameters resource of the body."""
    pairs = list(selection(request.query))
    if request.method == "POST" and request.body:
        for one in _sent(request):
            value = value_of(one)
            if isinstance(value, bool):
                value = str(value).lower()
            if one.get("name") in _PARAMETERS and not isinstance(value, str):
                raise Problem(Category.VALUE, "a parameter of $export must be a string", str(one.get("name"))[:60])
            pairs.append((str(one.get("name")), str(value)))
    found: dict[str, list[str]] = defaultdict(list)
    for name, value in pairs:
        if name not in _PARAMETERS and preference(request, "handling") != "lenient":
            raise Problem(Category.NOT_SUPPORTED, f"$export has no parameter {name[:60]}", name[:60])
        found[name].append(value)
    for value in found["_outputFormat"]:
        if value not in _NDJSON_NAMES:
            raise Problem(Category.NOT_SUPPORTED, f"$export writes {NDJSON}", "_outputFormat")
    return found


def _filters(
    values: dict[str, list[str]], types: Sequence[str], request: Request, *, is_deident: bool
) -> tuple[str, ...]:
    """The searches that select what is exported.  Problem NOT_SUPPORTED for a de-identified export.

    Filters by name or number would tell who the resources are about.
    """
    given = values.get(TYPE_FILTER, [])
    if given and is_deident:
        raise Problem(Category.NOT_SUPPORTED, "a de-identified export has no filters", TYPE_FILTER)
    lenient = preference(request, "handling") == "lenient"
    return read_filters(given, types, lenient=lenient, base_url=request.base_url)


def _types(values: list[str], level: str) -> tuple[str, ...]:
    """The types to export: the requested ones, else all; of patients, those of the compartment."""
    possible = definitions().resource_types
    if level != "system":
        possible = frozenset(compartments()["Patient"]) | {"Patient"}
    wanted = {name.strip() for text in values for name in text.split(",") if name.strip()}
    unknown = sorted(wanted - definitions().resource_types)
    if unknown:
        raise Problem(Category.VALUE, f"{unknown[0][:60]} is not a resource type of R4", "_type")
    return tuple(sorted((wanted or possible) & possible))


def _deident(values: list[str], repository: Repository) -> Deidentification | None:
    """The way of a de-identified export; None: the resources are exported as they are."""
    if not values or values == ["false"]:
        return None
    if values != ["true"]:
        raise Problem(Category.VALUE, "_deident must be true or false", "_deident")
    if repository.deident is None:
        text = "a de-identified export needs IPF_SECRET_KEY: it hashes the ids and moves the dates"
        raise Problem(Category.NOT_SUPPORTED, text, "_deident")
    return repository.deident


def _exported(types: tuple[str, ...], deident: Deidentification, *, is_named: bool) -> tuple[str, ...]:
    """The types that the profile lets out."""
    profile = deident.profile
    others = [one for one in types if one not in profile.resources]
    if others and is_named:
        text = f"the profile of de-identified exports ({profile.title}) does not have {others[0]}"
        raise Problem(Category.NOT_SUPPORTED, text, "_type")
    return tuple(one for one in types if one in profile.resources)


def _since(values: list[str]) -> datetime | None:
    if not values:
        return None
    found = date_range(values[-1].replace(" ", "+"))
    if found is None:
        raise Problem(Category.VALUE, "_since must be an instant, such as 2026-01-31T08:00:00Z", "_since")
    return moment(found[0])


def _url(request: Request) -> str:
    url = "/".join((request.base_url, *request.path))
    return f"{url}?{urlencode(list(request.query))}" if request.query else url


def patients_of(group: dict[str, object]) -> Iterator[str]:
    """`Patient/id` of the active members of a Group."""
    members = group.get("member")
    for member in members if isinstance(members, list) else ():
        reference = member.get("entity", {}).get("reference", "")
        if reference.startswith("Patient/") and not member.get("inactive"):
            yield reference.partition("/_history/")[0]
