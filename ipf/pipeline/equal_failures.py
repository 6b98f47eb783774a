"""Equal failures of a source: one bad item is set aside; when item after item fails, the source is at fault.

A source sets an item aside that fails, whatever the reason, and takes the next one.  From MOST equal failures in
succession on its health component is DOWN, with the reason, until an item succeeds.  Nothing is kept over a restart.
"""

from __future__ import annotations

from ipf.errors import Problem

MOST = 5


class EqualFailures:
    """Counts failures with one reason in succession."""

    def __init__(self) -> None:
        self._reason = ""
        self._count = 0

    def failed(self, reason: str) -> None:
        """An item failed."""
        self._count = self._count + 1 if reason == self._reason else 1
        self._reason = reason

    def worked(self) -> None:
        """An item was taken."""
        self._reason, self._count = "", 0

    @property
    def problem(self) -> str | None:
        """Why the source is DOWN; None while it is not."""
        return f"{self._count} items in succession failed: {self._reason}" if self._count >= MOST else None


def reason_of(error: BaseException) -> str:
    """What a log line and a report say of an exception.  The text of an unforeseen one may quote a message."""
    return str(error) if isinstance(error, Problem) else f"unexpected {type(error).__name__}"
