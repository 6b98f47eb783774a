"""Sorted blocks of words: how the index of words inside messages is written and read back.

What arrives: of each message of a part (up to 1,024 messages of one chunk) its runs of characters.  What leaves:
blocks of about half a kilobyte, a line feed and then a line for each word: the word, a tab, and which messages have it.
Few messages are a character each, U+0100 + id % 1024; more than 84 are `=` and 128 bytes in base64, a bit for each id.
Words hold no control characters, so a word is found in a block by its line feed and tab.

A run is taken apart once a part, however many messages have it: most runs of a feed are in very many of them.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from ipf.hl7.words import words_of_run

CHUNK = 1024
BITS = CHUNK // 8

_MOST_LISTED = 84
_BASE = 0x100
_ONE = [chr(_BASE + number) for number in range(CHUNK)]
_BLOCK = 600  # characters
_SLICE = 2_000
_CONTROL = re.compile("[\x00-\x1f]")

Pause = Callable[[], Awaitable[object]]


class Part:
    """The words of some messages of one chunk."""

    def __init__(self) -> None:
        self._runs: defaultdict[str, list[int]] = defaultdict(list)
        self._exact: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, number: int, runs: Iterable[str], exact: Iterable[str]) -> None:
        """A message, `number` its place in the chunk: runs of characters, and words that are taken as they are."""
        for run in runs:
            self._runs[run].append(number)
        for word in exact:
            self._exact[word].append(number)

    async def blocks(self, pause: Pause) -> list[tuple[str, str]]:
        """The blocks, each with its first word.  `pause` is awaited now and then."""
        words = await self._words(pause)
        lines: list[str] = []
        for word in sorted(words):
            lines.append(f"{word}\t{posting(words[word])}\n")
            if len(lines) % _SLICE == 0:
                await pause()
        return list(_cut(lines))

    async def _words(self, pause: Pause) -> dict[str, Sequence[int]]:
        words: dict[str, Sequence[int]] = dict(self._exact)
        for done, (run, numbers) in enumerate(self._runs.items()):
            for word in words_of_run(run):
                known = words.get(word)
                words[word] = numbers if known is None else [*known, *numbers]
            if done % _SLICE == _SLICE - 1:
                await pause()
        return words


def _cut(lines: list[str]) -> Iterator[tuple[str, str]]:
    start, size = 0, 0
    for end, line in enumerate(lines):
        if size >= _BLOCK:
            yield _block(lines[start:end])
            start, size = end, 0
        size += len(line)
    if lines:
        yield _block(lines[start:])


def _block(lines: list[str]) -> tuple[str, str]:
    return lines[0].partition("\t")[0], "\n" + "".join(lines)


def posting(numbers: Sequence[int]) -> str:
    """Which messages, as they are stored; a number may come twice."""
    if len(numbers) == 1:
        return _ONE[numbers[0]]
    different = set(numbers)
    if len(different) <= _MOST_LISTED:
        return "".join([_ONE[number] for number in sorted(different)])
    places = bytearray(b"0" * CHUNK)
    for number in different:
        places[-1 - number] = 49  # "1"
    return "=" + b64encode(int(places, 2).to_bytes(BITS, "little")).decode("ascii")


def bits_of(stored: str) -> int:
    """Bit n is set when the message with id % 1024 = n is one of them."""
    if stored[:1] == "=":
        return int.from_bytes(b64decode(stored), "little")
    bits = 0
    for mark in stored:
        bits |= 1 << ord(mark) - _BASE
    return bits


def beginning_with(start: str, words: str) -> list[str]:
    """Of a block, which messages have words that begin so, for each such word."""
    found: list[str] = []
    at = words.find("\n" + start)
    while at >= 0 and words.startswith(start, at + 1):
        end = words.index("\n", at + 1)
        found.append(words[words.index("\t", at) + 1 : end])
        at = end
    return found


def united(postings: list[str]) -> list[str]:
    """The same messages in fewer postings: what is listed becomes one list."""
    listed = "".join({mark for one in postings if one[0] != "=" for mark in one})
    return [*([listed] if listed else ()), *(one for one in postings if one[0] == "=")]


def plain(word: str) -> str:
    """A word that is taken as it is, without what ends a word or a line."""
    return _CONTROL.sub(" ", word)
