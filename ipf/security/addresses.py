"""Addresses of clients: what counts as one, and limits by address.  No IO.

Whoever has an IPv6 network has 2^64 addresses, so its network of 64 bits counts as one.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address, ip_network

MOST_ADDRESSES = 10_000
_IPV6_PREFIX = 64


def source_of(address: str) -> str:
    """An IPv4 address, or the network of an IPv6 address; another text as it is."""
    if ":" not in address:
        return address
    try:
        host = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = host.ipv4_mapped
    return str(mapped) if mapped is not None else str(ip_network((host, _IPV6_PREFIX), strict=False))


class AddressLimit:
    """How much may happen from one address: `limit` times, or so much, in `seconds`.  `now`: seconds.

    Of more than MOST_ADDRESSES addresses the first ones are forgotten: memory is bounded, and nobody is limited for
    what others do.
    """

    def __init__(self, limit: int, seconds: float, now: Callable[[], float]) -> None:
        self._limit = limit
        self._seconds = seconds
        self._now = now
        self._counted: dict[str, tuple[float, int]] = {}  # the end of its time, and how much has happened

    def is_reached(self, address: str) -> bool:
        """Whether so much has happened from this address."""
        end, count = self._counted.get(source_of(address), (0.0, 0))
        return count >= self._limit and self._now() < end

    def count(self, address: str, weight: int = 1) -> None:
        """It happened."""
        source, now = source_of(address), self._now()
        end, count = self._counted.pop(source, (0.0, 0))
        if now >= end:
            end, count = now + self._seconds, 0
        if len(self._counted) >= MOST_ADDRESSES:
            del self._counted[next(iter(self._counted))]
        self._counted[source] = end, count + weight

    def forgive(self, address: str) -> None:
        """What was counted last does not count."""
        source = source_of(address)
        end, count = self._counted.get(source, (0.0, 0))
        if count > 1:
            self._counted[source] = end, count - 1
        else:
            self._counted.pop(source, None)
