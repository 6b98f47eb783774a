"""Channel security and websockets: in mode strict, only authenticated sessions can bind."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.app.listeners.access import session_without_tokens
from ipf.config.settings import Settings


class ModeTests(TestCase):
    async def test_binding_without_bearer_tokens(self) -> None:
        for mode, expected in (("strict", False), ("relaxed", True), ("permissive", True)):
            session = await session_without_tokens(Settings(channel_security=mode))(None)
            self.assertEqual(session.may_read({}), expected, mode)
