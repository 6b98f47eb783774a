"""Rules for Subscriptions that name a message broker: `channel.type` message, endpoint `kafka:`, `nats:` or `amqp:`.

Only a broker that the operator names in `IPF_BROKERS` is connected to, with the operator's credentials: a broker tells
its clients which further hosts to connect to, so it has to be trusted.  A Subscription says host and topic, no secret.

Source: decisions section 2 (channel security); docs/reference/subscriptions.md, "Message brokers"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipf.config.brokers import Broker, Endpoint, MissingLibrary, endpoint_of
from ipf.errors import Category, Issue

_ENDPOINT = "Subscription.channel.endpoint"
_OWN_PREFIXES = ("nats-", "x-ipf-")
_OWN_NAMES = frozenset({"authorization", "cookie", "traceparent", "tracestate"})
_SIGNING_SECRET = "x-ipf-signing-secret"


def broker_violations(
    endpoint: str, brokers: Sequence[Broker], missing: MissingLibrary, *, needs_tls: bool, needs_credentials: bool
) -> Iterator[Issue]:
    """One issue for each rule that the endpoint violates.  `missing`: see `config.brokers.missing_library`."""
    try:
        named = endpoint_of(endpoint)
    except ValueError as wrong:
        yield _issue(str(wrong))
        return
    without_library = missing(named.kind)
    if without_library is not None:
        yield _issue(without_library)
    broker = named.broker(brokers)
    if broker is None:
        yield _issue("this server knows no broker with these hosts: the operator names brokers in IPF_BROKERS")
        return
    if not broker.allows(named.target):
        yield _issue(f"this server does not allow the {_target(named)} {named.target}")
    if needs_tls and not broker.is_tls:
        yield _issue("the connection to the broker must be TLS")
    if needs_credentials and not broker.authenticates:
        yield _issue("this server has no credentials for the broker")


def reserved_header(name: str) -> str | None:
    """The reason why a message may not have a header of this name (lower case); None when it may."""
    if name in ("authorization", "cookie"):
        return f"a message has no {name}: whoever reads the topic would read it; the operator has the credentials"
    if name in _OWN_NAMES or (name.startswith(_OWN_PREFIXES) and name != _SIGNING_SECRET):
        return f"the header {name} is set by the server"
    return None


def _target(endpoint: Endpoint) -> str:
    return {"kafka": "topic", "nats": "subject"}.get(endpoint.kind, "routing key")


def _issue(text: str) -> Issue:
    return Issue(text, _ENDPOINT, Category.BUSINESS_RULE)
