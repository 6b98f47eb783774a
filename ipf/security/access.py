"""Authorization of a caller, for REST, batches, websocket binding and notifications.

`permit` decides on a type and a right, `may` on one resource.  A refusal is 401 with `insufficient_scope`, as the
interface specification lists it (decisions section 5).

Source: interface specification "Errors"; RFC 6750 section 3.
"""

from __future__ import annotations

from datetime import datetime

from ipf.errors import Category, Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import loads
from ipf.fhir.search.match import matches
from ipf.ports import Caller, Json, Version
from ipf.ports.index import Entries
from ipf.ports.predicates import Test
from ipf.ports.search import Query, Term
from ipf.security.scopes import UNLIMITED, Permit, grants_of

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


def permit(caller: Caller, resource_type: str, right: str) -> Permit | None:
    """The rights of a caller on resources of a type; None = none."""
    return UNLIMITED if caller.is_unlimited else grants_of(caller).permit(resource_type, right)


def required(caller: Caller, resource_type: str, right: str) -> Permit:
    """The same; raises the refusal when there are none."""
    found = permit(caller, resource_type, right)
    if found is None:
        raise insufficient(resource_type, right)
    return found


def passes(test: Test | None, resource_type: str, id: str, when: datetime, entries: Entries, resource: Json) -> bool:
    """Whether a resource is within the limit of a permit."""
    if test is None:
        return True
    query = Query(resource_type, (Term("", "", test),))
    return matches(query, entries, id=id, last_updated=when, resource=resource)


def may(caller: Caller, right: str, resource_type: str, version: Version | None = None) -> bool:
    """Whether the caller may do this with that version; None: with any resource of the type at all.

    A deletion holds nothing that a limit could be put to: only callers without a limit may see it.
    """
    found = permit(caller, resource_type, right)
    return found is not None and (version is None or allows(found, version))


def allows(found: Permit, version: Version) -> bool:
    """Whether a version is within a permit.

    The result is kept by version, so that the body of a version is parsed once.
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
    """The same for a stored resource that is at hand in parsed form."""
    kind = str(resource["resourceType"])
    found = permit(caller, kind, right)
    if found is None or found.test is None:
        return found is not None
    when = datetime.fromisoformat(resource["meta"]["lastUpdated"])
    return passes(found.test, kind, str(resource["id"]), when, extract(resource), resource)


def may_see(caller: Caller, version: Version) -> bool:
    """Whether a version may be shown: to whoever may read it, or find it."""
    kind = version.resource_type
    return caller.is_unlimited or may(caller, "r", kind, version) or may(caller, "s", kind, version)
