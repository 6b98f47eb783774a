"""The contract of `ports.CreatorGrants`."""

from __future__ import annotations

from dataclasses import replace

from ipf.ports import OPEN, Caller, Json, Lookup, NewEvent, SubscriptionCreator
from ipf.ports.grants import CreatorGrants, Writer
from tests.contracts.resources import Writing, change

ADA = Caller(
    "ada", "app", ("system/Subscription.crus", "patient/Patient.rs"), "north", "p1", "Patient/p1", "https://idp"
)
BOB = Caller("bob", "", (), issuer="https://idp")
RESOURCE: Json = {"resourceType": "Subscription", "id": "s1", "status": "active", "criteria": "Patient?"}


class GrantsContract(Writing):
    """Tests for a subclass that sets `self.store` and `self.grants` in `setUp`."""

    grants: CreatorGrants

    async def test_writers(self) -> None:
        """None without a token; the creator only, with its latest grants; by tenant."""
        rid = await self.subscribe("s1")
        self.assertEqual(await self.grants.writers("default", "s1", 1), ())
        again = replace(ADA, scopes=("system/Subscription.crus",), patient=None)
        other = replace(ADA, client="other")
        steps: list[tuple[Caller, bool, list[Writer]]] = [
            (ADA, True, [Writer(ADA, 0, True)]),
            (again, False, [Writer(again, 0, True)]),
            (BOB, False, [Writer(BOB, 2)]),
            (other, True, [Writer(other, 3, True)]),
            (BOB, True, [Writer(BOB, 4, True)]),
            (OPEN, True, []),
            (ADA, False, [Writer(ADA, 6)]),
            (again, True, [Writer(again, 6, True)]),
        ]
        for number, (who, owns, expected) in enumerate(steps, 2):
            creator = SubscriptionCreator("default", rid, who, owns=owns)
            written = change(rid, RESOURCE, number, RESOURCE)
            await self.write(written, subscriptions_change=True, creators=[creator], events=[NewEvent(rid, 0)])
            found = await self.grants.writers("default", "s1", number) or []
            self.assertEqual(len(found), len(expected))
            self.assertEqual(set(found), set(expected))
            async with self.store.transaction() as transaction:
                await transaction.look_up(Lookup())
                (active,) = list((await transaction.changes_since(-1)).subscriptions)
            self.assertEqual(set(active.writers), {writer.caller for writer in expected})
            self.assertEqual(active.owner, next((writer.caller for writer in expected if writer.owns), None))
        for tenant, id, version in (("north", "s1", 9), ("default", "s2", 1), ("default", "s1", 8)):
            self.assertIsNone(await self.grants.writers(tenant, id, version))
