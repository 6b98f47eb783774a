"""Preview of a replay: a stored message is mapped with the current maps, and its Bundle is planned in a transaction
that is rolled back.

The result lists each resource of the Bundle with its outcome, the elements that an update keeps because the message
leaves them out, and the paths at which it differs from the stored version; then the resources that end because a set of
segments no longer has them.  Nothing is written.  The preview checks the
structure of the resources, as a conversion does; it does not validate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from uuid import uuid4

from ipf.errors import Category, Problem
from ipf.fhir.model.difference import differences
from ipf.fhir.model.json import loads
from ipf.ports import Change, Claimed, Clock, FhirStore, Inbox, Json, Mapper, Matcher, MessageRow, ReplayPreview
from ipf.rest.interactions.bundle_entries import entries_in, structure_issues_in
from ipf.rest.write.commit import preview
from ipf.rest.write.unit import EntryResult, Unit

_NOTHING: Json = {"resources": [], "unmapped": [], "unread": []}


class ReplayPreviewer:
    """`ports.ReplayPreview`.  `passthrough`: message types that are not mapped; `claimed`: a row as a claimed message.

    `is_mapped`: whether a vendor profile maps a message of a passthrough type.
    """

    def __init__(
        self,
        inbox: Inbox,
        mapper: Mapper,
        store: FhirStore,
        matcher: Matcher,
        clock: Clock,
        passthrough: Iterable[str],
        claimed: Callable[[MessageRow], Claimed],
        is_mapped: Callable[[Claimed], Awaitable[bool]] | None = None,
    ) -> None:
        self._inbox = inbox
        self._mapper = mapper
        self._store = store
        self._matcher = matcher
        self._clock = clock
        self._passthrough = frozenset(passthrough)
        self._claimed = claimed
        self._is_mapped = is_mapped

    async def preview(self, message_id: int) -> Json:
        """See `ports.ReplayPreview.preview`."""
        row = await self._inbox.get(message_id)
        if row is None:
            raise Problem(Category.NOT_FOUND, f"message {message_id} does not exist")
        summary = {"message_id": message_id, "correlation_id": row.correlation_id, "message_type": row.message_type}
        message = self._claimed(row)
        if row.message_type in self._passthrough and not (self._is_mapped and await self._is_mapped(message)):
            return summary | {"map_url": None, "error": None, **_NOTHING}
        try:
            mapped = await self._mapper.transform(message)
            unit = Unit(
                message.tenant,
                entries_in(mapped),
                message.correlation_id,
                f"preview/{uuid4()}",  # converted messages have a receipt; this one is not written
                references=mapped.references,
            )
            issues = structure_issues_in(mapped)
            if issues:
                raise Problem(Category.INVALID, f"not valid: {issues[0].text}", issues[0].place)
            resources = await self._preview_entries(unit)
        except Problem as problem:
            if problem.category is Category.UNAVAILABLE:
                raise
            return summary | {"map_url": None, "error": str(problem), **_NOTHING}
        unmapped = [{"concept_map": one.concept_map, "code": one.code} for one in mapped.unmapped]
        unread = [{"kind": one.kind, "path": one.path, "reason": one.reason or None} for one in mapped.unread()]
        found = {"resources": resources, "unmapped": unmapped, "unread": unread}
        return summary | {"map_url": mapped.map_url, "error": None, **found}

    async def _preview_entries(self, unit: Unit) -> list[Json]:
        plan = await preview(unit, self._store, self._matcher, self._clock)
        (result,) = plan.results
        if result is None or isinstance(result, Problem):
            raise result or Problem(Category.CONFLICT, "the message cannot be planned on its own")
        changes = {(one.version.resource_type, one.version.id): one for one in plan.changes}
        ends = (*result.entries, *result.ended)
        return [_resource(entry_result, changes) for entry_result in ends if entry_result.version is not None]


def _resource(entry_result: EntryResult, changes: dict[tuple[str, str], Change]) -> Json:
    """The outcome of one entry, and its differences."""
    assert entry_result.version is not None
    version = entry_result.version
    change = changes.get((version.resource_type, version.id))
    body: Json = {
        "resource_type": version.resource_type,
        "id": version.id if change is None or change.previous is not None else None,
        "outcome": str(entry_result.outcome),
        "retained": list(entry_result.kept),
        "left_out": entry_result.left_out or None,
        "differences": [],
    }
    if change is not None and change.previous is not None:
        body["differences"] = differences(change.previous, change.resource or {}, version.resource_type)
    elif change is not None:
        body["resource"] = loads(version.body) if version.body else None
    return body


_: type[ReplayPreview] = ReplayPreviewer
