"""Retention keeps what concerns a patient under a legal hold, and removes the same of another patient."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.retention import PostgresPruner
from ipf.store.inbox.text_search import TAIL
from ipf.store.resources.resources import PostgresFhirStore
from tests import postgres
from tests.pipeline.maintenance.erasures import hl7, observation, patient_of
from tests.rest.world import OnPostgres, World

NOW = datetime.now(UTC)
BEFORE = NOW - timedelta(days=10)
OLD = "now() - interval '40 days'"


class LegalHoldTests(OnPostgres):
    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir")
        self.inbox = await postgres.database(self, "ipf")
        self.world = World(PostgresFhirStore(self.database), database=self.database)
        self.world.now = NOW - timedelta(days=40)
        for id_, number in (("x", "4711"), ("y", "4712")):
            for active in (True, False):
                await self.put(patient_of(id_, number, active=active))
                await self.put(observation(f"o{id_}", id_, language=f"x-{active}".lower()))
            await self.messages(id_, number)
        await self.database.many(
            "INSERT INTO subscription_states (rid, partition_id, id, status, last_event_number, delivered_number)"
            " VALUES (900, 1, 's', 'active', 130, 130); INSERT INTO subscription_events SELECT 900, n, rid, 1,"
            f" {OLD}, gen_random_uuid() FROM resources, generate_series(1, 130) n"
            " WHERE id = CASE WHEN n <= 60 THEN 'ox' ELSE 'oy' END"
        )

    async def put(self, resource: dict[str, object]) -> None:
        """Store a resource."""
        path = f"{resource['resourceType']}/{resource['id']}"
        self.assertIn((await self.world.send("PUT", path, resource)).status, (200, 201))

    async def messages(self, id_: str, number: str) -> None:
        """One that wrote an Observation without his number, one that wrote nothing, a dead letter, a reject."""
        wrote, named, dead = (hl7(f"{kind}-{id_}", cx) for kind, cx in (("W", "1"), ("N", number), ("D", number)))
        await PostgresInbox(self.inbox).store([wrote, named, dead])
        await self.inbox.many(
            f"UPDATE message_states SET status = 'DELIVERED', received_at = {OLD}, delivered_at = {OLD},"
            f" last_attempt_at = {OLD}; UPDATE message_states s SET status = 'DEAD_LETTER' FROM message_bodies b"
            " WHERE b.id = s.id AND b.source_id LIKE 'D-%';"
            "INSERT INTO rejects (tenant, received_at, correlation_id, listener, peer, reason, size, raw)"
            f" VALUES ('default', {OLD}, gen_random_uuid(), 'l', 'p', 'r', 1, 'PID|{number}|{id_}')"
        )
        await self.database.many(
            f"UPDATE resource_versions v SET correlation_id = '{wrote.correlation_id}' FROM resources r"
            f" WHERE r.rid = v.rid AND r.id = 'o{id_}'"
        )

    async def prune(self, *holds: str) -> dict[str, int]:
        """All kinds; the dry run counts the same."""
        pruner, removed = PostgresPruner(self.inbox, self.database, holds), {}
        for kind in pruner.kinds:
            expected, cursor, removed[kind] = await pruner.count(kind, BEFORE), "", 0
            while cursor is not None:
                count, cursor = await pruner.prune(kind, BEFORE, cursor)
                removed[kind] += count
            self.assertEqual(removed[kind], expected, kind)
        return removed

    async def left(self) -> tuple[list[str], list[str], int, int]:
        """Messages, rejects, former versions, events."""
        messages = await self.inbox.many("SELECT source_id FROM message_bodies ORDER BY 1")
        rejects = await self.inbox.many("SELECT encode(raw, 'escape') FROM rejects ORDER BY 1")
        versions = await self.database.one("SELECT count(*) FROM resource_versions WHERE version_id = 1")
        events = await self.database.one("SELECT count(*) FROM subscription_events")
        return [row[0] for row in messages], [row[0] for row in rejects], int(versions[0]), int(events[0])

    async def test_a_held_patient(self) -> None:
        """In every tenant or in his own: all of him stays, nothing of the other one."""
        removed = await self.prune("Patient/x")
        self.assertEqual(
            removed, {"messages": 2, "dead_letters": 1, "rejects": 1, "attempts": 0, "events": 70, "versions": 2}
        )
        kept = ["D-x", "N-x", "W-x"], ["PID|4711|x"], 2, 60
        self.assertEqual(await self.left(), kept)
        await self.prune("default:Patient/x", "Patient/unknown")
        self.assertEqual(await self.left(), kept)
        await self.prune("north:Patient/x")
        self.assertEqual(await self.left(), ([], [], 0, 0))

    async def test_before_the_index(self) -> None:
        """More messages wait for the text index than a search looks at."""
        await self.inbox.many(
            "INSERT INTO message_bodies (tenant, received_at, source_protocol, source_system, source_id, message_type,"
            " correlation_id, listener, charset, raw_content_type, raw_message)"
            " SELECT 'default', now(), 'p', 'F', n, 't', gen_random_uuid(), 'l', 'utf-8', 'x', 'MSH|'"
            f" FROM generate_series(1, {TAIL + 1}) n;"
            "DELETE FROM rejects"
        )
        await self.prune("Patient/x")
        kept = await self.inbox.many("SELECT source_id FROM message_bodies WHERE source_system = 'LAB' ORDER BY 1")
        self.assertEqual([row[0] for row in kept], ["D-x", "N-x", "W-x"])
