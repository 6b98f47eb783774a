"""Concurrent clients on PostgreSQL, through two servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from twisted.internet import defer

from ipf.fhir.model.json import dumps, loads
from ipf.ports import Answer, Request
from ipf.rest.router import handler
from ipf.store.resources.resources import PostgresFhirStore
from ipf.subscriptions.matching import MatchingIndex
from tests.rest.world import BASE, CORRELATION_ID, OnPostgres, patient


async def write_group(work: list[Coroutine[Any, Any, Answer]]) -> list[Answer]:
    """All at once."""
    found: list[Answer] = await defer.gatherResults([defer.Deferred.fromCoroutine(one) for one in work])
    return found


class ConcurrencyOfTwoServersTests(OnPostgres):
    async def setUp(self) -> None:
        await super().setUp()
        one = self.world.repository
        other = replace(
            one, store=PostgresFhirStore(self.database), matcher=MatchingIndex(), write_group=type(one.write_group)()
        )
        self.servers = [handler(one), handler(other)]

    def request(self, method: str, *path: str, body: Any = None, query: str = "", **headers: str) -> Request:
        """A request with a body."""
        pairs = (("identifier", query),) if query else ()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Request(method, path, pairs, named, dumps(body), BASE, CORRELATION_ID)

    async def all_answers(self, *requests: Request, times: int = 50) -> list[Answer]:
        """Each request many times, alternating between the servers."""
        return await write_group([self.servers[n % 2](one) for n in range(times) for one in requests])

    async def test_conditional_creates(self) -> None:
        """One resource, which all responses name."""
        create = self.request("POST", "Patient", body=patient("1"), if_none_exist="identifier=urn:mrn|1")
        answers = await self.all_answers(create)
        self.assertEqual(Counter(answer.status for answer in answers), {201: 1, 200: 49})
        self.assertEqual(len({loads(answer.body)["id"] for answer in answers}), 1)
        self.assertEqual(await self.world.store.counts(), {"Patient": 1})

    async def test_creates_and_updates_by_the_same_key(self) -> None:
        """Conditional creates, updates and transactions of one identifier."""
        create = self.request("POST", "Patient", body=patient("1"), if_none_exist="identifier=urn:mrn|1")
        update = self.request("PUT", "Patient", body=patient("1"), query="urn:mrn|1")
        entry = {"resource": patient("1"), "request": {"method": "PUT", "url": "Patient?identifier=urn:mrn|1"}}
        bundle = {"resourceType": "Bundle", "type": "transaction", "entry": [entry]}
        answers = await self.all_answers(create, update, self.request("POST", body=bundle), times=20)
        self.assertLessEqual({answer.status for answer in answers}, {200, 201})
        self.assertEqual(await self.world.store.counts(), {"Patient": 1})

    async def test_many_keys(self) -> None:
        """Creates of many identifiers, each several times."""
        requests = [
            self.request("POST", "Patient", body=patient(str(n)), if_none_exist=f"identifier=urn:mrn|{n}")
            for n in range(20)
        ]
        answers = await self.all_answers(*requests, times=6)
        self.assertEqual(Counter(answer.status for answer in answers), {201: 20, 200: 100})
        self.assertEqual(await self.world.store.counts(), {"Patient": 20})

    async def test_updates_of_one_resource(self) -> None:
        """Every update makes a version, and no client gets a conflict."""
        updates = [self.request("PUT", "Patient", "a", body=patient(str(n), id="a")) for n in range(40)]
        answers = await self.all_answers(*updates, times=1)
        self.assertEqual(Counter(answer.status for answer in answers), {201: 1, 200: 39})
        self.assertEqual([version.version_id for version in await self.world.versions("Patient/a")], list(range(1, 41)))

    async def test_if_match_lets_one_win(self) -> None:
        """Of many clients with the same version, one succeeds."""
        await self.world.send("PUT", "Patient/a", patient("0", id="a"))
        updates = [
            self.request("PUT", "Patient", "a", body=patient(str(n), id="a"), if_match='W/"1"') for n in range(1, 31)
        ]
        answers = await self.all_answers(*updates, times=1)
        self.assertEqual(Counter(answer.status for answer in answers), {200: 1, 412: 29})
