"""Batches of the convert stage: the messages of a batch share one transaction of the FHIR store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipf.ports import Claimed

MAX_BATCH_BYTES = 100_000
"""Message bytes of one batch: a transaction of thousands of rows delays other transactions."""


@dataclass(frozen=True)
class BatchPolicy:
    """`max_messages` share a transaction; `concurrency` batches are in progress at once.

    One batch is mapped while others wait for PostgreSQL.  A large batch spreads its fixed cost over more messages, but
    the reactor does nothing else while its statements are built.
    """

    max_messages: int
    concurrency: int


SHARED_PROCESS = BatchPolicy(max_messages=16, concurrency=2)
"""For a process that also serves listeners: acknowledgements wait less for the log of large transactions."""
DEDICATED_PROCESS = BatchPolicy(max_messages=50, concurrency=3)
"""For a converter process."""


def even_size(count: int, limit: int) -> int:
    """The batch size that splits `count` messages evenly into as few batches of at most `limit` as possible."""
    return -(-count // max(1, -(-count // limit)))


def next_batch(waiting: Sequence[Claimed], size: int) -> tuple[list[Claimed], list[Claimed]]:
    """The next batch and the remaining messages, both in order.

    A batch has at most `size` messages, one of each ordering key, and `MAX_BATCH_BYTES`; one message may be longer.
    """
    batch: list[Claimed] = []
    rest: list[Claimed] = []
    keys: set[int] = set()
    left = MAX_BATCH_BYTES
    for message in waiting:
        fits = len(batch) < size and (not batch or len(message.raw) <= left)
        if not fits or (message.ordering_key is not None and message.ordering_key in keys):
            rest.append(message)
        else:
            batch.append(message)
            left -= len(message.raw)
        if message.ordering_key is not None:
            keys.add(message.ordering_key)
    return batch, rest
