"""A regular expression as a finite automaton: yes or no in time linear in the text.

Takes the part of the language that is regular: characters, classes, groups, alternatives, repetitions, `^` and `$`.
All states are followed at once, and each set of states met is remembered with what a character makes of it, so a text
costs one look-up a character.  Source: K. Thompson, "Regular expression search algorithm", CACM 11 (1968).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from ipf.fhir.fhirpath.errors import FhirPathError

_MAX_STATES = 3000
_MAX_MEMORY = 2000
_MAX_DEPTH = 50
_ATOM = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]|\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)|[^\\()|*+?]", re.DOTALL)
_REPEAT = re.compile(r"(?:([*+?])|\{(\d*)(,?)(\d*)\})([?+]?)", re.ASCII)
_GROUP = re.compile(r"\((?:\?:|\?P?<[A-Za-z]\w*>|(?!\?))")
_NOT_REGULAR = re.compile(r"\\[bB1-9]")

_BEFORE_LAST_LINE_END, _AT_END = 1, 2
_PLACES = {"^": 9, "$": _BEFORE_LAST_LINE_END, "\\Z": _AT_END}  # place -> how near to the end it must be

Fragment = Callable[[int], int]


def repetitions(pattern: str) -> tuple[int, bool]:
    """How many repetitions of open length the pattern has, and whether one stands inside another repetition.

    An alternative inside a repetition counts as nested, since it may match the same text in two ways.
    """
    count, nested, position = 0, False, 0
    inside: list[bool] = [False]
    while position < len(pattern):
        mark = pattern[position]
        atom = _ATOM.match(pattern, position)
        varies = False
        if mark == "(":
            inside.append(False)
            position += 1
            continue
        if mark == "|":
            inside[-1] = True
            position += 1
            continue
        if mark == ")" and len(inside) > 1:
            varies = inside.pop()
        position = atom.end() if atom else position + 1
        repeat = _REPEAT.match(pattern, position)
        if repeat is not None and repeat[1] != "?":
            position = repeat.end()
            open_ended = bool(repeat[1]) or bool(repeat[3])
            nested = nested or varies
            count += open_ended
            varies = varies or open_ended
        elif repeat is not None:
            position = repeat.end()
            varies = True
        inside[-1] = inside[-1] or varies
    return count, nested


@lru_cache(maxsize=128)
def compiled(pattern: str) -> Automaton:
    """The automaton of a pattern; FhirPathError when it is not regular, or too large."""
    if _NOT_REGULAR.search(pattern):
        raise FhirPathError("a pattern that needs backtracking, with repetitions that could take too long on this text")
    return Automaton(pattern)


class Automaton:
    """States are numbers; each either takes a character and goes on, or goes to several at once."""

    def __init__(self, pattern: str) -> None:
        self._takes: list[re.Pattern[str] | str | None] = []
        self._next: list[tuple[int, ...]] = []
        self._memory: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._end = self._state(None, ())
        self._pattern = pattern
        self._position = 0
        self._start = self._alternatives(0)(self._end)
        if self._position < len(pattern):
            raise _refused()

    def search(self, text: str) -> bool:
        """Whether the pattern is found anywhere in the text."""
        return self._follow(text, anywhere=True)

    def full_match(self, text: str) -> bool:
        """Whether it matches from the start on (the pattern itself says that it reaches the end)."""
        return self._follow(text, anywhere=False)

    def _follow(self, text: str, anywhere: bool) -> bool:
        last = len(text)
        states = self._close((self._start,), True, _AT_END if last == 0 else _end_mark(text, 0))
        for i, character in enumerate(text):
            if self._end in states:
                return True
            key = (states, character)
            ends = _end_mark(text, i + 1)
            following = None if ends else self._memory.get(key)
            if following is None:
                core = [self._next[state][0] for state in states if self._accepts(state, character)]
                following = self._close((*core, self._start) if anywhere else core, False, ends)
                if not ends and len(self._memory) < _MAX_MEMORY:
                    self._memory[key] = following
            states = following
            if not states:
                return False
        return self._end in states

    def _accepts(self, state: int, character: str) -> bool:
        takes = self._takes[state]
        if takes is None or takes in _PLACES:
            return False
        return takes == character if isinstance(takes, str) else takes.match(character) is not None

    def _close(self, states: Iterable[int], begins: bool, ends: int) -> frozenset[int]:
        """All states that are reached without a character."""
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            takes = self._takes[state]
            if takes is None or (takes == "^" and begins) or (isinstance(takes, str) and _PLACES.get(takes, 9) <= ends):
                waiting.extend(self._next[state])
            found.add(state)
        return frozenset(found)

    # ----------------------------------------------------------------------------------------- reading the pattern

    def _state(self, takes: re.Pattern[str] | str | None, following: tuple[int, ...]) -> int:
        if len(self._takes) >= _MAX_STATES:
            raise FhirPathError("a regular expression that is too large")
        self._takes.append(takes)
        self._next.append(following)
        return len(self._takes) - 1

    def _alternatives(self, depth: int) -> Fragment:
        choices = [self._sequence(depth)]
        while self._pattern[self._position : self._position + 1] == "|":
            self._position += 1
            choices.append(self._sequence(depth))
        if len(choices) == 1:
            return choices[0]
        return lambda following: self._state(None, tuple(choice(following) for choice in choices))

    def _sequence(self, depth: int) -> Fragment:
        parts: list[Fragment] = []
        while self._position < len(self._pattern) and self._pattern[self._position] not in "|)":
            parts.append(self._repeated(self._part(depth)))

        def build(following: int) -> int:
            for part in reversed(parts):
                following = part(following)
            return following

        return build

    def _part(self, depth: int) -> Fragment:
        group = _GROUP.match(self._pattern, self._position)
        if group is not None and depth < _MAX_DEPTH:
            self._position = group.end()
            inner = self._alternatives(depth + 1)
            if self._pattern[self._position : self._position + 1] != ")":
                raise _refused()
            self._position += 1
            return inner
        atom = _ATOM.match(self._pattern, self._position)
        if atom is None:
            raise _refused()
        self._position = atom.end()
        takes = _taken(atom.group())
        return lambda following: self._state(takes, (following,))

    def _repeated(self, part: Fragment) -> Fragment:
        repeat = _REPEAT.match(self._pattern, self._position)
        if repeat is None:
            return part
        self._position = repeat.end()
        if repeat[5] == "+":
            raise _refused()
        if repeat[1]:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[repeat[1]]
        else:
            least = int(repeat[2] or 0)
            most = least if not repeat[3] else (int(repeat[4]) if repeat[4] else None)
        if max(least, most or 0) > _MAX_STATES:
            raise FhirPathError("a regular expression that is too large")
        return lambda following: self._copies(part, least, most, following)

    def _copies(self, part: Fragment, least: int, most: int | None, following: int) -> int:
        if most is None:
            loop = self._state(None, ())
            self._next[loop] = (part(loop), following)
            following = loop
        else:
            end = following
            for _ in range(most - least):
                following = self._state(None, (part(following), end))
        for _ in range(least):
            following = part(following)
        return following


def _end_mark(text: str, position: int) -> int:
    """0, or how near to the end the position is."""
    if position == len(text):
        return _AT_END
    return _BEFORE_LAST_LINE_END if position == len(text) - 1 and text[position] == "\n" else 0


def _taken(atom: str) -> re.Pattern[str] | str:
    """What a state takes: one character, or any that a class matches; `^` and `$` are places, not characters."""
    if len(atom) == 1 and atom != ".":
        return atom
    if atom in ("\\A", "\\Z"):
        return "^" if atom == "\\A" else atom
    if len(atom) == 2 and atom[0] == "\\" and not atom[1].isalnum():
        return re.compile(re.escape(atom[1]))
    try:
        return re.compile(atom, re.DOTALL)
    except re.error:
        raise _refused() from None


def _refused() -> FhirPathError:
    return FhirPathError("a pattern that needs backtracking, with repetitions that could take too long on this text")
