"""Message brokers: those that the operator names in `IPF_BROKERS`, and endpoints of Subscriptions that use one.

A broker is a URL: `kafka://`, `nats://` or `amqp://`, with `+tls` for TLS.  It has one or more hosts, credentials, and
behind the slash patterns of the topics (Kafka), subjects (NATS) or routing keys (AMQP) that Subscriptions may name;
without patterns they may name any:

    kafka+tls://user:password@broker1:9093,broker2:9093/fhir.*?sasl=scram-sha-512&ca=/etc/ipf/kafka.pem
    nats+tls://token@broker:4222/fhir.*?ca=/etc/ipf/nats.pem
    amqp+tls://user:password@broker:5671/fhir.*?vhost=/hospital&exchange=fhir

An endpoint is `kafka://broker1:9093/fhir.patients` or `nats://broker:4222/fhir.patients`: some of the hosts, no secret.

Source: RFC 3986; https://kafka.apache.org/documentation (security.protocol, sasl.mechanism);
https://docs.nats.io/using-nats/developer/connecting
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.util import find_spec
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

KAFKA, NATS, AMQP = "kafka", "nats", "amqp"
LIBRARIES = {KAFKA: "confluent_kafka", NATS: "nats", AMQP: "pika"}
"""The client library of each kind, installed as the extra of the same name."""

_PORTS = {KAFKA: 9092, NATS: 4222, AMQP: 5672}
_TARGETS = {KAFKA: "topic", NATS: "subject", AMQP: "routing-key"}
_SASL = {"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"}
_FILES = {"ca", "certificate", "key"}
_OPTIONS = {KAFKA: {"sasl", *_FILES}, NATS: _FILES, AMQP: {"exchange", "vhost", *_FILES}}
_HOST = re.compile(r"([A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SUBJECT = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_LONGEST_TARGET = 255
_EXPECTED = "expected URLs such as kafka+tls://user:password@host:9093/fhir.* or nats+tls://host:4222, without spaces"

Host = tuple[str, int]
MissingLibrary = Callable[[str], str | None]
"""Of a kind of broker, the reason why this installation cannot speak to it."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker of the operator.  `patterns`: of topics or subjects; none: any.

    `ca`, `certificate`, `key`: paths of files.  `vhost`, `exchange`: of AMQP; "": the default exchange, where a routing
    key is the name of a queue.
    """

    kind: str
    hosts: tuple[Host, ...]
    is_tls: bool = False
    patterns: tuple[str, ...] = ()
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    sasl: str = "PLAIN"
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    vhost: str = "/"
    exchange: str = ""

    @property
    def name(self) -> str:
        """Kind and hosts: what may be shown and logged."""
        return f"{self.kind}://{','.join(self.servers)}"

    @property
    def servers(self) -> tuple[str, ...]:
        """The hosts with their ports, as text."""
        return tuple(f"{host}:{port}" for host, port in self.hosts)

    @property
    def authenticates(self) -> bool:
        """Whether this server proves to the broker who it is."""
        return bool(self.user or self.certificate)

    def allows(self, target: str) -> bool:
        """Whether Subscriptions may name this topic or subject."""
        return not self.patterns or any(fnmatchcase(target, pattern) for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Kind and hosts of a broker, and a topic or subject: of one Subscription."""

    kind: str
    hosts: tuple[Host, ...]
    target: str

    def broker(self, brokers: Sequence[Broker]) -> Broker | None:
        """The broker with these hosts; None when the operator names none."""
        matching = (one for one in brokers if one.kind == self.kind and set(self.hosts) <= set(one.hosts))
        return next(matching, None)


def brokers(value: str) -> tuple[Broker, ...]:
    """The brokers of `IPF_BROKERS`, separated by blanks.  The text of a ValueError holds no secret."""
    found = tuple(_broker(word) for word in value.split())
    hosts = [(one.kind, host) for one in found for host in one.hosts]
    if len(hosts) != len(set(hosts)):
        raise ValueError("a host is in two brokers")
    return found


def _broker(url: str) -> Broker:
    parts = _split(url)
    kind, _, tls = parts.scheme.partition("+")
    if kind not in LIBRARIES or tls not in ("", "tls") or parts.fragment:
        raise ValueError(_EXPECTED)
    login, _, addresses = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    if bool(user) != bool(password) and (kind != NATS or password):
        raise ValueError("expected user:password, or neither; with nats a token alone")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not options.keys() <= _OPTIONS[kind] or not all(options.values()):
        raise ValueError(f"the options of {kind} are {', '.join(sorted(_OPTIONS[kind]))}")
    sasl = _SASL.get(options.pop("sasl", "plain"))
    if sasl is None:
        raise ValueError(f"sasl must be one of {', '.join(_SASL)}")
    if not tls and options.keys() & _FILES:
        raise ValueError(f"ca, certificate and key need {kind}+tls")
    if ("certificate" in options) != ("key" in options):
        raise ValueError("certificate and key are given together or not at all")
    patterns = tuple(one for one in parts.path.lstrip("/").split(",") if one)
    return Broker(
        kind, tuple(_hosts(kind, addresses)), bool(tls), patterns, unquote(user) or None, unquote(password) or None,
        sasl, **options,
    )  # fmt: skip


def _hosts(kind: str, text: str) -> Iterator[Host]:
    for one in text.split(","):
        read = _HOST.fullmatch(one)
        port = int(read[2] or _PORTS[kind]) if read is not None else 0
        if read is None or not 0 < port < 65_536:
            raise ValueError(_EXPECTED)
        yield read[1].lower(), port


def _split(url: str) -> SplitResult:
    """The parts of a URL.  The text of the library's ValueError may hold some of them, ours does not."""
    try:
        return urlsplit(url)
    except ValueError:
        raise ValueError(_EXPECTED) from None


def kind_of(endpoint: object) -> str | None:
    """`kafka`, `nats` or `amqp` when the endpoint has that scheme, in any case; None for every other endpoint."""
    scheme = endpoint.partition(":")[0].lower() if isinstance(endpoint, str) and ":" in endpoint else ""
    kind = scheme.removesuffix("+tls")
    return kind if kind in LIBRARIES else None


@lru_cache(maxsize=4096)
def endpoint_of(text: str) -> Endpoint:
    """The endpoint of a Subscription.  ValueError with the rule that it breaks."""
    kind = kind_of(text)
    what = _TARGETS.get(str(kind), "")
    form = f"the endpoint must be {kind}://host:port/{what}, without credentials, query or fragment"
    try:
        parts = urlsplit(text)
        hosts = tuple(_hosts(str(kind), parts.netloc))
    except (ValueError, KeyError):
        raise ValueError(form) from None
    if kind is None or parts.scheme != kind or parts.query or parts.fragment:
        raise ValueError(form)
    target = parts.path.removeprefix("/")
    _check_target(kind, target)
    return Endpoint(kind, hosts, target)


def _check_target(kind: str, target: str) -> None:
    if kind != KAFKA:
        if not _SUBJECT.fullmatch(target) or len(target) > _LONGEST_TARGET:
            what = _TARGETS[kind].replace("-", " ")
            raise ValueError(f"a {what} has words of letters, digits, hyphens and underscores, separated by dots")
    elif not _TOPIC.fullmatch(target) or target in (".", ".."):
        raise ValueError("a topic has 1 to 249 letters, digits, dots, hyphens and underscores")
    elif target.startswith("__"):
        raise ValueError("topics that begin with __ belong to Kafka itself")


@cache
def missing_library(kind: str) -> str | None:
    """The reason why this installation cannot speak to brokers of a kind; None when it can."""
    if find_spec(LIBRARIES[kind]) is not None:
        return None
    return f"this server has no client library for {kind}: install ipf[{kind}]"
