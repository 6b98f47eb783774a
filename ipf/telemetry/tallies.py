"""Counting in this process first: metrics are written through to the shared files once a second, and when scraped.

An increment of the client library in its multi-process mode packs a float into a memory-mapped file and looks whether
the process has forked: one microsecond, two for a histogram, and the look-up of labels.  Here it is an addition to an
object.  What a process counted in its last second before `kill -9` is lost; rows, not counters, are the record of what
happened.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from prometheus_client import Counter, Histogram


class Count:
    """Increments of one series of a counter that were not written through yet."""

    __slots__ = ("_series", "pending")

    def __init__(self, series: Counter) -> None:
        self._series = series
        self.pending = 0.0

    def flush(self) -> None:
        """Write them through."""
        if self.pending:
            pending, self.pending = self.pending, 0.0
            self._series.inc(pending)


class Spread:
    """The same for one series of a histogram."""

    __slots__ = ("_bounds", "_counts", "_is_due", "_series", "_sum")

    def __init__(self, series: Histogram) -> None:
        self._series: Any = series  # its sum and buckets have no public way to take several observations at once
        self._bounds: list[float] = list(self._series._upper_bounds)
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0
        self._is_due = False

    def observe(self, value: float) -> None:
        """One observation."""
        self._sum += value
        self._counts[bisect_left(self._bounds, value)] += 1
        self._is_due = True

    def flush(self) -> None:
        """Write them through."""
        if not self._is_due:
            return
        self._is_due = False
        self._series._sum.inc(self._sum)
        self._sum = 0.0
        for place, count in enumerate(self._counts):
            if count:
                self._series._buckets[place].inc(count)
                self._counts[place] = 0


class Tallies:
    """All series that were asked for, by metric and labels."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Any, ...], Count] = {}
        self._spreads: dict[tuple[Any, ...], Spread] = {}

    def count(self, metric: Counter, *labels: str, by: float = 1.0) -> None:
        """Add to a series of a counter."""
        key = (metric, *labels)
        series = self._counts.get(key)
        if series is None:
            series = self._counts[key] = Count(metric.labels(*labels) if labels else metric)
        series.pending += by

    def observe(self, metric: Histogram, value: float, *labels: str) -> None:
        """One observation of a series of a histogram."""
        key = (metric, *labels)
        series = self._spreads.get(key)
        if series is None:
            series = self._spreads[key] = Spread(metric.labels(*labels) if labels else metric)
        series.observe(value)

    def flush(self) -> None:
        """Write everything through."""
        for count in self._counts.values():
            count.flush()
        for spread in self._spreads.values():
            spread.flush()
