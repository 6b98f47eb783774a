"""The zone of the message that is mapped.

The zone of a time without an offset is that of MSH-7 (HL7 v2.9 section 2.A.22), then that of the sender (`SENDER_ZONE`,
from a vendor profile), then that of the installation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Offset = str | Callable[[str], str]
"""An offset (`Z`, `+01:00`), or what gives the offset of a local time `2026-07-01T12:00`, as `zone_offset` does."""

MESSAGE_OFFSET: ContextVar[Offset | None] = ContextVar("message_offset", default=None)
"""The offset of MSH-7, or of the sender, while a message is mapped; None: that of the installation."""

SENDER_ZONE: ContextVar[Offset | None] = ContextVar("sender_zone", default=None)
"""The configured zone of the sender while a message is mapped; None: it has none."""


@contextmanager
def zone_of_sender(offset: Offset | None) -> Iterator[None]:
    """While a message of this sender is mapped."""
    token = SENDER_ZONE.set(offset)
    try:
        yield
    finally:
        SENDER_ZONE.reset(token)
