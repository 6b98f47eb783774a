"""The limit of the rejects that senders of one address can store.

A listener without access rules takes frames of anybody, and keeps what is no message for operators.  From one address
it keeps at most WEIGHT in WEIGHT_SECONDS; a reject weighs one, and one more for each KiB that is kept of it.  What
comes beyond is answered AE, so that a sender with a fault keeps its messages and sends them again; bytes outside of
frames, which nobody sends again, are counted only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import ip_address

from ipf.errors import StoreUnreachable
from ipf.ports import Outcome, Received, Rejected
from ipf.ports.messages.inbox import MessageStore
from ipf.security.addresses import AddressLimit

WEIGHT, WEIGHT_SECONDS = 10_000, 60.0
TOO_MANY = "too many messages from this address were rejected; send it again in a minute"


class LimitedRejects:
    """`MessageStore` whose rejects are limited by the address of the sender.  `limited`: is called for each refused."""

    def __init__(self, inbox: MessageStore, now: Callable[[], float], limited: Callable[[], None]) -> None:
        self._inbox = inbox
        self._limit = AddressLimit(WEIGHT, WEIGHT_SECONDS, now)
        self._limited = limited

    async def store(self, batch: Sequence[Received]) -> list[Outcome]:
        """See `MessageStore.store`."""
        return await self._inbox.store(batch)

    async def reject(self, rejected: Rejected) -> None:
        """See `MessageStore.reject`.  StoreUnreachable when the address of the sender has stored too many."""
        if not rejected.is_own:
            address = address_of(rejected.peer)
            if self._limit.is_reached(address):
                self._limited()
                raise StoreUnreachable(TOO_MANY)
            self._limit.count(address, 1 + len(rejected.raw) // 1024)
        await self._inbox.reject(rejected)


def address_of(peer: str) -> str:
    """The address of `address:port`, as listeners write it, or of an address alone.

    With IPv6 the two look alike; both are in the same network, which is what counts.
    """
    try:
        ip_address(peer)
    except ValueError:
        return peer.rpartition(":")[0] or peer
    return peer


_: type[MessageStore] = LimitedRejects
