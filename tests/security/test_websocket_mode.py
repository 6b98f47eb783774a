"""Channel security and websockets: in mode strict, only authenticated sessions can bind."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.app.listeners.access import session_without_tokens
from ipf.config.settings import Settings
from ipf.subscriptions.policy import NO_SESSION, ChannelPolicy


class ModeTests(TestCase):
    async def test_binding_without_bearer_tokens(self) -> None:
        for mode, expected in (("strict", False), ("relaxed", True), ("permissive", True)):
            session = await session_without_tokens(Settings(channel_security=mode))(None)
            self.assertEqual(session.may_read({}), expected, mode)
            self.assertEqual(session.refusal, None if expected else NO_SESSION)

    def test_the_registration_says_so(self) -> None:
        """Source: interface specification "Channel security": in mode strict a session must be authenticated."""
        for mode, authenticates, warned in (
            ("strict", False, True), ("strict", True, False), ("relaxed", False, False), ("none", False, True),
        ):  # fmt: skip
            policy = ChannelPolicy(mode, authenticates=authenticates)
            subscription = {"channel": {"type": "websocket"}}
            self.assertEqual(policy.warnings(subscription), [NO_SESSION] if warned else [])
            self.assertEqual(policy.violations(subscription), [])
