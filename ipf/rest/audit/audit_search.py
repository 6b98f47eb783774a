"""A search for AuditEvents as a filter of audit rows.

Rows are filtered by entity and agent (`entity`, `patient`, `agent`), time (`date`, `_lastUpdated`), `_id`, and by
parameters with few values (`outcome`, `action`, `type`, `subtype`).  For the latter each value is tested on a sample
resource, so that all modifiers work.  Every other parameter is tested on the resources of the rows that pass, by the
in-memory matcher.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache

from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import loads
from ipf.fhir.search.evaluation.match import Candidate
from ipf.ports import Version
from ipf.ports.audit.records import FHIR, Audit, AuditContext, AuditFilter
from ipf.ports.queries.predicates import AnyOf, Bound, Bounds, DateRange, IdIn, LastUpdated, Test, TextEquals
from ipf.ports.queries.search import Query
from ipf.security.audit.event import audit_event
from ipf.security.audit.rules import INTERACTIONS

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PREFIXES = {"entity": ("e:",), "agent": ("a:",), "patient": ("e:", "a:")}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -(10**13), 10**14  # milliseconds: beyond all times that are kept
_WIDTH = 1000  # microseconds that an instant of whole milliseconds covers
_SAMPLE = AuditContext("default", FHIR, "read", "R", 0, 200, "a")

Interval = tuple[int, int]
"""First and last millisecond since 1970, both included."""


def filter_of(query: Query) -> tuple[AuditFilter, bool]:
    """The filter, and whether it expresses the whole query."""
    wanted, exact = AuditFilter(surface=FHIR), True
    for term in query.terms:
        narrowed, says_all = _narrowed(wanted, term.name.partition(":")[0], term.test)
        wanted, exact = narrowed, exact and says_all
    return wanted, exact


def passes(query: Query, version: Version) -> bool:
    """Whether the resource of an audit row is a match."""
    resource = loads(version.body)
    candidate = Candidate("AuditEvent", extract(resource), version.id, version.last_updated, resource)
    return all(candidate.passes(term.test) for term in query.terms)


def _narrowed(wanted: AuditFilter, name: str, test: Test) -> tuple[AuditFilter, bool]:
    match test:
        case IdIn(ids):
            found = frozenset(one for one in ids if _UUID.fullmatch(one))
            return replace(wanted, ids=found if wanted.ids is None else wanted.ids & found), True
        case DateRange("date", bounds) | LastUpdated(bounds):
            return _between(wanted, bounds)
    keys = _keys(test)
    if keys is not None:
        return replace(wanted, keys=(*wanted.keys, keys)), True
    if name == "outcome":
        return _with(wanted, outcomes=frozenset(one for one in (0, 4, 8) if _sample("outcome", one).passes(test))), True
    if name == "action":
        return _with(wanted, actions=frozenset(one for one in "CRUDE" if _sample("action", one).passes(test))), True
    if name in ("type", "subtype"):
        found = frozenset(one for one in INTERACTIONS if _sample("interaction", one).passes(test))
        return _with(wanted, interactions=found), True
    if name == "_tag":  # all records have the same
        return wanted if _sample("action", "R").passes(test) else _with(wanted, actions=frozenset()), True
    return wanted, False


def _with(
    wanted: AuditFilter,
    *,
    outcomes: frozenset[int] | None = None,
    actions: frozenset[str] | None = None,
    interactions: frozenset[str] | None = None,
) -> AuditFilter:
    """With these sets as well: what two terms allow is what both do."""
    if outcomes is not None:
        wanted = replace(wanted, outcomes=outcomes if wanted.outcomes is None else wanted.outcomes & outcomes)
    if actions is not None:
        wanted = replace(wanted, actions=actions if wanted.actions is None else wanted.actions & actions)
    if interactions is not None:
        both = interactions if wanted.interactions is None else wanted.interactions & interactions
        wanted = replace(wanted, interactions=both)
    return wanted


def _keys(test: Test) -> tuple[str, ...] | None:
    """The keys of which a row must have one; None when the test is no such test."""
    if isinstance(test, TextEquals) and test.code in _PREFIXES:
        return tuple(prefix + value for prefix in _PREFIXES[test.code] for value in test.values)
    if isinstance(test, AnyOf):
        groups = [_keys(one) for one in test.tests]
        known = [group for group in groups if group is not None]
        return tuple(key for group in known for key in group) if len(known) == len(groups) else None
    return None


@cache
def _sample(field: str, value: str | int) -> Candidate:
    context = _SAMPLE._replace(**{field: value})  # type: ignore[arg-type]  # one field, of its own type
    sample = Audit(context, 0, "7000-8000-000000000000", 0, "")
    resource = audit_event(sample, "")
    return Candidate("AuditEvent", extract(resource), sample.id, _EPOCH, resource)


def _between(wanted: AuditFilter, bounds: Bounds) -> tuple[AuditFilter, bool]:
    intervals = _united(_interval(alternative) for alternative in bounds)
    if not intervals:
        return replace(wanted, ids=frozenset()), True
    since, until = _moment(intervals[0][0]), _moment(intervals[-1][1])
    if wanted.since is not None:
        since = wanted.since if since is None else max(since, wanted.since)
    if wanted.until is not None:
        until = wanted.until if until is None else min(until, wanted.until)
    return replace(wanted, since=since, until=until), len(intervals) == 1


def _interval(alternative: Iterable[Bound]) -> Interval:
    first, last = _FIRST, _LAST
    for bound in alternative:
        value = bound.value
        if isinstance(value, datetime):
            value = (value - _EPOCH) // timedelta(microseconds=1)
        at = int(value) - (_WIDTH if bound.column == "hi" else 0)
        match bound.operator:
            case ">=":
                first = max(first, -(-at // 1000))
            case ">":
                first = max(first, at // 1000 + 1)
            case "<=":
                last = min(last, at // 1000)
            case "<":
                last = min(last, -(-at // 1000) - 1)
    return first, last


def _united(intervals: Iterable[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for first, last in sorted(one for one in intervals if one[0] <= one[1]):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def _moment(milliseconds: int) -> datetime | None:
    """None: no bound on this side."""
    if milliseconds in (_FIRST, _LAST):
        return None
    return _EPOCH + timedelta(milliseconds=min(max(milliseconds, -(10**12)), 10**13))
