"""Memoized results of pure groups: wards, practitioners, organisations and codes repeat from message to message.

A pure group (`compiler.purity`) gives the same result for the same input: elements of its targets, new entries of the
Bundle, and references among these.  The cache holds each result as JSON (`memo_results`) under a key of all inputs
(`memo_keys`).  A hit decodes the JSON again, so no object belongs to two messages.  Identifiers that differ from
message to message (urn:uuid) are filled in afterwards.

Bounded: at most `LIMIT` results a library, each from at most `LONGEST_SOURCE` characters a source and of at most
`LONGEST_RESULT` bytes.  A result enters the cache when its key is looked up for the second time.  A group with few hits
(names of patients) bypasses the cache for a while, each time for longer.

Without it the transform of a ten-segment ADT^A01 takes 0.81 instead of 0.37 ms, and 20 % more where each patient, ward
and practitioner differs (`bin/bench mapping`).
"""

from __future__ import annotations

from ipf.mapping.runtime.memo_keys import LONGEST_SOURCE, Key, MemoPlan, key_function
from ipf.mapping.runtime.memo_results import LONGEST_RESULT, Recorder, Replay, Result
from ipf.mapping.runtime.run import Act, Frame, Run

LIMIT = 4096

_SAMPLE = 1024
"""Misses after which the hit rate of a group is checked."""
_BYPASS = 4096
_LONGEST_BYPASS = 1 << 20


class ResultCache:
    """Results by key, in two generations: the older one is dropped when the recent one is full."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._half = max(1, limit // 2)
        self._recent: dict[Key, Result] = {}
        self._older: dict[Key, Result] = {}
        self._missed: set[int] = set()
        self._missed_before: set[int] = set()

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def get(self, key: Key) -> Result | None:
        """The result, which moves to the recent generation."""
        found = self._recent.get(key)
        if found is None:
            found = self._older.pop(key, None)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: Key, result: Result) -> None:
        """Add a result."""
        if len(self._recent) >= self._half:
            self._older, self._recent = self._recent, {}
        self._recent[key] = result

    def missed_before(self, key: Key) -> bool:
        """Whether this is at least the second miss of a key; rarely true for the first, since hashes may collide."""
        number = hash(key)
        if number in self._missed or number in self._missed_before:
            return True
        if len(self._missed) >= 2 * self._half:
            self._missed, self._missed_before = set(), self._missed
        self._missed.add(number)
        return False


class MemoizedGroup:
    """A compiled group with a cache in front of it.  Called with a frame, as the group's function is."""

    def __init__(self, run: Act, cache: ResultCache, plan: MemoPlan) -> None:
        self._run = run
        self._cache = cache
        self._key = key_function(plan, f"{id(run)} {plan.target}")
        self._record = Recorder(plan)
        self._replay = Replay(plan)
        self._misses = 0
        self._hits = 0
        self._bypass = 0
        self._next_bypass = _BYPASS

    def __call__(self, frame: Frame) -> None:
        if self._bypass > 0:  # a trial in another thread counts down as well
            self._bypass -= 1
            return self._run(frame)
        key = self._key(frame)
        if key is None:
            return self._run(frame)
        result = self._cache.get(key)
        if result is not None:
            self._hits += 1
            return self._replay(frame, result)
        run: Run = frame[0]
        if run.is_recording or not self._cache.missed_before(key):
            self._run(frame)
        else:
            result = self._record(frame, self._run)
            if result is not None:
                self._cache.put(key, result)
        self._misses += 1
        if self._misses >= _SAMPLE:
            self._check_hit_rate()
        return None

    def _check_hit_rate(self) -> None:
        """Bypass the cache for a while when fewer than one call in four was a hit."""
        if self._hits * 3 < self._misses:
            self._bypass = self._next_bypass
            self._next_bypass = min(2 * self._bypass, _LONGEST_BYPASS)
        else:
            self._next_bypass = _BYPASS
        self._misses = self._hits = 0


__all__ = ["LIMIT", "LONGEST_RESULT", "LONGEST_SOURCE", "MemoPlan", "MemoizedGroup", "ResultCache"]
