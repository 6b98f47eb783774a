"""What `ports.CreatorGrants` promises."""

from __future__ import annotations

from ipf.ports import Caller, SubscriptionCreator
from ipf.ports.grants import CreatorGrants
from tests.contracts.resources import Writing, change

ADA = Caller("ada", "app", ("system/Subscription.crus", "patient/Patient.rs"), "north", "p1", "Patient/p1", "https://idp")


class GrantsContract(Writing):
    """Mixed into a case that sets `self.store` and `self.grants` in `setUp`."""

    grants: CreatorGrants

    async def test_whoever_wrote_last(self) -> None:
        """Nobody without a token; the caller as the token said; a later one takes its place; other tenants see none."""
        rid = await self.subscribe("s1")
        self.assertIsNone(await self.grants.creator("default", "s1"))
        resource = {"resourceType": "Subscription", "id": "s1", "status": "active", "criteria": "Patient?"}
        for number, who in enumerate([ADA, Caller("bob", "", (), issuer="https://idp")], 2):
            creator = SubscriptionCreator("default", rid, who)
            written = change(rid, resource, number, resource)
            await self.write(written, subscriptions_change=True, creators=[creator])
            self.assertEqual(await self.grants.creator("default", "s1"), who)
        self.assertIsNone(await self.grants.creator("north", "s1"))
        self.assertIsNone(await self.grants.creator("default", "s2"))
