"""The contract of `ports.ConsentSource`."""

from __future__ import annotations

from typing import Any

from ipf.ports.fhir.consents import ConsentSource
from tests.contracts.resources import Writing, change, patient


def consent(id: str, **elements: Any) -> dict[str, Any]:
    """A Consent that denies."""
    return {"resourceType": "Consent", "id": id, "status": "active", "provision": {"type": "deny"}, **elements}


class ConsentsContract(Writing):
    """Tests for a subclass that sets `self.store` and `self.source` in `setUp`."""

    source: ConsentSource

    async def names(self, since: int) -> list[tuple[str, str | None]]:
        """Tenant, and id of the resource, of the changes."""
        found = await self.source.changes(since)
        return [(one.tenant, None if one.resource is None else str(one.resource["id"])) for one in found]

    async def test_each_commit_with_a_consent_is_a_new_epoch(self) -> None:
        """Changes since an epoch are the Consents of later commits, in their current version."""
        a, b, p = [await self.store.new_rid() for _ in range(3)]
        first = await self.source.epoch()
        await self.write(change(p, patient("p")))
        self.assertEqual(await self.source.epoch(), first)
        await self.write(change(a, consent("a")), change(p, patient("p", active=True), 2, patient("p")))
        second = await self.source.epoch()
        self.assertGreater(second, first)
        await self.write(change(b, consent("b"), tenant="north"))
        self.assertEqual(await self.names(first), [("default", "a"), ("north", "b")])
        self.assertEqual(await self.names(second), [("north", "b")])
        self.assertEqual(await self.names(await self.source.epoch()), [])

    async def test_a_deleted_consent_has_no_resource(self) -> None:
        a = await self.store.new_rid()
        await self.write(change(a, consent("a")))
        known = await self.source.epoch()
        await self.write(change(a, consent("a"), 2, consent("a"), deleted=True))
        self.assertEqual(await self.names(known), [("default", None)])
        self.assertEqual(await self.source.page(0, 10), [])

    async def test_pages_of_all_that_may_deny(self) -> None:
        """In order of rid; several written in one commit are several."""
        a, b, c = [await self.store.new_rid() for _ in range(3)]
        await self.write(change(a, consent("a")), change(b, consent("b")), change(c, consent("c"), tenant="north"))
        first = await self.source.page(0, 2)
        self.assertEqual([(one.rid, one.tenant) for one in first], [(a, "default"), (b, "default")])
        self.assertEqual([one.rid for one in await self.source.page(first[-1].rid, 2)], [c])
