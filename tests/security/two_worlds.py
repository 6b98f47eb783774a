"""Two worlds: a scenario runs on two stores that differ only in what its client may not see.

Every answer to the client must be equal in both: status, headers, body, order.  Only what is random is normalised:
tokens and some ids that the server made, ids of exports, and the encrypted text of page tokens.  The clock stands still
and is the same in both worlds, and so are the ids of new resources: times and what is sorted are compared as they are.

A scenario is a list of steps, each at its own moment.  A step belongs to world A, to world B or to both; the steps of
one world alone are hidden from the client (`two_worlds_steps.py` decides that).  A failure is shrunk to the steps that
it takes, and printed as Python that `replay` runs.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from random import SystemRandom

from ipf.fhir.model.json import loads
from ipf.pipeline.maintenance.export import Export
from ipf.ports import OPEN, Answer, Caller
from ipf.rest.write import ids
from tests.rest.world import BASE
from tests.security.two_worlds_server import Server

RUNS = int(os.environ.get("IPF_TWO_WORLDS_RUNS", "2000"))
"""Scenarios of a campaign in memory."""
_SEED = os.environ.get("IPF_TWO_WORLDS_SEED")


def seeds(kept: Iterable[int], count: int) -> list[int]:
    """The seeds to run: those kept, then so many that no run had; only the one that `IPF_TWO_WORLDS_SEED` names."""
    if _SEED is not None:
        return [int(_SEED)]
    first = SystemRandom().randrange(10**9)
    return [*kept, *range(first, first + count)]


START = datetime(2026, 1, 31, 8, 0, 0, 0, UTC)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_EXPORT = re.compile(r"(?<=\$export-status/)[A-Za-z0-9_-]{32}|(?<=\$export-file/)[A-Za-z0-9_-]{32}")
_TOKEN = re.compile(r'(?<="name":"token","valueString":")[A-Za-z0-9_-]{43}')
_QUERY = re.compile(r'(?<="query":")[A-Za-z0-9+/=]+')  # of AuditEvents: may contain a page token
_PERIOD = re.compile(r'"period":\{[^}]*\},')  # of AuditEvents
_CURSOR = re.compile(r'(?<=_cursor=)[^"&\\]+|(?<="_cursor","valueString":")[^"]+')
_NEXT = re.compile(r'"relation":"next","url":"((?:[^"\\\\]|\\\\.)*)"')
_PLACEHOLDER = re.compile(r"\{(id|next|export|token):(\d+)\}")


@dataclass(frozen=True)
class Step:
    """A request at a moment (`at`: its number).  `worlds`: where it happens.  `is_client`: its answer is compared.

    `url` and `body` may name what earlier answers of this world contained: `{id:k}` an id that the server made,
    `{next:k}` a link to a next page, `{export:k}` an export.
    """

    at: int
    method: str
    url: str
    body: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    worlds: str = "AB"
    is_client: bool = False
    tenant: str = "here"


@dataclass(frozen=True)
class Scenario:
    """A client and what happens.  `integrity`: the servers check references; `notifies`: they send notifications.

    `limit`: of included resources.  `deletes_many`: conditional deletes delete all matches.
    """

    caller: Caller
    steps: tuple[Step, ...]
    integrity: bool = False
    notifies: bool = True
    limit: int = 1000
    deletes_many: bool = False

    def text(self) -> str:
        """The scenario as Python."""
        lines = [f"    {step!r}," for step in self.steps]
        options = f"integrity={self.integrity}, notifies={self.notifies}, limit={self.limit}"
        options += f", deletes_many={self.deletes_many}"
        return "\n".join([f"Scenario({self.caller!r}, {options}, steps=(", *lines, "))"])


@dataclass
class Memory:
    """The client in one world, and what he learned there: ids that the server made, next links, exports.

    The decisions on access are cached by the identity of the Caller, and by internal numbers, which differ by world.
    """

    caller: Caller
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    exports: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

    def fill(self, text: str) -> str:
        """The text with its placeholders replaced; one for which nothing is known becomes `nothing`."""

        def known(found: re.Match[str]) -> str:
            values = {"id": self.ids, "next": self.links, "export": self.exports, "token": self.tokens}[found[1]]
            return values[int(found[2]) % len(values)] if values else "nothing"

        return _PLACEHOLDER.sub(known, text)

    def learn(self, answer: Answer, heard: str = "") -> str:
        """What is compared of an answer: with symbols for what is random, in the order of its first appearance.

        `heard`: what arrived before it at the endpoint and on the websocket of the client.
        """
        headers = "".join(f"{name}: {value}\n" for name, value in answer.headers)
        text = f"{answer.status} {answer.content_type}\n{headers}\n{answer.body.decode()}\n{heard}"
        text = _QUERY.sub(lambda one: b64decode(one[0]).decode(), text)
        for link in _next_links(answer):
            if link not in self.links:
                self.links.append(link)
        text = _UUID.sub(lambda one: f"id-{_number(self.ids, one[0])}", text)
        text = _PERIOD.sub("", text)
        text = _TOKEN.sub(lambda one: f"token-{_number(self.tokens, one[0])}", text)
        text = _EXPORT.sub(lambda one: f"export-{_number(self.exports, one[0])}", text)
        return _CURSOR.sub(lambda one: f"token-of-{len(one[0])}", text)


def _number(known: list[str], value: str) -> int:
    if value not in known:
        known.append(value)
    return known.index(value)


def _next_links(answer: Answer) -> Iterable[str]:
    for url in _NEXT.findall(answer.body.decode()):
        yield str(loads(f'"{url}"')).removeprefix(BASE).removeprefix("/")


@dataclass(frozen=True)
class Difference:
    """The first answer that differs."""

    step: Step
    first: str
    second: str

    def text(self) -> str:
        """For the report of a failing test."""
        pairs = enumerate(zip(self.first, self.second, strict=False))
        start = max(0, next((place for place, (one, other) in pairs if one != other), 0) - 300)
        shown = (one[start : start + 1500] for one in (self.first, self.second))
        return "{!r}\n--- world A, from character {}\n{}\n--- world B\n{}".format(self.step, start, *shown)


MakeWorlds = Callable[[], Awaitable[tuple[Server, Server]]]
"""Two worlds in which nothing happened yet."""


async def compare(scenario: Scenario, worlds: tuple[Server, Server]) -> Difference | None:
    """Run a scenario; the first difference, or None."""
    memories = Memory(replace(scenario.caller)), Memory(replace(scenario.caller))
    for step in scenario.steps:
        seen = [
            await _perform(step, scenario, world, memory)
            for name, world, memory in zip("AB", worlds, memories, strict=True)
            if name in step.worlds
        ]
        if step.is_client and seen[0] != seen[1]:
            return Difference(step, *seen)
    return None


@lru_cache(maxsize=100)
def _digits(at: int) -> list[str]:
    """The random digits of the ids that are made at a moment."""
    return [sha256(b"%d %d" % (at, number)).hexdigest()[:20] for number in range(20)]


async def _perform(step: Step, scenario: Scenario, world: Server, memory: Memory) -> str:
    """One request in one world; what is compared of its answer.  Exports that it started are run to their end."""
    ids._random[:] = _digits(step.at)
    world.now = START + timedelta(seconds=step.at)
    world.notifies, world.max_page_size = scenario.notifies, scenario.limit
    world.deletes_many = scenario.deletes_many
    world.caller = memory.caller if step.is_client else OPEN
    world.integrity = scenario.integrity and step.is_client  # else a hidden reference would change what others store
    method, url = step.method, memory.fill(step.url)
    body = None if step.body is None else memory.fill(step.body).encode()
    answer = await world.send(method, url, body, step.tenant + world.suffix, **dict(step.headers))
    if not step.is_client and answer.status >= 300:
        raise AssertionError(f"{step!r} is refused: {answer.body.decode()}")
    if answer.status == 202:
        export = Export(world.exports, world.store)
        while await export.step():
            pass
    return memory.learn(answer, world.socket.take()) if step.is_client else ""


async def shrink(scenario: Scenario, differs: Callable[[Scenario], Awaitable[bool]]) -> Scenario:
    """A scenario with as few moments as possible that still differs; the steps of one moment belong together."""
    moments = sorted({step.at for step in scenario.steps})
    size = len(moments) // 2
    while size:
        start = 0
        while start < len(moments):
            fewer = moments[:start] + moments[start + size :]
            kept = replace(scenario, steps=tuple(step for step in scenario.steps if step.at in fewer))
            if await differs(kept):
                scenario, moments = kept, fewer
            else:
                start += size
        size //= 2
    return scenario


async def report(scenario: Scenario, make: MakeWorlds, seen: Difference) -> str:
    """The smallest scenario that differs, and its difference, else the one that was `seen`; for a test that failed."""

    async def differs(one: Scenario) -> bool:
        return await compare(one, await make()) is not None

    smallest = await shrink(scenario, differs)
    found = await compare(smallest, await make())
    return (
        f"{smallest.text()}\n{found.text() if found is not None else f'it differs no longer; it did in {seen.text()}'}"
    )


def hidden_steps(steps: Sequence[Step]) -> int:
    """How many steps belong to one world alone."""
    return sum(step.worlds != "AB" for step in steps)
