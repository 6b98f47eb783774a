"""Index every message of an inbox, without the pauses of the service: `python -m bench.index_all URL`."""

from __future__ import annotations

import sys
import time
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from bench.report import line
from ipf.store.inbox.inbox import STATEMENTS
from ipf.store.inbox.text_index import PostgresMessageIndex
from ipf.store.postgres.database import Database

reactor: Any = _reactor


async def index_all(url: str) -> None:
    """Index until all messages are indexed."""
    database = Database(url, reactor=reactor, size=1, statements=STATEMENTS)
    await database.start()
    index = PostgresMessageIndex(database, reactor.seconds)
    began, done = time.process_time(), 0
    while await index.lag():
        worked = await index.index_next(lambda: deferLater(reactor, 0))
        if not worked:
            await deferLater(reactor, 0.1)
        done += worked
    each = (time.process_time() - began) / max(done, 1)
    line("processor time of one message, without PostgreSQL", f"{each * 1e6:.0f} us")
    await database.close()


def main(url: str) -> None:
    """Run it."""

    def done(result: object) -> None:
        if result is not None:
            print(result, file=sys.stderr)
        reactor.stop()

    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(index_all(url)).addBoth(done))
    reactor.run()


if __name__ == "__main__":
    main(sys.argv[1])
