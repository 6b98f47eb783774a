"""Endpoints whose host is a name: at registration it is refused when it resolves only to addresses that are none.

| the name resolves | |
|---|---|
| to an address that may be an endpoint | accepted; the connection goes to such an address |
| only to others: link-local, multicast, the service's own port, with tenants a private one | refused |
| not at all now, or not in time | accepted with a warning |

The name is looked up again for every connection.  A Subscription whose endpoint stays as it is is not looked up: it can
always be switched off.

Source: decisions, "Decided after the second measurement" (Endpoints).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ipf.errors import Category, Issue, Problem
from ipf.ports import Json
from ipf.subscriptions.addresses import address_of
from ipf.subscriptions.endpoints import EndpointRules, port_of, split_endpoint

HTTP_CHANNELS = ("rest-hook", "message")
_ENDPOINT = "Subscription.channel.endpoint"

LookUp = Callable[[Collection[str]], Awaitable[Mapping[str, Sequence[str]]]]
"""The addresses of host names; none: the name does not resolve now."""


@dataclass(frozen=True, slots=True)
class EndpointNames:
    """`rules`: of addresses.  `look_up`: resolves names, in bounded time."""

    rules: EndpointRules
    look_up: LookUp


class KnownNames:
    """The names of endpoints that were looked up for one commit."""

    def __init__(self, names: EndpointNames) -> None:
        self._names = names
        self._known: dict[str, Sequence[str]] = {}

    async def look_up(self, hosts: Collection[str]) -> None:
        """Look up names."""
        self._known |= await self._names.look_up(hosts)

    def check(self, subscription: Json) -> str | None:
        """The name that must be looked up first; None: it is accepted.  Problem BUSINESS_RULE: it is refused."""
        named = named_host(subscription)
        if named is None:
            return None
        host, port = named
        if host not in self._known:
            return host
        reasons = [self._names.rules.forbids(host, address, port) for address in self._known[host]]
        if reasons and all(reasons):
            text = f"the host of the endpoint is refused, it resolves to an address that cannot be one: {reasons[0]}"
            issue = Issue(text, _ENDPOINT, Category.BUSINESS_RULE)
            raise Problem(Category.BUSINESS_RULE, "the subscription cannot be served", issues=(issue,))
        return None


def named_host(subscription: Json) -> tuple[str, int] | None:
    """Host and port of an HTTP endpoint whose host is a name."""
    channel = subscription.get("channel")
    if not isinstance(channel, dict) or channel.get("type") not in HTTP_CHANNELS:
        return None
    url = split_endpoint(str(channel.get("endpoint", "")))
    if url is None or not url.hostname or address_of(url.hostname) is not None:
        return None
    return url.hostname.rstrip("."), port_of(url)


def unresolved_text(host: str) -> str:
    """The warning about an endpoint that was accepted and whose name did not resolve."""
    return f"the host {host} of the endpoint does not resolve now: notifications fail until it does"
