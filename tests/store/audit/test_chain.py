"""The hash chains of the audit trail on PostgreSQL: order, several sequencers, lost records, retention."""

from __future__ import annotations

from datetime import timedelta

from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from ipf.pipeline.maintenance.audit_chain import AuditChain
from ipf.ports.audit.chain import COLUMNS, ChainFilter, Link
from ipf.ports.audit.records import ADMIN, Audit
from ipf.security.audit.chain import digest_of, genesis, hash_of, is_signed
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.audit.chain import PostgresAuditChain
from tests import postgres
from tests.audit_chains import KEY, NOON, chain_some
from tests.contracts.audit import audit

ALL = ChainFilter()


class ChainTests(TestCase):
    """On an empty database."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir")
        self.trail = PostgresAuditStore(self.database)
        self.store = PostgresAuditChain(self.database)
        self.time = NOON
        self.chain = AuditChain(self.store, KEY, lambda: self.time)
        await self.chain.start()

    async def write(self, *audits: Audit) -> None:
        """Store and chain records."""
        await self.trail.append(audits)
        while await self.chain.step():
            pass

    async def intact(self) -> list[Link]:
        """All links; fails unless each follows the one before and fits its record."""
        installation = await self.store.installation()
        last: dict[tuple[str, str], Link] = {}
        found = await self.store.links(ALL, 0, 10_000)
        for link, record in found:
            before = last.get(link.chain)
            number = 1 if before is None or before.day != link.day else before.number + 1
            assert record is not None
            self.assertEqual(set(record), set(COLUMNS))
            self.assertEqual((link.number, link.id, link.recorded_at), (number, record["id"], record["recorded_at"]))
            self.assertEqual(link.digest, digest_of(record))
            previous = genesis(installation, link.chain) if before is None else before.hash
            self.assertEqual(link.hash, hash_of(previous, link))
            last[link.chain] = link
        return [link for link, _ in found]

    async def test_chains_of_tenants_and_surfaces(self) -> None:
        await self.write(audit(1), audit(2, tenant="north"), audit(3, surface=ADMIN), audit(4))
        links = await self.intact()
        self.assertEqual([(one.position, *one.chain, one.number) for one in links], [
            (1, "default", "fhir", 1), (2, "north", "fhir", 1), (3, "default", "admin", 1), (4, "default", "fhir", 2),
        ])  # fmt: skip
        self.assertEqual(await self.store.backlog(), (0, None))
        wanted = ChainFilter("default", "fhir")
        self.assertEqual([one.link.position for one in await self.store.links(wanted, 1, 9)], [4])

    async def test_the_record_as_stored_is_what_the_digest_covers(self) -> None:
        await self.write(audit(1, target='x"\\\n\u00e9\u2028', entities=(), agent="o'Neil {}"), audit(2, target=None))
        await self.intact()
        for column in COLUMNS:
            if column in ("partition_id", "recorded_at", "id"):
                continue
            before = {one.link.id: digest_of(one.record or {}) for one in await self.store.links(ALL, 0, 9)}
            kind = {"outcome": "8", "status": "1", "duration_ms": "7"}.get(column, "'other'")
            value = "ARRAY['z']" if column in ("entities", "patients", "keys", "purpose") else kind
            value = "'[1]'" if column == "origin" else value
            await self.database.many(f"UPDATE audit_records SET {column} = {value} WHERE id = '{audit(1).id}'")
            after = {one.link.id: digest_of(one.record or {}) for one in await self.store.links(ALL, 0, 9)}
            self.assertNotEqual(before.pop(audit(1).id), after.pop(audit(1).id), column)
            self.assertEqual(before, after)

    async def test_days_follow_each_other_and_end_with_a_head(self) -> None:
        await self.write(audit(1), audit(2))
        self.time += timedelta(days=2)
        await self.write(audit(3))
        self.time -= timedelta(days=1)  # the clock goes back
        await self.write(audit(4))
        links = await self.intact()
        self.assertEqual([(one.day, one.number) for one in links], [
            ("2026-02-01", 1), ("2026-02-01", 2), ("2026-02-03", 1), ("2026-02-03", 2),
        ])  # fmt: skip
        _, heads = await self.store.heads(ALL, 10, 0)
        (ended,) = [one for one in heads if one.reason == "day"]
        self.assertEqual((ended.day, ended.number, ended.hash), ("2026-02-01", 2, links[1].hash))
        self.assertTrue(is_signed(ended, KEY.public_key))

    async def test_heads_each_hour_and_at_the_stop(self) -> None:
        await self.write(audit(1))
        await self.write(audit(2))
        self.assertEqual([one.number for one in (await self.store.heads(ALL, 9, 0))[1]], [1])
        self.time += timedelta(hours=1, seconds=1)
        await self.write()
        await self.write(audit(3))
        self.assertEqual([one.number for one in (await self.store.heads(ALL, 9, 0))[1]], [2, 1])
        await self.trail.append([audit(4)])
        for _ in range(2):  # a second stop has nothing to sign
            await self.chain.stop()
        total, heads = await self.store.heads(ALL, 9, 0)
        self.assertEqual((total, [one.number for one in heads]), (3, [4, 2, 1]))
        self.assertTrue(all(is_signed(one, KEY.public_key) for one in heads))
        self.assertEqual([one.public_key for one in await self.store.keys()], [KEY.public_key])

    async def test_a_record_that_vanished_before_it_was_chained_has_a_place(self) -> None:
        await self.trail.append([audit(1), audit(2), audit(3)])
        await self.database.many(f"DELETE FROM audit_records WHERE id = '{audit(2).id}'")
        await self.write()
        found = await self.store.links(ALL, 0, 9)
        self.assertEqual([one.link.digest is None for one in found], [False, True, False])
        self.assertEqual(found[1].link.id, audit(2).id)
        self.assertEqual(found[2].link.hash, hash_of(found[1].link.hash, found[2].link))

    async def test_several_sequencers_and_writers(self) -> None:
        others = [AuditChain(PostgresAuditChain(self.database), KEY, lambda: NOON) for _ in range(3)]
        for first in range(0, 200, 20):
            work = [Deferred.fromCoroutine(chain.step()) for chain in (self.chain, *others)]
            records = [audit(number, surface=ADMIN if number % 3 else "fhir") for number in range(first, first + 20)]
            work += [Deferred.fromCoroutine(self.trail.append(some)) for some in (records[::2], records[1::2])]  # type: ignore[arg-type]
            await gatherResults(work)  # type: ignore[arg-type]
        await self.write()
        self.assertEqual([one.position for one in await self.intact()], [*range(1, 201)])

    async def test_a_batch_that_fails_leaves_its_records_waiting(self) -> None:
        await self.trail.append([audit(1), audit(2)])

        def fails(*_: object) -> tuple[list[Link], list[object]]:
            raise RuntimeError("killed")

        with self.assertRaises(RuntimeError):
            await self.store.take_up(10, fails)  # type: ignore[arg-type]
        self.assertEqual((await self.store.backlog())[0], 2)
        self.assertEqual(await chain_some(self.database, 1), 1)
        self.assertEqual(await chain_some(self.database, 10), 1)
        self.assertEqual(len(await self.intact()), 2)

    async def test_retention_leaves_a_signed_head(self) -> None:
        await self.write(*[audit(number) for number in range(6)], audit(9, surface=ADMIN))
        self.time += timedelta(hours=2)
        await self.write(audit(2, id_suffix="7000-8000-00000000aaaa"))  # came late
        before = audit(4).recorded_at
        await self.chain.retire(before)
        removed = await self.trail.purge(before, 100)
        self.assertEqual((removed, await self.chain.remove_links(2), await self.chain.remove_links(9)), (5, 2, 1))
        found = await self.store.links(ChainFilter(surface="fhir"), 0, 99)
        self.assertEqual([(one.link.number, one.record is None) for one in found], [
            (4, True), (5, False), (6, False), (7, True),
        ])  # fmt: skip
        _, heads = await self.store.heads(ChainFilter(surface="fhir"), 9, 0)
        (head,) = [one for one in heads if one.reason == "retention"]
        self.assertEqual((head.number, head.hash, head.before), (4, found[0].link.hash, before.isoformat()))
        self.assertTrue(is_signed(head, KEY.public_key))
        await self.write(audit(10))
        self.assertEqual([one.link.position for one in await self.store.links(ALL, 0, 99)], [4, 5, 6, 7, 8, 9])

    async def test_export_of_days(self) -> None:
        await self.write(audit(1), audit(2))
        for number in (3, 4):
            self.time += timedelta(days=1)
            await self.write(audit(number))
        wanted = ChainFilter("default", "fhir", "2026-02-02", "2026-02-02")
        self.assertEqual([one.link.position for one in await self.store.links(wanted, 0, 9)], [3])
        self.assertEqual([one.number for one in await self.store.anchors(wanted)], [2])
        self.assertEqual(await self.store.anchors(ALL), [])
        self.assertEqual(await self.store.unlinked(ALL, "2026-01-01", 9), ([], "2026-01-31"))
        self.assertEqual(await self.store.unlinked(ALL, "2026-01-31", 9), ([], None))
        await self.trail.append([audit(5)])
        self.assertEqual(await self.store.unlinked(ALL, "2026-01-31", 9), ([], None))  # it waits
        await self.database.many("DELETE FROM audit_unchained")
        (found,), _ = await self.store.unlinked(wanted, "2026-01-31", 9)
        self.assertEqual(found["id"], audit(5).id)
