"""A process that asks the store questions in turns with the pool's planner settings and with PostgreSQL's own.

Reads a JSON array of searches, writes a JSON object: for each the median milliseconds of both.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from twisted.internet import defer, reactor, task

from ipf.fhir.search.language.query import parse_criteria
from ipf.store.postgres.database import Database
from ipf.store.resources.resources import STATEMENTS, PostgresFhirStore

TIMES = 9
COUNT = 50
DEFAULTS: Mapping[str, str] = {
    "plan_cache_mode": "auto",
    "enable_seqscan": "on",
    "enable_hashjoin": "on",
    "enable_mergejoin": "on",
}


async def main(socket_folder: str, questions: list[str]) -> dict[str, list[float]]:
    """Ask each question in turns."""
    stores = []
    for settings in ({}, DEFAULTS):
        url = f"postgresql://ipf@/fhir?host={socket_folder}&port=5432"
        database = Database(url, reactor=reactor, size=1, statements=STATEMENTS, settings=settings)
        await database.start()
        stores.append((database, PostgresFhirStore(database)))
    found = {}
    for question in questions:
        query = replace(parse_criteria(question.partition("&_include")[0].partition("&_revinclude")[0]), count=COUNT)
        times: list[list[float]] = [[], []]
        for _ in range(TIMES):
            for number, (_, store) in enumerate(stores):
                began = time.perf_counter()
                await store.search("default", query)
                times[number].append((time.perf_counter() - began) * 1000)
        found[question] = [statistics.median(one) for one in times]
    for database, _ in stores:
        await database.close()
    return found


def run(_: Any) -> defer.Deferred[None]:
    """The process."""

    async def answer() -> None:
        print(json.dumps(await main(sys.argv[1], json.loads(sys.stdin.read()))))

    return defer.Deferred.fromCoroutine(answer())


if __name__ == "__main__":
    task.react(run)
