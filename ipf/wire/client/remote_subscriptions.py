"""The subscriptions of the FHIR server of `IPF_FHIR_URL`, for the admin API.

They are read from that server at each request, and nothing of them is kept.  That server delivers and counts: the
counters are zero and the history is empty, as the contract has it.  All of them are those of the default tenant.

Every failure of the server is Problem UPSTREAM, with what its OperationOutcome says.

Source: interface specification "Subscription administration"; https://hl7.org/fhir/R4/http.html#update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urljoin

from ipf.errors import Category, Problem
from ipf.fhir.model.issues import issues_text
from ipf.fhir.model.json import dumps, loads
from ipf.ports import DEFAULT_TENANT, Attempt, Json, SubscriptionHealth
from ipf.ports.delivery import AttemptPage, SubscriptionLedger
from ipf.telemetry import correlation
from ipf.wire.client.remote_service import RemoteService, Response

_TYPE = "application/fhir+json"
_GONE = (404, 410)


class RemoteSubscriptions:
    """`ports.SubscriptionLedger` of the server with this FHIR base."""

    def __init__(self, remote: RemoteService, url: str) -> None:
        self._remote = remote
        self._url = url.rstrip("/")

    async def health(self, tenant: str, subscription_id: str) -> SubscriptionHealth | None:
        """See `ports.SubscriptionLedger.health`."""
        found = await self._read(tenant, subscription_id)
        return None if found is None else _health(found[0])

    async def tenants_of(self, subscription_id: str) -> list[str]:
        """See `ports.SubscriptionLedger.tenants_of`; whether it is there says the answer to the reading."""
        return [DEFAULT_TENANT]

    async def healths(self, tenant: str | None, limit: int) -> list[SubscriptionHealth]:
        """See `ports.SubscriptionLedger.healths`, in the order of that server."""
        if tenant not in (None, DEFAULT_TENANT):
            return []
        found: list[SubscriptionHealth] = []
        url = f"{self._url}/Subscription?_count={limit}"
        while url and len(found) < limit:
            page = _resource(await self._get(url), "Bundle")
            entries = [entry.get("resource") for entry in _objects(page.get("entry"))]
            found += [_health(one) for one in _objects(entries) if one.get("resourceType") == "Subscription"]
            following = self._next(url, page)
            url = following if following != url else ""
        return found[:limit]

    async def history(self, tenant: str, subscription_id: str, limit: int, offset: int) -> AttemptPage | None:
        """See `ports.SubscriptionLedger.history`: empty, for attempts are known to that server alone."""
        return None if await self._read(tenant, subscription_id) is None else AttemptPage(0, [])

    async def change_status(
        self, tenant: str, subscription_id: str, status: str, error: str | None, correlation_id: str, who: str
    ) -> None:
        """Replace the version that was read.  Problem NOT_FOUND, CONFLICT: it was changed meanwhile, UPSTREAM."""
        found = await self._read(tenant, subscription_id)
        if found is None:
            raise Problem(Category.NOT_FOUND, f"there is no subscription with id {subscription_id}")
        resource, tag = found
        changed = {name: value for name, value in resource.items() if name != "error"} | {"status": status}
        if error is not None:
            changed["error"] = error
        headers = {"Content-Type": _TYPE, "Accept": _TYPE, correlation.HEADER: correlation_id}
        if tag:
            headers["If-Match"] = tag
        response = await self._remote.authorized("PUT", self._place(subscription_id), dumps(changed), headers)
        if response.status in (409, 412):
            raise Problem(Category.CONFLICT, "the subscription was changed meanwhile")
        if response.status not in (200, 201):
            raise _refused(response)

    async def test(self, tenant: str, subscription_id: str) -> Attempt:
        """Problem BUSINESS_RULE: only the server that delivers can test."""
        raise Problem(Category.BUSINESS_RULE, "the FHIR server elsewhere delivers notifications: test them there")

    async def _read(self, tenant: str, subscription_id: str) -> tuple[Json, str] | None:
        """The resource and its ETag."""
        if tenant != DEFAULT_TENANT:
            return None
        response = await self._get(self._place(subscription_id))
        if response.status in _GONE:
            return None
        return _resource(response, "Subscription"), response.headers.get("etag", "")

    def _place(self, subscription_id: str) -> str:
        return f"{self._url}/Subscription/{quote(subscription_id, safe='')}"

    def _next(self, url: str, page: Json) -> str:
        """The next page.  Problem UPSTREAM: it is elsewhere, where the token of that server must not go."""
        for link in _objects(page.get("link")):
            if link.get("relation") == "next":
                following = urljoin(url, str(link.get("url", "")))
                if not following.startswith((f"{self._url}?", f"{self._url}/")):
                    raise Problem(Category.UPSTREAM, "the next page of the FHIR server is at another address")
                return following
        return ""

    async def _get(self, url: str) -> Response:
        return await self._remote.authorized("GET", url, None, {"Accept": _TYPE})


def _resource(response: Response, kind: str) -> Json:
    if response.status != 200:
        raise _refused(response)
    try:
        found: Any = loads(response.body)
    except Problem as problem:
        raise Problem(Category.UPSTREAM, "the answer of the FHIR server is no JSON") from problem
    if not isinstance(found, dict) or found.get("resourceType") != kind:
        raise Problem(Category.UPSTREAM, f"the answer of the FHIR server is no {kind}")
    return found


def _refused(response: Response) -> Problem:
    text = issues_text(response.body)
    return Problem(Category.UPSTREAM, f"the FHIR server responded with {response.status}{f': {text}' if text else ''}")


def _objects(found: Any) -> list[Mapping[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _health(resource: Mapping[str, Any]) -> SubscriptionHealth:
    error = resource.get("error")
    return SubscriptionHealth(
        0, str(resource.get("id", "")), str(resource.get("status", "")), 0, 0, 0, 0, None, None, None,
        error if isinstance(error, str) else None, dict(resource), DEFAULT_TENANT,
    )  # fmt: skip


_: type[SubscriptionLedger] = RemoteSubscriptions
