"""Bulk export: each step leases a job and writes one more part of its files.

What arrives: a job as a row (`ports.Exports`).  What leaves: parts of NDJSON, each written together with the progress,
under the token of the lease.  A crash loses at most the current part; the lease expires, and the job continues after
its last part.  Memory is bounded by one page and the places of
`export_order`.  A job that cannot be read is marked as failed, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.search.parameters.compartments import compartments
from ipf.pipeline.equal_failures import reason_of
from ipf.pipeline.maintenance.export_order import AHEAD, ExportOrder
from ipf.ports import FhirStore, Version
from ipf.ports.fhir.exports import ExportJob, ExportPart, Exports
from ipf.ports.threads import RunInThread, run_inline
from ipf.rest.operations.export import patients_of
from ipf.rest.operations.export_filters import selects
from ipf.rest.write.visibility import visible_now
from ipf.security.access import refresh_access
from ipf.security.deident.resource import Deidentification

log = Logger()

PAGE = 500  # resources that are looked at in one step
LEASE_SECONDS = 30.0

Keep = Callable[[Version], bool]


class Export:
    """The stage; `step` writes one part of one job.

    `deident`: for jobs that ask for it; None without a key.  `page`: resources that are looked at in one step; `ahead`:
    see `export_order`.
    """

    def __init__(
        self,
        exports: Exports,
        store: FhirStore,
        deident: Deidentification | None = None,
        *,
        run_in_thread: RunInThread = run_inline,
        page: int = PAGE,
        ahead: int = AHEAD,
    ) -> None:
        self._exports = exports
        self._store = store
        self._deident = deident
        self._run_in_thread = run_in_thread
        self._order = ExportOrder(exports, page, ahead)

    async def step(self) -> bool:
        """True when there was a job to work on.  StoreUnreachable passes through."""
        job = await self._exports.lease(LEASE_SECONDS)
        if job is None:
            await self._exports.expire()
            return False
        try:
            after, part = await self._next(job)
        except StoreUnreachable:
            raise
        except CancelledError:
            raise
        except Problem as problem:
            log.error("event=export_failed job={job} {reason}", job=job.id[:8], reason=problem.text)
            after, part = replace(job, status="failed", error=problem.text), None
        except Exception as error:
            log.failure("event=export_failed job={job}", job=job.id[:8])
            after, part = replace(job, status="failed", error=reason_of(error)), None
        await self._exports.write(after, part)
        return True

    async def _next(self, job: ExportJob) -> tuple[ExportJob, ExportPart | None]:
        """The job after its next page, and the part of that page."""
        resource_type = job.resource_type
        if resource_type is None:
            return replace(job, status="done"), None
        deident = self._deidentification(job)
        page = await (
            self._order.created(job) if deident is None else self._order.shuffled(job, deident.pseudonyms.seed(job.id))
        )
        keep = await self._filter(job)
        await refresh_access()
        shown = await visible_now(page.versions, job.caller, job.tenant, self._store, "r")
        # in a thread: 500 copies take a quarter of a second
        kept: list[bytes] = await self._run_in_thread(partial(_bodies, job, deident, keep, shown))
        if page.is_last:
            after = replace(job, type_number=job.type_number + 1, after_rid=0, exported=job.exported + len(kept))
            after = replace(after, status="running" if after.resource_type else "done")
        else:
            after = replace(job, after_rid=page.after, exported=job.exported + len(kept))
        body = b"".join(one + b"\n" for one in kept)
        return after, ExportPart(resource_type, len(kept), body) if kept else None

    def _deidentification(self, job: ExportJob) -> Deidentification | None:
        """That of a job; None: as they are.  Problem VALUE when it is not that of the service any more."""
        if job.deident is None:
            return None
        if self._deident is None or self._deident.title != job.deident:
            raise Problem(Category.VALUE, "the profile or the key of de-identified exports has changed; begin again")
        return self._deident

    async def _filter(self, job: ExportJob) -> Keep:
        """Whether a version belongs to the job: to its patients, and to what its filters select."""
        belongs = await self._members(job)
        if not job.filters:
            return belongs
        base_url, resource_type = _base_url(job), job.resource_type or ""
        return lambda version: belongs(version) and selects(job.filters, resource_type, version, base_url)

    async def _members(self, job: ExportJob) -> Keep:
        if job.level == "system":
            return lambda version: True
        patients: frozenset[str] | None = None
        if job.level.startswith("group:"):
            group = await self._store.read(job.tenant, "Group", job.level.partition(":")[2])
            patients = frozenset(patients_of(loads(group.body)) if group is not None and not group.deleted else ())
        return lambda version: in_compartment(version, patients)


def _bodies(job: ExportJob, deident: Deidentification | None, keep: Keep, versions: Sequence[Version]) -> list[bytes]:
    """The lines of a part."""
    kept = [version.body for version in versions if keep(version)]
    if deident is None:
        return kept
    copy = deident.of(job.tenant, job.transaction_time).copy
    found = (copy(loads(body)) for body in kept)
    return [dumps(resource) for resource in found if resource is not None]


def _base_url(job: ExportJob) -> str:
    """Where the request reached the server: references by URL are those of its own resources."""
    url = job.request_url.partition("?")[0].removesuffix("/$export")
    return url if job.level == "system" else url.rpartition("/Patient" if job.level == "patient" else "/Group/")[0]


def in_compartment(version: Version, patients: frozenset[str] | None) -> bool:
    """Whether a resource belongs to one of these patients (`Patient/id`; None: to any)."""
    if version.resource_type == "Patient":
        return patients is None or f"Patient/{version.id}" in patients
    codes = compartments()["Patient"].get(version.resource_type, ())
    for code, value in extract(loads(version.body)).texts:
        if code in codes and (value in patients if patients is not None else value.startswith("Patient/")):
            return True
    return False
