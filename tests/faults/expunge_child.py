"""A process that expunges, and waits behind a statement: `python -m tests.faults.expunge_child URL NAME`."""

from __future__ import annotations

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from ipf.ports.fhir.expunge import ExpungeCursor, ExpungeRequest
from ipf.store.erasure import expunge
from ipf.store.erasure.expunge import PostgresExpungeStore
from ipf.store.postgres.database import Database
from ipf.store.postgres.session import Session


async def main(reactor: Any, url: str, wanted: str) -> None:
    """Expunge everything of the tenant, one version after the other."""
    many, beginning = Session.many, getattr(expunge, wanted).partition("{")[0]

    async def waiting(session: Session, sql: str) -> Any:
        rows = await many(session, sql)
        if sql.startswith(beginning) and rows:
            print(wanted, flush=True)
            sys.stdin.read()  # until it is killed
        return rows

    Session.many = waiting  # type: ignore[method-assign]
    database = Database(url, reactor=reactor, size=1)
    await database.start()
    store, after = PostgresExpungeStore(database, "http://localhost/fhir"), ExpungeCursor()
    while (step := await store.expunge(ExpungeRequest("default", previous=True, deleted=True), 3, after)).next:
        after = step.next


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, *sys.argv[1:])))
