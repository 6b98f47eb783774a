"""The contract of `ports.UnmappedCodes` and `ports.MappingStore`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, WriteConflict
from ipf.ports import (
    Claimed,
    Inbox,
    Override,
    OverrideFilter,
    Requeued,
    Status,
    UnmappedCode,
    UnmappedFilter,
    WrongState,
)
from ipf.ports.messages.inbox import EVERY_TENANT
from tests.contracts.inbox import ended, failed, received

WARD = UnmappedCode("urn:ipf:concepts:ward", "W9")
SEX = UnmappedCode("urn:ipf:concepts:sex", "it's \\ X")


class UnmappedCodesContract(TestCase):
    """Tests for a subclass that sets `self.inbox` and `self.codes` in `setUp`."""

    inbox: Inbox
    codes: Any

    async def _delivered(self, *messages: Any, unmapped: tuple[UnmappedCode, ...] = (WARD,)) -> list[Claimed]:
        await self.inbox.store(messages)
        claims = await self.inbox.claim("w", 50)
        kept = await self.inbox.settle([replace(ended(claim), unmapped=unmapped) for claim in claims])
        self.assertTrue(all(kept))
        return claims

    async def _only(self, **wanted: Any) -> Any:
        total, rows = await self.codes.unmapped(UnmappedFilter(**wanted), 50, 0)
        self.assertEqual((total, len(rows)), (1, 1))
        return rows[0]

    async def test_codes_are_recorded_once(self) -> None:
        """One row for each sender, ConceptMap and code, with its messages; none without codes."""
        first = await self._delivered(received("A"), received("B"), unmapped=(WARD, WARD, SEX))
        await self._delivered(received("C"), unmapped=())
        last = await self._delivered(received("D"))
        await self._delivered(received("E", system="OTHER"), received("F", tenant="north"))
        row = await self._only(source_system="LAB", concept_map=WARD.concept_map)
        self.assertEqual(
            (row.source_system, row.code, row.occurrences, row.messages, row.override_id), ("LAB", "W9", 3, 3, None)
        )
        self.assertLessEqual(row.first_seen, row.last_seen)
        self.assertEqual(await self.codes.message_ids(row.id, 50), [last[0].id, first[1].id, first[0].id])
        self.assertEqual(await self.codes.message_ids(row.id, 1), [last[0].id])
        self.assertEqual((await self._only(code=SEX.code)).occurrences, 2)
        total, rows = await self.codes.unmapped(UnmappedFilter(), 2, 0)
        self.assertEqual((total, len(rows)), (3, 2))
        self.assertEqual((await self._only(tenant="north")).messages, 1)
        self.assertEqual(await self.codes.unmapped_code(row.id), row)
        self.assertIsNone(await self.codes.unmapped_code(row.id + 99))

    async def test_overrides(self) -> None:
        """For one sender or for all; a second one replaces the first; every change increases the epoch."""
        await self._delivered(received())
        before = await self.codes.epochs()
        made = await self.codes.set_override(Override("LAB", WARD.concept_map, "W9", "urn:x", "ward", "Ward 9"))
        self.assertEqual((await self._only(has_override=True)).override_id, made.id)
        again = await self.codes.set_override(Override("LAB", WARD.concept_map, "W9", "urn:x", "icu", None))
        self.assertEqual((again.id, again.target_code, again.target_display), (made.id, "icu", None))
        general = await self.codes.set_override(Override("", WARD.concept_map, "W9", None, None, None))
        self.assertEqual((await self.codes.epochs())[0], before[0] + 3)
        self.assertEqual((await self.codes.epochs())[1], before[1])
        total, rows = await self.codes.overrides(OverrideFilter(code="W9"), 1, 0)
        self.assertEqual((total, [row.id for row in rows]), (2, [general.id]))
        self.assertEqual(len(await self.codes.all_overrides()), 2)
        self.assertEqual(await self.codes.override(made.id), again)
        await self.codes.delete_override(made.id)
        self.assertEqual((await self._only()).override_id, general.id)
        await self.codes.delete_override(general.id)
        self.assertIsNone((await self._only(has_override=False)).override_id)
        await self._refused(self.codes.delete_override(made.id))

    async def _refused(self, work: Any, kind: type[Exception] = Problem) -> Any:
        return await self.assertFailure(Deferred.fromCoroutine(work), kind)

    async def test_requeue_makes_further_conversions(self) -> None:
        """The original does not change; the conversion has its bytes, a new id and the required mapping epoch."""
        original = (await self._delivered(received("A", raw=b"MSH|a")))[0]
        code = await self._only()
        await self.codes.set_override(Override("LAB", WARD.concept_map, "W9", "urn:x", "icu", None))
        self.assertEqual(await self.codes.requeue(code.id, following=True), Requeued(1, 0, 0))
        row = await self.inbox.get(original.id)
        assert row is not None
        self.assertEqual(row.status, Status.DELIVERED)
        self.assertEqual((await self.inbox.counts())[Status.RECEIVED], 0)
        claim = (await self.inbox.claim("w", 5))[0]
        self.assertEqual((claim.original_id, claim.raw, claim.source_id), (original.id, b"MSH|a", "A"))
        self.assertEqual((claim.mapping_epoch, claim.correlation_id), (2, original.correlation_id))
        self.assertGreater(claim.id, original.id)
        await self.inbox.settle([replace(ended(claim), unmapped=(SEX,))])
        self.assertEqual(await self.codes.message_ids((await self._only(code=SEX.code)).id, 5), [original.id])
        self.assertEqual((await self._only(code="W9")).messages, 0)
        self.assertEqual(await self.codes.requeue(code.id, following=True), Requeued(0, 0, 0))
        total, rows = await self.codes.conversions("default", original.id, Status.DELIVERED, 5, 0)
        self.assertEqual((total, rows[0].id, rows[0].reason), (1, claim.id, f"unmapped-code/{code.id}"))
        self.assertEqual((await self.codes.conversions("default", original.id + 99, None, 5, 0))[0], 0)
        refused = await self._refused(self.codes.requeue(code.id + 99, following=False))
        self.assertIs(refused.category, Category.NOT_FOUND)

    async def test_older_data_does_not_replace_newer_data(self) -> None:
        """Later messages of the same patient are converted again, in order; messages of other patients are not."""
        claims = await self._delivered(received("A", key=7))
        await self._delivered(received("B", key=7), received("other", key=8), unmapped=())
        await self.inbox.store([received("C", key=7)])
        code = await self._only()
        self.assertEqual(await self.codes.requeue(code.id, following=True), Requeued(1, 2, 0))
        order = []
        while found := await self.inbox.claim("w", 1):
            order += [claim.source_id for claim in found]
            await self.inbox.settle([ended(claim) for claim in found])
        self.assertEqual(order, ["C", "A", "B", "C"])
        self.assertEqual((await self.codes.conversions("default", claims[0].id, None, 5, 0))[0], 1)

    async def test_tenants(self) -> None:
        """Rows have a tenant; lists are of one tenant or of all; a requeue is limited to the tenant of the code."""
        await self._delivered(received("A", key=7), received("B", key=7, tenant="north"))
        default, north = await self._only(), await self._only(tenant="north")
        self.assertEqual((default.tenant, north.tenant), ("default", "north"))
        self.assertEqual((await self.codes.unmapped_code(north.id)), north)
        total, rows = await self.codes.unmapped(UnmappedFilter(tenant=EVERY_TENANT), 50, 0)
        self.assertEqual((total, {row.id for row in rows}), (2, {default.id, north.id}))
        made = await self.codes.set_override(Override("LAB", WARD.concept_map, "W9", "urn:x", "icu", None, "north"))
        self.assertEqual(((await self._only()).override_id, (await self._only(tenant="north")).override_id),
                         (None, made.id))  # fmt: skip
        for tenant, count in (("default", 0), ("north", 1), (EVERY_TENANT, 1)):
            self.assertEqual((await self.codes.overrides(OverrideFilter(tenant=tenant), 5, 0))[0], count, tenant)
        self.assertEqual((await self.codes.override(made.id)).tenant, "north")
        self.assertEqual(await self.codes.requeue(default.id, following=True), Requeued(1, 0, 0))
        for tenant, count in (("default", 1), ("north", 0), (EVERY_TENANT, 1)):
            total, rows = await self.codes.conversions(tenant, None, None, 5, 0)
            self.assertEqual((total, [row.tenant for row in rows]), (count, ["default"] * count), tenant)

    async def test_failed_messages_are_retried(self) -> None:
        """A retry is not a further conversion."""
        await self.inbox.store([received("A")])
        claim = (await self.inbox.claim("w", 5))[0]
        await self.inbox.settle([replace(failed(claim, 60, Status.DEAD_LETTER), unmapped=(WARD,))])
        code = await self._only()
        self.assertEqual(await self.codes.requeue(code.id, following=False), Requeued(0, 0, 1))
        again = (await self.inbox.claim("w", 5))[0]
        self.assertEqual((again.id, again.original_id, again.mapping_epoch), (claim.id, None, 1))

    async def test_a_conversion_fails_and_is_retried(self) -> None:
        """A dead-lettered conversion is not in the message list; it can be retried or deleted."""
        original = (await self._delivered(received("A")))[0]
        await self.codes.requeue((await self._only()).id, following=True)
        claim = (await self.inbox.claim("w", 5))[0]
        await self._refused(self.codes.retry_conversion(claim.id), WrongState)
        await self.inbox.settle([failed(claim, 60, Status.DEAD_LETTER)])
        self.assertEqual((await self.inbox.unfinished())[Status.DEAD_LETTER], 0)
        self.assertIsNone(await self.inbox.get(claim.id))
        self.assertIs((await self._refused(self.inbox.retry(claim.id))).category, Category.NOT_FOUND)
        self.assertEqual((await self.codes.retry_conversion(claim.id)).status, Status.RECEIVED)
        again = (await self.inbox.claim("w", 5))[0]
        self.assertEqual(again.id, claim.id)
        await self.inbox.settle([failed(again, 60, Status.DEAD_LETTER)])
        await self.codes.delete_conversion(claim.id)
        await self._refused(self.codes.delete_conversion(claim.id))
        await self._refused(self.codes.retry_conversion(original.id))

    async def test_installed_maps(self) -> None:
        """Keyed by url and by id; a change increases the epoch of the maps."""
        before = await self.codes.epochs()
        made = await self.codes.install("ConceptMap", "urn:a", "a", {"resourceType": "ConceptMap", "url": "urn:a"})
        self.assertEqual((made.version, made.resource["url"]), (1, "urn:a"))
        again = await self.codes.install("ConceptMap", "urn:a", "b", {"resourceType": "ConceptMap", "url": "urn:a"})
        self.assertEqual([(one.id, one.version) for one in await self.codes.installed()], [("a", 2)])
        self.assertEqual(await self.codes.epochs(), (before[0] + 2, before[0] + 2))
        await self._refused(self.codes.install("ConceptMap", "urn:b", "a", {"url": "urn:b"}), WriteConflict)
        await self.codes.maps_changed()
        await self.codes.remove("ConceptMap", again.id)
        self.assertEqual(await self.codes.epochs(), (before[0] + 4, before[0] + 4))
        await self._refused(self.codes.remove("ConceptMap", again.id))
