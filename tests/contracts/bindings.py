"""What `ports.BindingTokens` promises."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from twisted.trial.unittest import TestCase

from ipf.ports import Binding, BindingTokens, Caller


class BindingTokensContract(TestCase):
    """Mixed into a case that sets `self.tokens` in `setUp`."""

    tokens: BindingTokens

    async def test_a_token_binds_what_it_was_issued_for(self) -> None:
        """As often as it is brought, until it expires; nobody can guess one."""
        until = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=5)
        token = await self.tokens.issue("default", ["a", "b"], until)
        other = await self.tokens.issue("default", ["c"], until)
        self.assertNotEqual(token, other)
        self.assertGreater(len(token), 30)
        for _ in range(2):
            self.assertEqual(await self.tokens.redeem(token), Binding("default", ("a", "b"), until))
        self.assertIsNone(await self.tokens.redeem(token[:-1]))

    async def test_it_speaks_for_whoever_asked_for_it(self) -> None:
        """With the grants that its caller had."""
        until = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=5)
        ada = Caller(
            "ada", "app", ("system/Subscription.r", "patient/*.rs"), "default", "p1", "Patient/p1", "https://i"
        )
        token = await self.tokens.issue("default", ["a"], until, ada)
        self.assertEqual(await self.tokens.redeem(token), Binding("default", ("a",), until, ada))

    async def test_an_expired_token_binds_nothing(self) -> None:
        """Also when another is issued after it."""
        past = datetime.now(UTC) - timedelta(seconds=1)
        token = await self.tokens.issue("default", ["a"], past)
        self.assertIsNone(await self.tokens.redeem(token))
        await self.tokens.issue("default", ["a"], past)
        self.assertIsNone(await self.tokens.redeem(token))
