"""A connection string of libpq in, the servers that it names out, each with parameters of its own.

libpq would try the hosts one after another by itself, with one time limit for all of them, and would resolve their
names in the reactor's thread.  So each server gets a connection string with a single host.

Differences from libpq: several hosts without `target_session_attrs` mean `read-write`, because the service writes;
`load_balance_hosts` is ignored, the order is that of the string; a `connect_timeout` of 0 means our own limit.

Sources: https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-MULTIPLE-HOSTS,
https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNECT-TARGET-SESSION-ATTRS
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from psycopg2 import ProgrammingError
from psycopg2.extensions import make_dsn, parse_dsn

CONNECT_SECONDS = 3.0
"""Seconds for one attempt to connect, unless `connect_timeout` says otherwise."""
_SHORTEST_SECONDS = 2  # of connect_timeout, as in libpq
_OURS = frozenset(("host", "hostaddr", "port", "target_session_attrs", "connect_timeout", "load_balance_hosts"))
_WRITABLE = frozenset(("read-write", "primary"))
_DEFAULTS: Mapping[str, str | int] = {
    "client_encoding": "UTF8",
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 8000,
}


@dataclass(frozen=True, slots=True)
class Host:
    """One server.  `name`: host name, address, or socket folder; empty means libpq's default.  `address`: where it is,
    when known.  `attributes`: its `target_session_attrs`.  `parameters`: all others, which may hold a password.
    """

    name: str
    port: str
    address: str
    attributes: str
    seconds: float
    parameters: tuple[tuple[str, str | int], ...] = field(repr=False)

    @property
    def label(self) -> str:
        """Its name for errors and log lines."""
        where = self.name or self.address or "default socket"
        if self.name and self.address:
            where = f"{self.name} ({self.address})"
        return f"{where}:{self.port or 5432}"

    @property
    def dsn(self) -> str:
        """A connection string for this server alone."""
        chosen = {"host": self.name, "hostaddr": self.address, "port": self.port}
        chosen["target_session_attrs"] = self.attributes
        return str(make_dsn(**{**dict(self.parameters), **{key: value for key, value in chosen.items() if value}}))

    @property
    def must_be_writable(self) -> bool:
        """Whether a server that only reads is refused."""
        return self.attributes in _WRITABLE

    @property
    def must_be_standby(self) -> bool:
        """Whether only a standby is wanted."""
        return self.attributes == "standby"

    @property
    def needs_address(self) -> bool:
        """Whether its name has to be resolved."""
        return bool(self.name) and not self.address and not self.name.startswith("/") and not _is_address(self.name)

    def is_like(self, other: Host) -> bool:
        """Whether both are the same entry of a connection string, at whatever address."""
        return (self.name, self.port, self.attributes) == (other.name, other.port, other.attributes)

    def at(self, address: str) -> Host:
        """This host at one of its addresses."""
        return replace(self, address=address)


def standby_url(url: str) -> str:
    """The connection string for a standby among its hosts.  ValueError when it cannot be read."""
    try:
        found = str(make_dsn(url, target_session_attrs="standby"))
    except ProgrammingError:
        raise ValueError("the URL of the database cannot be read") from None
    hosts_of(found)
    return found


def hosts_of(url: str) -> tuple[Host, ...]:
    """The servers of a connection string, in the order in which to try them.

    `prefer-standby` lists each host as a standby, then each one again as anything.  ValueError names what is wrong, and
    psycopg2.ProgrammingError means that libpq cannot read the string; neither text quotes a password.
    """
    given = parse_dsn(url)
    names, addresses = _items(given.get("host")), _items(given.get("hostaddr"))
    if any("@" in name for name in names):
        raise ValueError("the URL of the database has an @ in its host; in a user name or password it is written %40")
    count = len(addresses) or len(names) or 1
    names = _filled(names, count, "host names", "addresses")
    addresses = _filled(addresses, count, "addresses", "hosts")
    ports = _items(given.get("port"))
    ports = ports * count if len(ports) == 1 else _filled(ports, count, "port numbers", "hosts")
    wanted = given.get("target_session_attrs") or ("read-write" if count > 1 else "")
    parameters = tuple({**_DEFAULTS, **{key: value for key, value in given.items() if key not in _OURS}}.items())
    seconds = _seconds(given.get("connect_timeout"))
    rounds = ("standby", "any") if wanted == "prefer-standby" else (wanted,)
    places = list(zip(names, ports, addresses, strict=True))
    return tuple(Host(*place, attributes, seconds, parameters) for attributes in rounds for place in places)


def parts_of(url: str) -> Mapping[str, str]:
    """The parameters of a connection string.  ValueError when libpq cannot read it; the text quotes nothing of it."""
    try:
        found: dict[str, str] = parse_dsn(url)
    except ProgrammingError:
        raise ValueError("libpq cannot read the connection string") from None
    return found


def _items(text: str | None) -> list[str]:
    return text.split(",") if text else []


def _filled(items: list[str], count: int, what: str, of: str) -> list[str]:
    if items and len(items) != count:
        raise ValueError(f"the URL of the database has {len(items)} {what} for {count} {of}")
    return items or [""] * count


def _seconds(timeout: str | None) -> float:
    if not timeout:
        return CONNECT_SECONDS
    try:
        seconds = int(timeout)
    except ValueError:
        raise ValueError("connect_timeout in the URL of the database is not a number of seconds") from None
    return float(max(seconds, _SHORTEST_SECONDS)) if seconds > 0 else CONNECT_SECONDS


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
