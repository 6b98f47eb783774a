"""Rate limit of log lines: of similar events only the first `ALLOWED` in each interval are written.

Similar events have the same logger and format string, at WARN or above.  Lines that stand for one row (`event_line`:
dlq, retry_scheduled ...) and lines below WARN are not limited.  A summary line reports the number of omitted lines.
"""

from __future__ import annotations

from twisted.logger import LogEvent, LogLevel

ALLOWED = 10
INTERVAL_SECONDS = 10.0
_MAX_KINDS = 1000
_LEVELS = (LogLevel.warn, LogLevel.error, LogLevel.critical)


class LogRateLimit:
    """Counts the events of the current interval.  Times are those of the events."""

    def __init__(self) -> None:
        self._counts: dict[tuple[object, object], int] = {}
        self._interval_end = float("-inf")

    def permits(self, event: LogEvent, seconds: float) -> bool:
        """Whether the event is written; otherwise it is counted."""
        if event.get("log_level") not in _LEVELS:
            return True
        kind = (event.get("log_namespace"), event.get("log_format"))
        if len(self._counts) >= _MAX_KINDS and kind not in self._counts:
            return True
        if not self._counts:
            self._interval_end = seconds + INTERVAL_SECONDS
        count = self._counts.get(kind, 0) + 1
        self._counts[kind] = count
        return count <= ALLOWED

    def summaries(self, seconds: float) -> list[LogEvent]:
        """At the end of an interval: one event for each limited kind."""
        if seconds < self._interval_end or not self._counts:
            return []
        summaries = [
            _summary(namespace, text, count - ALLOWED, seconds)
            for (namespace, text), count in self._counts.items()
            if count > ALLOWED
        ]
        self._counts.clear()
        return summaries


def _summary(namespace: object, text: object, count: int, seconds: float) -> LogEvent:
    return {
        "log_level": LogLevel.warn,
        "log_namespace": namespace,
        "log_time": seconds,
        "log_format": "event=repeated times={times} more lines like: {like}",
        "times": count,
        "like": str(text),
    }
