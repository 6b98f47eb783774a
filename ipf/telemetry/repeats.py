"""No flood under failure: of lines that are alike only the first of each interval are written, the rest are counted.

Alike are events of one logger with one format at WARN or above: what differs is what was filled in.  Lines that stand
for one row each (`event_line`: dlq, retry_scheduled ...) are never held back, nor is anything below WARN.
"""

from __future__ import annotations

from twisted.logger import LogEvent, LogLevel

ALLOWED = 10
INTERVAL_SECONDS = 10.0
_MOST_KINDS = 1000
_LEVELS = (LogLevel.warn, LogLevel.error, LogLevel.critical)


class Repeats:
    """What was written and held back in the current interval.  Times are those of the events."""

    def __init__(self) -> None:
        self._seen: dict[tuple[object, object], int] = {}
        self._until = float("-inf")

    def admits(self, event: LogEvent, seconds: float) -> bool:
        """Whether the event is to be written; otherwise it is counted."""
        if event.get("log_level") not in _LEVELS:
            return True
        kind = (event.get("log_namespace"), event.get("log_format"))
        if len(self._seen) >= _MOST_KINDS and kind not in self._seen:
            return True
        if not self._seen:
            self._until = seconds + INTERVAL_SECONDS
        count = self._seen.get(kind, 0) + 1
        self._seen[kind] = count
        return count <= ALLOWED

    def ended(self, seconds: float) -> list[LogEvent]:
        """When the interval is over: an event for each kind that was held back, and a new interval begins."""
        if seconds < self._until or not self._seen:
            return []
        held = [
            _summary(namespace, text, count - ALLOWED, seconds)
            for (namespace, text), count in self._seen.items()
            if count > ALLOWED
        ]
        self._seen.clear()
        return held


def _summary(namespace: object, text: object, count: int, seconds: float) -> LogEvent:
    return {
        "log_level": LogLevel.warn,
        "log_namespace": namespace,
        "log_time": seconds,
        "log_format": "event=repeated times={times} more lines like: {like}",
        "times": count,
        "like": str(text),
    }
