"""What a FHIR server elsewhere answered, on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from twisted.trial.unittest import TestCase

from ipf.ports import WrittenVersion
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.remote_effects import PostgresRemoteEffects
from tests import postgres
from tests.contracts.inbox import received

AT = datetime(2026, 1, 2, tzinfo=UTC)


class RemoteEffectsTests(TestCase):
    async def test_a_version_is_recorded_once_and_goes_with_its_message(self) -> None:
        database = await postgres.database(self, "ipf")
        effects, inbox = PostgresRemoteEffects(database), PostgresInbox(database)
        message, other = received(), replace(received(), tenant="west")
        await inbox.store([message, other])
        first = WrittenVersion("Patient", "it's", "1", "created", AT)
        second = WrittenVersion("Patient", "it's", "", "updated", AT)
        await effects.record("default", message.correlation_id, [])
        await effects.record("default", message.correlation_id, [first])
        await effects.record("default", message.correlation_id, [replace(first, action="updated"), second])
        found = (await effects.effects("default", message.correlation_id)).versions
        self.assertEqual(set(found), {first, second})
        for tenant, correlation_id in (("west", message.correlation_id), ("west", other.correlation_id)):
            self.assertEqual((await effects.effects(tenant, correlation_id)).versions, [])
        await effects.record("default", other.correlation_id, [first])
        self.assertEqual((await effects.effects("west", other.correlation_id)).versions, [])
        await database.many("DELETE FROM message_bodies")
        self.assertEqual(await database.many("SELECT 1 FROM remote_effects"), [])
