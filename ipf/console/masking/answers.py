"""Answers of the engine as a role without patient data sees them.

A table has every path that may be asked for, with what becomes of its answer; a path that it does not have is refused,
so that a page that is written tomorrow shows nothing until somebody has decided.  Searches that name patients or words
of messages are refused too: whether something is found would tell.  No IO.

Source: interface specification "Operator UI"; docs/reference/admin-api.md "Masking".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ipf.console.masking.fhir import mask_resource
from ipf.console.masking.hl7 import MASK, mask_message

Mask = Callable[[Any], Any]


class Masked(Exception):
    """The role may not see this.  The text says what."""


def _open(body: Any) -> Any:
    """Nothing of a patient is in it."""
    return body


def _message(body: Any) -> Any:
    """One message, with its text."""
    return {**body, "raw_message": mask_message(body.get("raw_message") or "")}


def _trace(body: Any) -> Any:
    """A trace or a try of a map: rules and places stay, values go."""
    if not isinstance(body, dict):
        return body
    shown = {name: one for name, one in body.items() if name in _OF_TRACE}
    shown["steps"] = [_step(one) for one in body.get("steps") or ()]
    shown |= {name: [] for name in ("logs", "findings", "warnings") if name in body}
    shown["result"] = mask_resource(body.get("result")) if body.get("result") is not None else None
    return shown


_OF_TRACE = ("id", "correlation_id", "map_url", "duration_ms", "unread", "unmapped", "mistake", "message_type")


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    produced = [{name: one for name, one in part.items() if name != "value"} for part in step.get("produced") or ()]
    kept = {name: step.get(name) for name in ("map", "file", "line", "column", "group", "rule", "sources")}
    return {**kept, "produced": produced, "translations": []}


def _compared(body: Any) -> Any:
    """A comparison of maps: which messages differ, and where."""
    differing = [{**one, "before": mask_resource(one["before"]), "after": mask_resource(one["after"])}
                 for one in body.get("differing", ())]  # fmt: skip
    return {**body, "differing": differing}


def _conflict(body: Any) -> Any:
    """An identity conflict, or a list of them: candidates without what is known of them."""
    if "items" in body:
        return {**body, "items": [_conflict(one) for one in body["items"]]}
    shown = {**body, "keys": [{**key, "value": MASK} for key in body.get("keys") or ()], "query": None}
    if "candidate_resources" in body:
        shown["candidate_resources"] = [_candidate(one) for one in body["candidate_resources"]]
    return shown


_OF_CANDIDATE = ("reference", "exists", "active", "status", "gender", "subject", "replaced_by", "last_updated")


def _candidate(one: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: one.get(name) for name in _OF_CANDIDATE}
    identifiers = [{**identifier, "value": MASK} for identifier in one.get("identifiers") or ()]
    birth_date = one.get("birth_date")
    return {**shown, "identifiers": identifiers, "names": [MASK for _ in one.get("names") or ()],
            "birth_date": birth_date[:4] if isinstance(birth_date, str) else None}  # fmt: skip


def _job(body: Any) -> Any:
    """A job or a list of jobs, or a dry run: what was searched for is not shown, nor what a replay would change."""
    if "items" in body:
        return {**body, "items": [] if "dry_run" in body else [_job(one) for one in body["items"]]}
    return {**body, "selection": _narrowed(body["selection"])} if isinstance(body.get("selection"), dict) else body


def _narrowed(selection: Mapping[str, Any]) -> dict[str, Any]:
    named = ("patient", "text")
    shown = {name: MASK if name in named and one else one for name, one in selection.items()}
    wanted = shown.get("filter")
    return {**shown, "filter": _narrowed(wanted)} if isinstance(wanted, dict) else shown


def _audit(body: Any) -> Any:
    """The trail: who did what to which resource, without the values of searches."""
    items = [{**one, "target": _path_of(one.get("target"))} for one in body["items"]]
    return {**body, "items": items}


def _path_of(target: str | None) -> str | None:
    if not target or "?" not in target:
        return target
    path, _, query = target.partition("?")
    return f"{path}?{'&'.join(part.partition('=')[0] + '=' + MASK for part in query.split('&'))}"


_ID = r"[^/]+"
RULES: tuple[tuple[str, Mask], ...] = (
    (r"observe/(system|throughput|live|interfaces|dlq)", _open),
    (r"dead-letters/errors", _open),
    (r"dead-letters/(retry|discard)", _job),
    (r"subscriptions/health", _open),
    (rf"subscriptions/{_ID}/(health|history|status|test)", _open),
    (rf"subscriptions/{_ID}/resource", mask_resource),
    (r"messages", _open),
    (r"messages/replay", _job),
    (rf"messages/{_ID}", _message),
    (rf"messages/{_ID}/retry", _message),
    (rf"messages/{_ID}/(effects|conversions)", _open),
    (rf"messages/{_ID}/trace", _trace),
    (rf"jobs(/{_ID}(/cancel)?)?", _job),
    (r"config|openapi.json|observe/openapi.json|rejects|code-overrides|api/profiles|mapping|mapping/(source|install|remove|reload)",
     _open),
    (rf"unmapped-codes(/{_ID}(/(map|requeue))?)?", _open),
    (rf"unread-fields(/{_ID})?", _open),
    (r"ingest|api/profiles/(validate|install|rollback|reload)", _open),
    (r"mapping/try", _trace),
    (r"mapping/compare", _compared),
    (rf"identity-conflicts(/{_ID}(/answer)?)?", _conflict),
    (r"audit", _audit),
    (r"audit/views", _open),
    (rf"views(/{_ID})?", _open),
)  # fmt: skip
"""Paths below /admin, and what becomes of their answers."""
_COMPILED = tuple((re.compile(pattern), mask) for pattern, mask in RULES)
_NAMING = {"messages": frozenset(("patient", "text")), "audit": frozenset(("patient",))}
"""Parameters that search by what is masked."""

_FHIR_PARAMETERS = frozenset((
    "_count", "_cursor", "_offset", "_page", "_sort", "_id", "_lastUpdated", "_since", "_total", "_summary", "_format",
    "patient", "subject", "encounter", "status", "code", "category", "date", "type", "class", "eventsSinceNumber",
    "eventsUntilNumber", "content",
))  # fmt: skip
_SORTED_BY = frozenset(name for name in _FHIR_PARAMETERS if not name.startswith("_")) | {"_id", "_lastUpdated"}
"""An order by what is masked would tell it."""
_FHIR_OPEN = re.compile(r"/metadata|/SubscriptionTopic(/.*)?")


def admin_mask(path: str, parameters: Collection[str] = ()) -> Mask:
    """What becomes of the answer of a path of the admin API.  Masked: the role may not ask this."""
    place, _, query = path.removeprefix("/admin/").partition("?")
    names = {*parameters, *(part.partition("=")[0] for part in query.split("&") if part)}
    if names & _NAMING.get(place, frozenset()):
        raise Masked(" ".join(sorted(names & _NAMING[place])))
    for pattern, mask in _COMPILED:
        if pattern.fullmatch(place):
            return mask
    raise Masked(place)


def fhir_mask(path: str, query: Sequence[tuple[str, str]] = ()) -> Mask:
    """What becomes of an answer of the FHIR API.  Masked: the search, or its order, tells of what is masked."""
    if _FHIR_OPEN.fullmatch(path):
        return _open
    orders = {one.strip().removeprefix("-") for name, value in query if name == "_sort" for one in value.split(",")}
    wrong = {name for name, _ in query if name not in _FHIR_PARAMETERS} | (orders - _SORTED_BY - {""})
    if wrong:
        raise Masked(" ".join(sorted(wrong)))
    return mask_resource
