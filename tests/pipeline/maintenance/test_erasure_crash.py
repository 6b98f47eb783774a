"""An erasure that ends at any point and is repeated leaves what one that was never interrupted leaves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import Deferred

from ipf.errors import Problem
from ipf.pipeline.maintenance.erasure import ROUNDS, Erasure
from ipf.pipeline.maintenance.erasure_search import ErasureRequest
from ipf.ports import FhirTransaction, Writes
from ipf.security.audit.erasure_receipt import concerns, is_genuine
from ipf.store.erasure.messages import PostgresMessageErasure
from ipf.store.erasure.resources import PostgresErasureStore
from ipf.store.resources.resources import PostgresFhirStore
from tests.pipeline.maintenance.erasures import KEY, ErasureSuite, hl7, observation, patient_of
from tests.rest.world import BASE, World
from tests.waiting import until

_CHANGING = ("begin", "remove")


class Interrupted(Exception):
    """The end of the process."""


class Steps:
    """Counts steps; the one with the number `last` is the last."""

    def __init__(self, last: int | None = None) -> None:
        self.count = 0
        self.at_each: Callable[[str], None] = lambda sql: None
        self._last = last

    def step(self, sql: str = "") -> None:
        """One step."""
        self.count += 1
        self.at_each(sql)
        if self.count == self._last:
            raise Interrupted


class WaitingTransaction:
    """A transaction that waits before its commit."""

    def __init__(self, transaction: FhirTransaction, looked: Deferred[None], go_on: Deferred[None]) -> None:
        self._transaction = transaction
        self._looked = looked
        self._go_on = go_on

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    async def commit(self, writes: Writes, reads: Any = None) -> str:
        """See `FhirTransaction.commit`."""
        self._looked.callback(None)
        await self._go_on
        return await self._transaction.commit(writes, reads)


class Stepping:
    """A store whose changes are steps: before they begin, and after they are committed."""

    def __init__(self, store: Any, steps: Steps) -> None:
        self._store = store
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        work = getattr(self._store, name)
        return self._stepping(work) if name in _CHANGING else work

    def _stepping(self, work: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def stepping(*arguments: Any) -> Any:
            self._steps.step()
            found = await work(*arguments)
            self._steps.step()
            return found

        return stepping


class SteppingDatabase:
    """A database in which each statement of a transaction is a step."""

    def __init__(self, database: Any, steps: Steps) -> None:
        self._database = database
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def for_tenant(self, tenant: str) -> SteppingDatabase:
        """The same within a tenant."""
        return SteppingDatabase(self._database.for_tenant(tenant), self._steps)

    async def transact(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """A transaction."""

        async def stepping(session: Any) -> Any:
            return await work(SteppingSession(session, self._steps))

        return await self._database.transact(stepping)


class SteppingSession:
    """Its session."""

    def __init__(self, session: Any, steps: Steps) -> None:
        self._session = session
        self._steps = steps

    async def many(self, sql: str) -> Any:
        """One statement."""
        self._steps.step(sql)
        return await self._session.many(sql)


class CrashTests(ErasureSuite):
    every = 8

    async def fill(self) -> None:
        """All kinds of rows, of both patients."""
        own, shared, other = hl7("K", "4711^^^A^MR"), hl7("S", "4711^^^A^MR"), hl7("Y", "4712^^^A^MR")
        await self.inbox.store([own, shared, other])
        await self.put(observation("both", "x", performer=[{"reference": "Patient/y"}]))
        await self.wrote(own, "x")
        await self.wrote(shared, "both")

    def interrupted(self, steps: Steps) -> Erasure:
        """The erasure with these steps."""
        fhir: Any = PostgresErasureStore(SteppingDatabase(self.database, steps), BASE)  # type: ignore[arg-type]
        inbox: Any = PostgresMessageErasure(SteppingDatabase(self.inbox_database, steps), BASE)  # type: ignore[arg-type]
        fhir, inbox = Stepping(fhir, steps), Stepping(inbox, steps)
        return Erasure(fhir, inbox, KEY, lambda: datetime.now(UTC))

    async def visible(self) -> list[str]:
        """What FHIR clients see of the patient."""
        return sorted([*await self.found("Patient?_id=x"), *await self.found("Observation?subject=Patient/x")])

    async def world_again(self) -> None:
        """The databases as at the beginning."""
        for database in (self.database, self.inbox_database):
            await database.close()
        await self.setUp()
        await self.fill()

    async def test_a_crash_at_any_step(self) -> None:
        """Until the last commit FHIR clients see all, then nothing; the receipt counts both runs.

        `every`: crashes at the last two steps, and at every so many-th before.
        """
        chosen: dict[str, Any] = {"redact": frozenset("*"), "shared_messages": True}
        await self.fill()
        steps = Steps()
        whole = await self.forget(self.interrupted(steps), **chosen)
        expected = await self.state()
        self.assertGreater(steps.count, 30)
        for last in sorted({*range(1, steps.count, self.every), steps.count - 1, steps.count}):
            await self.world_again()
            before = await self.visible()
            self.assertEqual(len(before), 3)
            with self.assertRaises(Interrupted):
                await self.forget(self.interrupted(Steps(last)), **chosen)
            is_done = last == steps.count
            self.assertEqual(await self.visible(), [] if is_done else before, last)
            if not is_done:
                receipt = await self.forget(**chosen)
                self.assertEqual(receipt.counts, whole.counts, last)
            self.assertEqual(await self.state(), expected, last)
            total, (stored,) = await self.erasure.receipts("default", 10, 0)
            self.assertEqual(
                (total, concerns(stored, "Patient/x"), is_genuine(stored, KEY.public_key)), (1, True, True)
            )

    async def test_a_writer_that_has_looked(self) -> None:
        """It saw the Patient, and writes about him: the erasure waits for it, and looks again."""
        looked, go_on = Deferred[None](), Deferred[None]()

        class Waiting(PostgresFhirStore):
            @asynccontextmanager
            async def transaction(self) -> AsyncIterator[FhirTransaction]:
                async with super().transaction() as transaction:
                    yield WaitingTransaction(transaction, looked, go_on)

        own, later = hl7("K", "4711^^^A^MR"), hl7("L", "4711^^^A^MR")
        await self.inbox.store([own])
        await self.wrote(own, "x")
        plan = await self.erasure.plan(ErasureRequest("default", "x"))
        writer = World(Waiting(self.database), now=datetime.now(UTC))
        late = observation("late", "x")
        writing = Deferred.fromCoroutine(writer.send("PUT", "Observation/late", late))
        await looked
        erasing = Deferred.fromCoroutine(self.erasure.forget(ErasureRequest("default", "x", "o", "r", plan.confirm)))
        await self.is_waiting()
        self.assertEqual(await self.message_ids(), [])
        await self.inbox.store([later])
        go_on.callback(None)
        self.assertEqual((await writing).status, 201)
        receipt = await erasing
        self.assertEqual(await self.names(), ["Observation/oy", "Patient/y", "Patient/y"])
        self.assertEqual([receipt.counts[name] for name in ("resources.Observation", "messages")], [2, 2])
        self.assertEqual(await self.message_ids(), [])

    async def test_a_patient_who_is_written_about_all_the_time(self) -> None:
        """The erasure ends with a refusal; all of him is still there, and a later one goes on."""
        written: list[str] = []
        erasure = self.interrupted(Steps())
        store: Any = erasure._fhir._store  # type: ignore[attr-defined]
        remove = store.remove

        async def removing(*arguments: Any) -> None:
            written.append(f"late{len(written)}")
            await self.put(observation(written[-1], "x"))
            await remove(*arguments)

        store.remove = removing
        plan = await erasure.plan(ErasureRequest("default", "x"))
        asked = Deferred.fromCoroutine(erasure.forget(ErasureRequest("default", "x", "o", "r", plan.confirm)))
        problem = await self.assertFailure(asked, Problem)
        self.assertIn("meanwhile", problem.text)
        self.assertEqual(len(await self.found("Observation?subject=Patient/x")), 1 + ROUNDS)
        receipt = await self.forget()
        self.assertEqual(receipt.counts["resources.Observation"], 1 + ROUNDS)
        self.assertEqual((await self.erasure.receipts("default", 10, 0))[0], 1)

    async def test_a_writer_during_the_erasure(self) -> None:
        """It waits, and finds nothing of the patient: his next resource is a new one."""
        steps = Steps()
        plan = await self.erasure.plan(ErasureRequest("default", "x"))
        started: list[Any] = []

        def write(sql: str) -> None:
            if sql.startswith("DELETE FROM subscription_events"):  # within the transaction of the FHIR database
                sent = self.world.send("PUT", "Patient/x", patient_of("x", "4711", active=False))
                started.append(Deferred.fromCoroutine(sent))

        steps.at_each = write
        await self.interrupted(steps).forget(ErasureRequest("default", "x", "o", "r", plan.confirm))
        (writing,) = started
        self.assertEqual((await writing).status, 201)
        self.assertEqual(await self.names(), ["Observation/oy", "Patient/x", "Patient/y", "Patient/y"])

    async def is_waiting(self) -> None:
        """Until a transaction waits for an advisory lock."""
        query = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        await until(lambda: self.database.all_tenants.many(query), "a transaction waits")

    async def state(self) -> Any:
        """What does not depend on times and numbers."""
        subjects = [json.loads(body)["subject"] for body in await self.bodies("both")]
        return (
            await self.names(), subjects, await self.message_ids(),
            {table: len(rows) for table, rows in (await self.rows()).items()},
        )  # fmt: skip
