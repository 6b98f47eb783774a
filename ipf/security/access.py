"""Authorization of a caller, for REST, batches, websocket binding and notifications.

`permit` decides on a type and a right, `may` on one resource: by the scopes of the caller and, where a `Privacy` is
installed, by labels and Consents.  A refusal is 401 with `insufficient_scope` (decisions section 5).

Source: interface specification "Errors"; RFC 6750 section 3.
"""

from __future__ import annotations

from datetime import datetime

from ipf.errors import Category, Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import loads
from ipf.fhir.search.evaluation.match import matches
from ipf.ports import Caller, Json, Version
from ipf.ports.queries.index import Entries
from ipf.ports.queries.predicates import AllOf, Test
from ipf.ports.queries.search import Query, Term
from ipf.security.privacy.policy import Privacy
from ipf.security.scopes import UNLIMITED, Permit, forget_grants, grants_of

_MOST_RESULTS = 2048
_WORDS = {"c": "create", "r": "read", "u": "update", "d": "delete", "s": "search"}


class Unauthorized(Problem):
    """401.  `challenge`: the parameters of `WWW-Authenticate: Bearer`, such as `error="invalid_token"`."""

    def __init__(self, text: str, challenge: str = "") -> None:
        super().__init__(Category.UNAUTHORIZED, text)
        self.challenge = challenge


def insufficient(resource_type: str, right: str) -> Unauthorized:
    """The refusal of a caller without a sufficient scope."""
    scope = f"system/{resource_type}.{right}"
    text = f"the token's scopes do not allow to {_WORDS[right]} {resource_type}"
    return Unauthorized(text, f'error="insufficient_scope", scope="{scope}"')


_installed: list[Privacy] = []


def install(privacy: Privacy | None) -> None:
    """Let labels and Consents decide as well, from now on in this process; None = no longer."""
    _installed[:] = [] if privacy is None else [privacy]
    forget_grants()


def installed() -> Privacy | None:
    """The labels and Consents that decide in this process."""
    return _installed[0] if _installed else None


async def refresh_access() -> None:
    """Called before a decision: Consents that were committed until now count for it.  StoreUnreachable."""
    if _installed:
        await _installed[0].refresh()


def granted(caller: Caller, resource_type: str, right: str) -> Permit | None:
    """The permit of the scopes alone; None = not granted."""
    return UNLIMITED if caller.is_unlimited else grants_of(caller).permit(resource_type, right)


def permit(caller: Caller, resource_type: str, right: str) -> Permit | None:
    """The permit of a caller for a type and a right; None = not granted."""
    found = granted(caller, resource_type, right)
    return found if not _installed or found is None else _limited(found, caller, resource_type, right)


def _limited(found: Permit, caller: Caller, resource_type: str, right: str) -> Permit:
    """The permit of scopes within labels and Consents."""
    if not _installed or not _installed[0].concerns(caller, right):
        return found
    privacy, known = _installed[0], grants_of(caller).limited
    stamp, kept = privacy.stamp(), known.get((resource_type, right))
    if kept is None or kept[0] != stamp or kept[1] is not found:
        limit = privacy.limit(caller, resource_type, right)
        test = limit if found.test is None else found.test if limit is None else AllOf((found.test, limit))
        kept = known[resource_type, right] = stamp, found, found if limit is None else Permit(test)
    return kept[2]


def limits(caller: Caller) -> bool:
    """Whether labels or Consents may limit what the caller sees."""
    return bool(_installed) and _installed[0].concerns(caller, "r")


def finds_all(caller: Caller) -> bool:
    """Whether the caller may read and search everything of the tenant; False also when a closer look is needed."""
    if caller.is_unlimited:
        return True
    return grants_of(caller).finds_all and not limits(caller)


def does_all(caller: Caller) -> bool:
    """Whether the caller has all rights on everything of the tenant, and neither labels nor Consents limit it."""
    return caller.is_unlimited or (grants_of(caller).does_all and not limits(caller))


def required(caller: Caller, resource_type: str, right: str) -> Permit:
    """As `permit`, but raises the refusal instead of returning None."""
    found = permit(caller, resource_type, right)
    if found is None:
        raise insufficient(resource_type, right)
    return found


def granted_or_refused(caller: Caller, resource_type: str, right: str) -> Permit:
    """As `granted`, but raises the refusal instead of returning None."""
    found = granted(caller, resource_type, right)
    if found is None:
        raise insufficient(resource_type, right)
    return found


def limit_name(caller: Caller, resource_type: str, right: str) -> str:
    """A name of the caller's limit in the text of a query.

    Labels and Consents are named by the caller, not by their values: a page token remains valid when they change.
    """
    found = granted(caller, resource_type, right)
    limit = "" if found is None or found.test is None else str(found.test)
    if not _installed or not _installed[0].concerns(caller, right):
        return limit
    who = (caller.issuer, caller.client, caller.subject, caller.user, caller.patient, caller.purpose, caller.scopes)
    return f"{limit}&{who}"


def passes(test: Test | None, resource_type: str, id: str, when: datetime, entries: Entries, resource: Json) -> bool:
    """Whether a resource passes the test of a permit."""
    if test is None:
        return True
    query = Query(resource_type, (Term("", "", test),))
    return matches(query, entries, id=id, last_updated=when, resource=resource)


def may(caller: Caller, right: str, resource_type: str, version: Version | None = None) -> bool:
    """Whether the caller has the right on a version; without a version, on any resource of the type.

    A deletion has no content to test: only callers with a permit without a test may see it.
    """
    found = permit(caller, resource_type, right)
    return found is not None and (version is None or allows(found, version))


def allows(found: Permit, version: Version) -> bool:
    """Whether a version passes the test of a permit.

    The result is cached by version, so the body of a version is parsed once.
    """
    if found.test is None:
        return True
    if version.deleted:
        return False
    known = found.results.get(version.rid)
    if known is not None:
        number, when, id, is_within = known
        if number == version.version_id and when == version.last_updated and id == version.id:
            return is_within
    if len(found.results) >= _MOST_RESULTS:
        found.results.clear()
    resource: Json = loads(version.body)
    kind, number, when, id = version.resource_type, version.version_id, version.last_updated, version.id
    is_within = passes(found.test, kind, id, when, extract(resource), resource)
    found.results[version.rid] = number, when, id, is_within
    return is_within


def may_hold(caller: Caller, right: str, resource: Json) -> bool:
    """As `allows`, for a stored resource that is already parsed."""
    kind = str(resource["resourceType"])
    found = permit(caller, kind, right)
    if found is None or found.test is None:
        return found is not None
    when = datetime.fromisoformat(resource["meta"]["lastUpdated"])
    return passes(found.test, kind, str(resource["id"]), when, extract(resource), resource)


def may_see(caller: Caller, version: Version) -> bool:
    """Whether the caller may read or search this version."""
    kind = version.resource_type
    return caller.is_unlimited or may(caller, "r", kind, version) or may(caller, "s", kind, version)


def may_see_content(
    caller: Caller, resource_type: str, id: str, when: datetime, entries: Entries, resource: Json
) -> bool:
    """As `may_see`, for a version that is already parsed and indexed."""
    if caller.is_unlimited:
        return True
    for right in "rs":
        found = permit(caller, resource_type, right)
        if found is not None and passes(found.test, resource_type, id, when, entries, resource):
            return True
    return False


def may_be_signalled(
    caller: Caller, resource_type: str, id: str, when: datetime, entries: Entries, resource: Json
) -> bool:
    """Whether labels and Consents let a caller know of a resource of a type that none of its scopes is for."""
    found = _limited(UNLIMITED, caller, resource_type, "r")
    return passes(found.test, resource_type, id, when, entries, resource)


def is_narrow(caller: Caller) -> bool:
    """Whether the caller's scopes reach only a part of some type: one patient, a search."""
    return not caller.is_unlimited and grants_of(caller).is_narrow


def may_hide(caller: Caller) -> bool:
    """Whether some resources of a type may be hidden from the caller while it sees others.

    Such a caller learns nothing of hidden ones: not that they change, nor how many there are.
    """
    return is_narrow(caller) or limits(caller)
