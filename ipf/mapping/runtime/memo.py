"""Results of pure groups, remembered: wards, doctors, organisations and codes come again and again.

What a pure group (`purity`) makes of the same text is always the same: what it puts into its targets, new entries of
the Bundle, and the references among these.  It is kept as JSON and made anew from it for each message, since results
are changed later (references are rewritten, entries merged).  Everything that differs from message to message (urns) is
given when it is made anew (`memo_results`).

Bounded: at most `LIMIT` results for a library, each from at most `LONGEST_SOURCE` characters a source and of at most
`LONGEST_RESULT` bytes, and `MOST_COMPILED` of them as functions; a few megabytes in all.  A result is kept when the
same is asked for a second time, and those that were not asked for are forgotten first.  A group whose results do not
come again (names of patients) is run without a look for a while, and for longer each time.
"""

from __future__ import annotations

from typing import Any

from ipf.mapping.runtime.memo_code import replay_function
from ipf.mapping.runtime.memo_keys import LONGEST_SOURCE, Plan, key_of
from ipf.mapping.runtime.memo_results import LONGEST_RESULT, Kept, Recorder, Replay
from ipf.mapping.runtime.run import Frame, Run
from ipf.mapping.runtime.scope import Act

LIMIT = 4096
OFTEN = 250
"""So many times a result is made anew from JSON before it is worth a function (`memo_code`)."""
MOST_COMPILED = 512

_TRIAL = 1024
_REST = 4096
_LONGEST_REST = 1 << 20


class Memory:
    """Results by what they were made from; two generations, so that forgetting costs nothing.

    `often`: when one was found so many times, it is compiled.
    """

    def __init__(self, limit: int = LIMIT, often: int = OFTEN) -> None:
        self.often = often
        self._half = max(1, limit // 2)
        self._recent: dict[tuple[Any, ...], Kept] = {}
        self._older: dict[tuple[Any, ...], Kept] = {}
        self._asked: set[int] = set()
        self._asked_before: set[int] = set()
        self._compiled = 0

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def get(self, key: tuple[Any, ...]) -> Kept | None:
        """The result, which is then among the last to be forgotten."""
        found = self._recent.get(key)
        if found is None:
            found = self._older.pop(key, None)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: tuple[Any, ...], kept: Kept) -> None:
        """Remember a result."""
        if len(self._recent) >= self._half:
            self._older, self._recent = self._recent, {}
            self._compiled = sum(one.again is not None for one in self._older.values())
        self._recent[key] = kept

    def may_compile(self) -> bool:
        """Whether one more result may be compiled; counts it."""
        self._compiled += 1
        return self._compiled <= MOST_COMPILED

    def is_asked_again(self, key: tuple[Any, ...]) -> bool:
        """Whether a result that is not there was asked for before (or, seldom, another one with the same hash)."""
        number = hash(key)
        if number in self._asked or number in self._asked_before:
            return True
        if len(self._asked) >= 2 * self._half:
            self._asked, self._asked_before = set(), self._asked
        self._asked.add(number)
        return False


class Remembered:
    """A group that remembers.  Called as the group's function is, with a frame."""

    def __init__(self, run: Act, memory: Memory, plan: Plan) -> None:
        self._run = run
        self._memory = memory
        self._plan = plan
        self._key = key_of(plan, f"{id(run)} {plan.target}")
        self._record = Recorder(plan)
        self._replay = Replay(plan)
        self._asked = 0
        self._found = 0
        self._rest = 0
        self._next_rest = _REST

    def __call__(self, frame: Frame) -> None:
        if self._rest:
            self._rest -= 1
            return self._run(frame)
        key = self._key(frame)
        if key is None:
            return self._run(frame)
        kept = self._memory.get(key)
        if kept is not None:
            self._found += 1
            if kept.again is not None:
                return kept.again(frame)
            kept.found += 1
            if kept.found == self._memory.often and self._memory.may_compile():
                kept.again = replay_function(self._plan, kept)
            return self._replay(frame, kept)
        run: Run = frame[0]
        if run.is_remembering or not self._memory.is_asked_again(key):
            self._run(frame)
        else:
            kept = self._record(frame, self._run)
            if kept is not None:
                self._memory.put(key, kept)
        self._asked += 1
        if self._asked >= _TRIAL:
            self._judge()
        return None

    def _judge(self) -> None:
        """Is it worth the trouble?  So often it was asked for what was not there."""
        if self._found * 3 < self._asked:
            self._rest = self._next_rest
            self._next_rest = min(2 * self._rest, _LONGEST_REST)
        else:
            self._next_rest = _REST
        self._asked = self._found = 0


__all__ = ["LIMIT", "LONGEST_RESULT", "LONGEST_SOURCE", "Memory", "Plan", "Remembered"]
