"""The zone of the message that is mapped."""

from __future__ import annotations

from contextvars import ContextVar

MESSAGE_OFFSET: ContextVar[str | None] = ContextVar("message_offset", default=None)
"""The offset of MSH-7 while a message is mapped; None: times without an offset are in the zone of the installation."""
