"""The contract of `ports.BindingTokens`."""

from __future__ import annotations

from datetime import timedelta

from twisted.trial.unittest import TestCase

from ipf.ports import Binding, BindingTokens, Caller
from tests.contracts.clock import CLOCK


class BindingTokensContract(TestCase):
    """Tests for a subclass that sets `self.tokens` in `setUp`."""

    tokens: BindingTokens

    async def test_token_binds_its_subscriptions(self) -> None:
        """Repeatedly, until it expires; an unknown token binds nothing."""
        until = CLOCK() + timedelta(minutes=5)
        token = await self.tokens.issue("default", ["a", "b"], until)
        other = await self.tokens.issue("default", ["c"], until)
        self.assertNotEqual(token, other)
        self.assertGreater(len(token), 30)
        for _ in range(2):
            self.assertEqual(await self.tokens.redeem(token), Binding("default", ("a", "b"), until))
        self.assertIsNone(await self.tokens.redeem(token[:-1]))

    async def test_token_carries_its_caller(self) -> None:
        """With the grants of that caller."""
        until = CLOCK() + timedelta(minutes=5)
        ada = Caller(
            "ada", "app", ("system/Subscription.r", "patient/*.rs"), "default", "p1", "Patient/p1", "https://i"
        )
        token = await self.tokens.issue("default", ["a"], until, ada)
        self.assertEqual(await self.tokens.redeem(token), Binding("default", ("a",), until, ada))

    async def test_an_expired_token_binds_nothing(self) -> None:
        """Also when another is issued after it."""
        past = CLOCK() - timedelta(seconds=1)
        token = await self.tokens.issue("default", ["a"], past)
        self.assertIsNone(await self.tokens.redeem(token))
        await self.tokens.issue("default", ["a"], past)
        self.assertIsNone(await self.tokens.redeem(token))
