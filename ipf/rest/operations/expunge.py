"""POST $expunge: removes versions from the database, of all resources, of a type, of one resource, or one version.

The operation of HAPI FHIR, without `expungeEverything`.  It needs the setting IPF_FHIR_EXPUNGE, and a token with all
rights on everything of the tenant.  It works in chunks, each a transaction: after a crash, repeat it.  The answer of a
call that ends at its limit has a page token; with it, the next call continues behind the last version of this one.

Source: https://smilecdr.com/docs/fhir_repository/deleting_data.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from twisted.logger import Logger

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Clock, Json, Request, Version
from ipf.ports.audit.records import Audit, millisecond_of
from ipf.ports.fhir.expunge import ExpungeCursor, ExpungeRequest, ExpungeStep, ExpungeStore
from ipf.rest.http.arguments import Arguments, parameters_of
from ipf.rest.write.repository import Repository
from ipf.security.access import Unauthorized, does_all
from ipf.security.audit.rules import check_immutable

log = Logger()

_CURSOR = "_cursor"
_KNOWN = ("limit", "expungeDeletedResources", "expungePreviousVersions", _CURSOR)
_CHUNK = 200
_LIMIT, _MOST = 1000, 10_000
_SCOPE = "system/*.cruds"


async def expunge(request: Request, repository: Repository) -> Answer:
    """Parameters: `count` of removed versions, `kept` ones by reason, whether there may be `more`, and `_cursor`."""
    store = _store(request, repository)
    arguments = Arguments.of(request, _KNOWN)
    number = arguments.number("limit")
    limit = _LIMIT if number is None else number
    if not 0 < limit <= _MOST:
        raise Problem(Category.VALUE, f"limit must be a number from 1 to {_MOST}", "limit")
    wanted = await _wanted(request, arguments, repository)
    after: ExpungeCursor | None = await _after(wanted, arguments, repository)
    count, kept, audit = 0, Counter[str](), _Audit(request, repository.clock)
    while after is not None and count < limit:
        step = await store.expunge(wanted, min(_CHUNK, limit - count), after, audit.records)
        audit.ended(step)
        count, after = count + len(step.removed), step.next
        kept.update(step.kept)
    if kept["legal-hold"] and wanted.id is not None:
        text = f"{wanted.resource_type}/{wanted.id} concerns a patient under a legal hold (IPF_LEGAL_HOLDS)"
        raise Problem(Category.CONFLICT, text)
    token = None if after is None else await repository.sealed(_token(wanted, after))
    return Answer(200, dumps(_answer(count, kept, token)), about=audit.left)


@dataclass(slots=True)
class _Audit:
    """The records of the steps, each committed with what it removes.  `left`: versions that no such record has."""

    request: Request
    clock: Clock
    left: list[Version] = field(default_factory=list)
    _count: int = 0

    def records(self, versions: Sequence[Version]) -> list[Audit]:
        """Those of a step that removes these versions."""
        draft = self.request.draft
        made = [] if draft is None else draft.records(200, versions, millisecond_of(self.clock()))
        self._count = len(made)
        return made

    def ended(self, step: ExpungeStep) -> None:
        """The step is committed."""
        draft = self.request.draft
        if draft is None or not step.removed:
            return
        if step.refused:
            log.warn("event=audit_not_written count={count} reason={reason}",
                     event="audit_not_written", count=self._count, reason=step.refused)  # fmt: skip
            draft.deferred(self._count)
            self.left += step.removed
        else:
            draft.committed(step.removed, self._count)


def _store(request: Request, repository: Repository) -> ExpungeStore:
    """Problem UNAUTHORIZED for a caller with less than all rights, NOT_SUPPORTED when the setting is off."""
    if not does_all(request.caller):
        text = f"the token's scopes do not allow $expunge: it needs {_SCOPE}, and no limit by labels or Consents"
        raise Unauthorized(text, f'error="insufficient_scope", scope="{_SCOPE}"')
    if repository.expunge is None:
        raise Problem(Category.NOT_SUPPORTED, "this server does not support $expunge: IPF_FHIR_EXPUNGE is false")
    if repository.is_within:
        raise Problem(Category.NOT_SUPPORTED, "an operation that writes cannot be part of a transaction")
    if request.path[0] != "$expunge":
        check_immutable(request.path[0], "DELETE")
    return repository.expunge


async def _wanted(request: Request, arguments: Arguments, repository: Repository) -> ExpungeRequest:
    """What may be removed.  Problem NOT_FOUND for an unknown resource or version, CONFLICT for a current version."""
    previous, deleted = (arguments.boolean(f"expunge{name}") for name in ("PreviousVersions", "DeletedResources"))
    path = request.path[:-1]
    resource_type, id = path[0] if path else None, path[1] if len(path) > 1 else None
    number = path[3] if len(path) > 3 else None
    if not (previous or deleted or number is not None):
        text = "one of expungePreviousVersions and expungeDeletedResources must be true"
        raise Problem(Category.REQUIRED, text, "expungePreviousVersions")
    if resource_type is None or id is None:
        return ExpungeRequest(request.tenant, resource_type, previous=previous, deleted=deleted)
    current = await repository.store.read(request.tenant, resource_type, id)
    if current is None:
        raise Problem(Category.NOT_FOUND, f"{resource_type}/{id} does not exist")
    if number is None:
        return ExpungeRequest(request.tenant, resource_type, id, previous=previous, deleted=deleted)
    is_number = number.isascii() and number.isdigit() and len(number) <= 9
    version = await repository.store.read_version(request.tenant, resource_type, id, int(number) if is_number else 0)
    if version is None:
        raise Problem(Category.NOT_FOUND, f"{resource_type}/{id} has no version {number[:20]}")
    if version.version_id == current.version_id and not current.deleted:
        raise Problem(Category.CONFLICT, f"version {number} of {resource_type}/{id} is the current one: it stays")
    return ExpungeRequest(request.tenant, resource_type, id, version.version_id, previous=True, deleted=True)


async def _after(wanted: ExpungeRequest, arguments: Arguments, repository: Repository) -> ExpungeCursor:
    """Where the call begins.  Problem VALUE for a token that is not of such a call."""
    token = await repository.opened(arguments.text(_CURSOR))
    if token is None:
        return ExpungeCursor()
    call, *place = token.rsplit(" ", 2)
    if call != _call(wanted):
        raise Problem(Category.VALUE, "the page token is of another call", _CURSOR)
    return ExpungeCursor(*map(int, place))


def _token(wanted: ExpungeRequest, after: ExpungeCursor) -> str:
    """Of one length, which would tell how much is stored for other tenants."""
    return f"{_call(wanted)} {after.rid:019} {after.version_id:010}"


def _call(wanted: ExpungeRequest) -> str:
    """What the calls that continue each other have in common."""
    return f"$expunge {wanted.resource_type} {wanted.id} {wanted.version_id} {wanted.previous} {wanted.deleted}"


def _answer(count: int, kept: Counter[str], token: str | None) -> Json:
    more: list[Json] = [{"name": "more", "valueBoolean": token is not None}]
    if token is not None:
        more.append({"name": _CURSOR, "valueString": token})
    parts = [
        {"name": "kept", "part": [{"name": "reason", "valueCode": reason}, {"name": "count", "valueInteger": number}]}
        for reason, number in sorted(kept.items())
    ]
    return parameters_of({"name": "count", "valueInteger": count}, *more, *parts)
