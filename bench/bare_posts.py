"""The peer of `bin/bench notify`: treq alone posts to one URL.

Prints POSTs per second, and the processor time of one in microseconds.

usage: python -m bench.bare_posts URL COUNT AT_ONCE < body
"""

from __future__ import annotations

import sys
import time

from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.web.client import Agent, HTTPConnectionPool


async def posts(url: str, body: bytes, count: int, at_once: int) -> str:
    """`count` POSTs, `at_once` at a time: POSTs per second without the first tenth, and processor time of one in us."""
    pool = HTTPConnectionPool(reactor, persistent=True)
    pool.maxPersistentPerHost = at_once
    client = HTTPClient(Agent(reactor, pool=pool))
    headers = {"Content-Type": "application/fhir+json; charset=UTF-8", "X-Correlation-Id": "c"}
    left = iter(range(count))
    marks: dict[str, float] = {}

    async def runner() -> None:
        for number in left:
            if number == count // 10:
                marks["begin"], marks["used"] = time.perf_counter(), time.process_time()
            answer = await client.post(url, data=body, headers=headers)
            await answer.content()

    await gatherResults([Deferred.fromCoroutine(runner()) for _ in range(at_once)])
    rate = (count - count // 10) / (time.perf_counter() - marks["begin"])
    used = (time.process_time() - marks["used"]) / (count - count // 10) * 1e6
    await pool.closeCachedConnections()
    return f"{rate} {used}"


def main() -> None:
    """Run and print."""
    url, count, at_once = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    body = sys.stdin.buffer.read()

    def begin() -> None:
        running = Deferred.fromCoroutine(posts(url, body, count, at_once))
        running.addCallbacks(print, lambda failure: failure.printTraceback()).addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(begin)
    reactor.run()


if __name__ == "__main__":
    main()
