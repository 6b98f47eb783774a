"""The consistent point and the figures of a backup, on a real PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from twisted.internet import defer, reactor
from twisted.trial.unittest import TestCase

from ipf.ports import Received
from ipf.store.backup.content import (
    delivered_without_effect,
    differing_blocks,
    message_blocks,
    table_counts,
    torn_messages,
)
from ipf.store.backup.point import consistent_point
from ipf.store.backup.programs import programs_for
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.postgres.connect import connect
from ipf.store.postgres.connection import Connection
from ipf.store.postgres.database import Database
from tests import postgres
from tests.waiting import turns


def message(number: int) -> Received:
    """A message."""
    return Received(str(uuid4()), datetime.now(UTC), "LAB", f"M{number}", "ADT_A01", b"MSH|%d" % number)


class BackupTests(TestCase):
    async def setUp(self) -> None:
        self.inbox_url, self.fhir_url = await postgres.fresh_url("ipf"), await postgres.fresh_url("fhir")
        self.database = Database(
            self.inbox_url, reactor=reactor, size=2, statements=postgres.STATEMENTS["ipf"], **postgres.PATIENT
        )
        await self.database.start()
        self.addCleanup(lambda: defer.Deferred.fromCoroutine(self.database.close()))
        self.inbox = PostgresInbox(self.database)
        self.rows, self.fhir = await self._connected(self.inbox_url), await self._connected(self.fhir_url)

    async def _connected(self, url: str) -> Connection:
        connection = await connect(url, reactor=reactor, connect_seconds=postgres.PATIENT["connect_seconds"])
        self.addCleanup(connection.close)
        return connection

    async def _delivered(self, number: int, receipt: str = "") -> str:
        """A delivered message; its correlation id."""
        one = message(number)
        await self.inbox.store([one])
        await self.rows.run(
            "UPDATE message_states SET status = 'DELIVERED', delivered_at = now(), map_url = 'urn:map'"
            f" WHERE id = (SELECT id FROM message_bodies WHERE source_id = '{one.source_id}')"
        )
        if receipt:
            key = receipt.format(one.correlation_id)
            await self.fhir.run(f"INSERT INTO receipts VALUES (1, '{key}', '{one.correlation_id}')")
        return str(UUID(one.correlation_id))

    async def test_the_point_excludes_what_is_stored_while_it_is_taken(self) -> None:
        """A transaction that inserts is waited for; later messages are stored at once, and are not in the snapshot."""
        await self._delivered(1, "message/{}")
        async with self.database.session() as session:
            await self.inbox.store_in(session, [message(2)])
            point = consistent_point(self.inbox_url, self.fhir_url, reactor)
            entering = defer.Deferred.fromCoroutine(point.__aenter__())
            await self._until_waiting()
            self.assertFalse(entering.called)
            await session.commit("SELECT 1")
        found = await entering
        await self.inbox.store([message(3)])
        self.assertEqual([one.rows for one in await message_blocks(found.inbox.connection)], [2])
        self.assertEqual([one.rows for one in await message_blocks(self.rows)], [3])
        self.assertRegex(found.inbox.snapshot, r"^[0-9A-F-]+$")
        await point.__aexit__(None, None, None)

    async def _until_waiting(self) -> None:
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'ShareLock'"
        while (await self.rows.run(waiting))[0][0] == 0:
            await turns(1)

    async def test_a_delivered_message_without_effect_is_found(self) -> None:
        """A receipt, or a resource of the message, is an effect; a message that was passed through needs none."""
        await self._delivered(1, "message/{}")
        by_resource, missing = await self._delivered(2), await self._delivered(3)
        passed = await self._delivered(4)
        await self.rows.run(
            "UPDATE message_states SET map_url = NULL WHERE id ="
            f" (SELECT id FROM message_bodies WHERE correlation_id = '{passed}')"
        )
        version = f"(1, 1, 1, now(), 'POST', false, '{by_resource}', '')"
        await self.fhir.run(f"INSERT INTO resource_versions VALUES {version}")
        total, found = await delivered_without_effect(self.rows, self.fhir)
        self.assertEqual(total, 3)
        ((wanted,),) = await self.rows.run(f"SELECT id FROM message_bodies WHERE correlation_id = '{missing}'")
        self.assertEqual([one.id for one in found], [wanted])

    async def test_a_further_conversion_has_a_receipt_of_its_own(self) -> None:
        await self._delivered(1, "message/{}")
        await self.rows.run(
            "INSERT INTO message_states (id, tenant, status, received_at, ready_at, delivered_at, original_id, map_url)"
            " SELECT id + 1, tenant, status, received_at, now(), now(), id, map_url FROM message_states"
        )
        total, found = await delivered_without_effect(self.rows, self.fhir)
        self.assertEqual((total, len(found)), (2, 1))
        key = "SELECT 'message/' || correlation_id || '/conversion/' || id + 1 FROM message_bodies"
        await self.fhir.run(f"INSERT INTO receipts SELECT 1, '{(await self.rows.run(key))[0][0]}', gen_random_uuid()")
        self.assertEqual((await delivered_without_effect(self.rows, self.fhir))[1], [])

    async def test_messages_that_are_missing_or_changed_are_found(self) -> None:
        await self.inbox.store([message(number) for number in range(5)])
        wanted = await message_blocks(self.rows)
        self.assertEqual(list(differing_blocks(wanted, await message_blocks(self.rows))), [])
        await self.rows.run("UPDATE message_bodies SET raw_message = 'MSH|x' WHERE source_id = 'M3'")
        (found,) = differing_blocks(wanted, await message_blocks(self.rows))
        self.assertIn("5 are there, but not all with their content", found)
        await self.rows.run("DELETE FROM message_bodies WHERE source_id = 'M3'")
        (found,) = differing_blocks(wanted, await message_blocks(self.rows))
        self.assertIn("4 of 5 are there", found)
        self.assertEqual(await torn_messages(self.rows), (0, 1))
        self.assertIn("none should be", next(differing_blocks([], wanted)))

    async def test_every_table_is_counted(self) -> None:
        """Partitions instead of the tables that they belong to."""
        counts = await table_counts(self.fhir)
        self.assertIn("audit_records_default", counts)
        self.assertNotIn("audit_records", counts)
        self.assertEqual((counts["partitions"], counts["receipts"]), (1, 0))

    async def test_programs_are_not_older_than_the_server(self) -> None:
        programs = await programs_for(18, reactor)
        self.assertGreaterEqual(programs.major, 18)
        failing: Any = defer.Deferred.fromCoroutine(programs_for(99, reactor))
        problem = await self.assertFailure(failing, Exception)
        self.assertIn("install postgresql-client-99", str(problem))
