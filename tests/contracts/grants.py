"""The contract of `ports.CreatorGrants`."""

from __future__ import annotations

from dataclasses import replace

from ipf.ports import Caller, Json, SubscriptionCreator
from ipf.ports.grants import CreatorGrants
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
        """None without a token; each with its latest grants; after a new endpoint its writer only; by tenant."""
        rid = await self.subscribe("s1")
        self.assertEqual(await self.grants.writers("default", "s1", 1), [])
        again = replace(ADA, scopes=("system/Subscription.crus",), patient=None)
        steps: list[tuple[Caller, bool, list[Caller]]] = [
            (ADA, True, [ADA]),
            (BOB, False, [ADA, BOB]),
            (again, False, [again, BOB]),
            (replace(ADA, client="other"), False, [again, BOB, replace(ADA, client="other")]),
            (BOB, True, [BOB]),
        ]
        for number, (who, begins, expected) in enumerate(steps, 2):
            creator = SubscriptionCreator("default", rid, who, begins)
            written = change(rid, RESOURCE, number, RESOURCE)
            await self.write(written, subscriptions_change=True, creators=[creator])
            found = await self.grants.writers("default", "s1", number) or []
            self.assertEqual(len(found), len(expected))
            self.assertEqual(set(found), set(expected))
        for tenant, id, version in (("north", "s1", 6), ("default", "s2", 1), ("default", "s1", 5)):
            self.assertIsNone(await self.grants.writers(tenant, id, version))
