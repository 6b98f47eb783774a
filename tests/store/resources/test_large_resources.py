"""The statements of a large resource are built in a thread: quoting it would hold the reactor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from threading import get_ident
from typing import Any

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import loads
from ipf.rest.router import handler
from ipf.store.resources.resources import PostgresFhirStore
from ipf.store.resources.writing import rows
from tests import postgres
from tests.rest.world import World


class LargeResourceTests(TestCase):
    async def test_where_statements_are_built(self) -> None:
        main, threads = get_ident(), []
        calls = rows.INSERT_VERSIONS.call

        async def in_thread(work: Callable[[], Any]) -> Any:
            return await deferToThread(work)

        class Noting:
            def call(self, *values: Any) -> str:
                threads.append(get_ident())
                return calls(*values)

        self.patch(rows, "INSERT_VERSIONS", Noting())
        database = await postgres.database(self, "fhir")
        world = World(PostgresFhirStore(database, in_thread), database=database)
        run: Callable[[Callable[[], Any]], Awaitable[Any]] = in_thread
        handle = handler(replace(world.repository, run_in_thread=run))
        for size, in_main in ((1000, True), (2_000_000, False)):
            threads.clear()
            document = {"resourceType": "Binary", "contentType": "text/plain", "data": "QUJD" * (size // 4)}
            answer = await handle(world.request("POST", "Binary", document, content_type="application/fhir+json"))
            self.assertEqual(answer.status, 201, answer.body[:300])
            self.assertEqual([one == main for one in threads], [in_main])
            read = await world.send("GET", f"Binary/{loads(answer.body)['id']}", accept="application/fhir+json")
            self.assertEqual(loads(read.body)["data"], document["data"])
