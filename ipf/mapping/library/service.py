"""Administration of maps: list of installed maps, reload, and the trace of a stored message.

What arrives: requests of `/admin/mapping` and `/admin/messages/{id}/trace`.  What leaves: JSON.  A trace maps the
stored bytes again and discards the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipf.errors import Category, Problem
from ipf.fhir.validation.findings import ERROR
from ipf.mapping.bundle.field_sources import updates_of
from ipf.mapping.language.structuremap import digest
from ipf.mapping.library.installation import Installation, RunInThread
from ipf.mapping.library.maps import Library, MappingResult
from ipf.mapping.library.mistakes import mistake_of
from ipf.mapping.library.origins import Checks, explained
from ipf.mapping.runtime.trace import Step
from ipf.ports import Claimed, Inbox, Json, MappingAdmin, MessageRow


class MappingAdminService:
    """`ports.MappingAdmin` on an Installation and an inbox."""

    def __init__(
        self, installation: Installation, inbox: Inbox, run_in_thread: RunInThread, checks: Checks | None = None
    ) -> None:
        """`checks`: validates the result in a trace."""
        self._installation = installation
        self._inbox = inbox
        self._run_in_thread = run_in_thread
        self._checks = checks
        self._described: tuple[Library, Json] | None = None

    async def describe(self) -> Json:
        """See `ports.MappingAdmin.describe`.  The first call after a change waits until every map is parsed."""
        library = self._installation.library
        if self._described is None or self._described[0] is not library:
            self._described = (library, await self._run_in_thread(lambda: _maps(library)))
        return {"epoch": self._installation.epoch, **self._described[1]}

    async def reload(self) -> Json:
        """See `ports.MappingAdmin.reload`."""
        try:
            await self._installation.reload()
        except Problem as problem:
            if problem.category is Category.UNAVAILABLE:
                raise
            raise Problem(Category.INVALID, f"the maps in use are kept: {problem}") from problem
        return await self.describe()

    async def trace(self, message_id: int) -> Json:
        """See `ports.MappingAdmin.trace`."""
        row = await self._inbox.get(message_id)
        if row is None:
            raise Problem(Category.NOT_FOUND, f"there is no message with id {message_id}")
        claimed = as_claimed(row)
        try:
            result: MappingResult = await self._run_in_thread(lambda: self._installation.explain(claimed))
        except Problem as problem:
            raise Problem(Category.INVALID, str(problem)) from problem
        made = {"id": message_id, "correlation_id": row.correlation_id, **result_json(result)}
        return made if self._checks is None else {**made, "findings": await findings(self._checks, row.tenant, result)}


async def findings(checks: Checks, tenant: str, result: MappingResult) -> list[Json]:
    """What validation finds wrong in a result, with the rules that made it."""
    return await findings_of(checks, tenant, result.bundle, result.steps or ())


async def findings_of(checks: Checks, tenant: str, bundle: Json, steps: Sequence[Step]) -> list[Json]:
    """The same for a Bundle and its trace."""
    errors = [one for one in (await checks(tenant))(bundle) if one.severity == ERROR]
    return [one.as_json() for one in explained(bundle, errors, steps)]


def as_claimed(row: MessageRow) -> Claimed:
    """A stored row as a claimed message, without a lease."""
    return Claimed(
        row.id, 0, row.correlation_id, row.received_at, row.source_system, row.source_id, row.message_type,
        row.raw or b"", row.charset or "", row.attempt_count, tenant=row.tenant,
        listener=row.listener or "", source_protocol=row.source_protocol,
    )  # fmt: skip


def result_json(result: MappingResult) -> Json:
    """The result of a map, with its trace, as JSON."""
    return {
        "map_url": result.map_url,
        "duration_ms": round(result.milliseconds, 3),
        "result": result.bundle,
        "unread": [] if result.findings is None else result.findings.as_json(),
        "unmapped": [{"concept_map": one.table, "code": one.code} for one in result.unmapped],
        "warnings": list(result.warnings),
        "logs": list(result.logs),
        "updates": updates_of(result.made.entries or ()),
        "steps": [step.as_json() for step in result.steps or ()],
    }


def _maps(library: Library) -> Json:
    library.find_broken()
    types = {name: library.map_url(name) for name in library.message_types}
    maps = [
        {
            "url": content.url,
            "name": content.name,
            "title": content.title or None,
            "version": content.meta("version") or None,
            "status": content.status,
            "file": content.file,
            "digest": digest(content),
            "message_types": [name for name, url in types.items() if url == content.url],
            "mistake": _mistake(library, content.url),
        }
        for content in library.maps.values()
    ]
    maps += [_unreadable(library, url, types) for url in library.broken if url not in library.maps]
    return {
        "message_types": [{"message_type": name, "map_url": url} for name, url in types.items()],
        "maps": sorted(maps, key=lambda one: str(one["url"])),
    }


def _mistake(library: Library, url: str) -> Json | None:
    problem = library.broken.get(url)
    return None if problem is None else mistake_of(problem).as_json()


def _unreadable(library: Library, url: str, types: Mapping[str, str]) -> Json:
    """An installed map of which only the canonical is known."""
    empty = dict.fromkeys(("name", "title", "version", "status", "digest"))
    mistake = _mistake(library, url) or {}
    return {
        "url": url,
        **empty,
        "file": mistake["file"],
        "message_types": [name for name, of in types.items() if of == url],
        "mistake": mistake,
    }


_: type[MappingAdmin] = MappingAdminService
