"""POST [base]/Subscription/$dry-run and [base]/Subscription/[id]/$dry-run: how often a Subscription would have fired.

Input: a Subscription in the body (alone, or as `resource` in Parameters; on an instance, the stored one), the `days` to
look back (default 7) and the number of `examples`.  It is checked as at registration; nothing is stored or sent.
Output: Parameters with the count, the count by day, and examples.

The versions of the resource types are read in pages, newest first, at most `MOST_VERSIONS`.  When there are more,
`complete` is false and `from` is the time of the oldest examined version.  For a caller that sees only a part of a type
only the versions count that it sees, and each change is evaluated as it sees it.  An operation of this server.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from ipf.errors import Category, Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.model.bundle import instant
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Answer, Change, Json, Request, Version
from ipf.ports.fhir.history import HistoryCursor
from ipf.ports.queries.history_filter import HistoryFilter
from ipf.ports.queries.index import EMPTY
from ipf.rest.http.arguments import Arguments, parameters_of
from ipf.rest.operations.subscription_operations import only_subscriptions
from ipf.rest.write.incoming import check_incoming
from ipf.rest.write.permission import searchable, visible
from ipf.rest.write.repository import Repository
from ipf.rest.write.visibility import visible_now
from ipf.security.access import may_hide
from ipf.security.event_access import View, as_create, view_of
from ipf.subscriptions.dry_run import DryRun
from ipf.subscriptions.guide import topic_url

MOST_VERSIONS = 20_000
PAGE = 100
_MOST_DAYS = 366
_MOST_EXAMPLES = 50
_PARAMETERS = frozenset({"days", "examples", "resource"})


@dataclass(slots=True)
class _Result:
    """The result so far."""

    examined: int = 0
    days: Counter[str] = field(default_factory=Counter)
    examples: list[Version] = field(default_factory=list)
    oldest: datetime | None = None
    complete: bool = True
    failed: int = 0


async def dry_run(request: Request, repository: Repository) -> Answer:
    """200 with Parameters; 422 with the reasons when the Subscription cannot be served."""
    only_subscriptions(request)
    subscription, arguments = await _arguments(request, repository)
    days, examples = arguments.number("days"), arguments.number("examples")
    days = 7 if days is None else days
    if not 0 < days <= _MOST_DAYS:
        raise Problem(Category.VALUE, f"days must be a number from 1 to {_MOST_DAYS}", "days")
    await repository.refresh()
    canonical = topic_url(subscription)
    topic = repository.matcher.topic(request.tenant, canonical) if canonical is not None else None
    candidate = DryRun(request.tenant, subscription, topic)
    searchable(request.caller, candidate.resource_types, candidate.resource_types)
    repository.matcher.check(request.tenant, subscription, caller=request.caller)
    until = repository.clock()
    since = until - timedelta(days=days)
    result = _Result()
    limit = min(5 if examples is None else examples, _MOST_EXAMPLES)
    for name in candidate.resource_types:
        await _scan(request, repository, candidate, name, since, limit, result)
    result.failed = candidate.failed_count
    return Answer(200, dumps(_parameters(result, since, until, request.base_url)))


async def _arguments(request: Request, repository: Repository) -> tuple[Json, Arguments]:
    """The Subscription, checked as at registration, and the other arguments."""
    checked, arguments = await repository.parsed(request, lambda: _sent(request, repository))
    if checked is not None:
        return checked, arguments
    if len(request.path) != 3:
        raise Problem(Category.REQUIRED, "send a Subscription, or call the operation on a stored one")
    version = await repository.store.read(request.tenant, "Subscription", request.path[1])
    if version is None or version.deleted or not visible([version], request.caller):
        raise Problem(Category.NOT_FOUND, f"Subscription/{request.path[1]} does not exist")
    stored: Json = loads(version.body)
    return stored, arguments


def _sent(request: Request, repository: Repository) -> tuple[Json | None, Arguments]:
    """The Subscription in the body, alone or as a parameter, and the other arguments."""
    body = loads(request.body) if request.body else None
    if isinstance(body, dict) and body.get("resourceType") == "Subscription":
        plain = replace(request, body=b"")
        return check_incoming({"status": "requested", **body}, repository), Arguments.of(plain, _PARAMETERS)
    arguments = Arguments.of(request, _PARAMETERS)
    sent = arguments.structure("resource", "Subscription")
    return None if sent is None else check_incoming(sent, repository), arguments


async def _scan(
    request: Request, repository: Repository, candidate: DryRun, name: str, since: datetime, limit: int, result: _Result
) -> None:
    """Evaluate every version of a resource type since `since`, newest first."""
    cursor: HistoryCursor | None = None
    is_narrow = may_hide(request.caller)
    while True:
        page = await repository.histories.page(request.tenant, name, PAGE, HistoryFilter(since), cursor)
        for version in page:
            change = await _seen_change(version, request, candidate, repository)
            if change is None and is_narrow:
                continue
            result.examined += 1
            if change is not None and candidate.fires(change):
                result.days[version.last_updated.date().isoformat()] += 1
                if len(result.examples) < limit:
                    result.examples.append(version)
            if result.examined >= MOST_VERSIONS and version is not page[-1]:
                result.complete, result.oldest = False, version.last_updated
                return
        if len(page) < PAGE:
            return
        cursor = HistoryCursor.of(page[-1])


async def _seen_change(version: Version, request: Request, candidate: DryRun, repository: Repository) -> Change | None:
    """The change of a version as the caller sees it; None when it is hidden, or cannot fire."""
    caller = request.caller
    is_narrow = may_hide(caller)
    store = repository.store
    if not (is_narrow and version.deleted) and not await visible_now([version], caller, request.tenant, store):
        return None
    change = await _change(version, request.tenant, candidate, repository)
    view = View.HIDDEN if change is None else view_of(caller, change)
    if change is None or view is View.HIDDEN:
        return None
    return as_create(change) if view is View.CREATE else change


async def _change(version: Version, tenant: str, candidate: DryRun, repository: Repository) -> Change | None:
    """The change of a version, with its previous version when needed; None when it cannot fire."""
    resource = None if version.deleted else loads(version.body)
    after = EMPTY if resource is None else extract(resource)
    if not candidate.needs_previous(version, after, resource):
        return Change(tenant, version, resource, EMPTY, after, "", "update")
    before = None
    if version.version_id > 1:
        number = version.version_id - 1
        before = await repository.store.read_version(tenant, version.resource_type, version.id, number)
    previous = loads(before.body) if before is not None and not before.deleted else None
    if resource is None and previous is None:
        return None
    interaction = "delete" if resource is None else "create" if previous is None else "update"
    entries = EMPTY if previous is None else extract(previous)
    return Change(tenant, version, resource, entries, after, "", interaction, previous)


def _parameters(result: _Result, since: datetime, until: datetime, base_url: str) -> Json:
    members: list[Json | None] = [
        {"name": "count", "valueInteger": sum(result.days.values())},
        {"name": "from", "valueInstant": instant(result.oldest or since)},
        {"name": "to", "valueInstant": instant(until)},
        {"name": "examined", "valueInteger": result.examined},
        {"name": "complete", "valueBoolean": result.complete},
    ]
    if result.failed:
        members.append({"name": "failed", "valueInteger": result.failed})
    for day, count in sorted(result.days.items()):
        members.append({"name": "day", "part": [{"name": "date", "valueDate": day},
                                                {"name": "count", "valueInteger": count}]})  # fmt: skip
    for version in result.examples:
        url = f"{base_url}/{version.resource_type}/{version.id}/_history/{version.version_id}"
        parts = [{"name": "focus", "valueReference": {"reference": url}},
                 {"name": "timestamp", "valueInstant": instant(version.last_updated)}]  # fmt: skip
        members.append({"name": "example", "part": parts})
    return parameters_of(*members)
