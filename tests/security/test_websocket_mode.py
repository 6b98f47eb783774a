"""Channel security and websockets: in mode strict a session is authenticated, or binds nothing."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.app.listeners import Doors
from ipf.config.settings import Settings


class ModeTests(TestCase):
    async def test_who_may_bind_without_bearer_tokens(self) -> None:
        for mode, expected in (("strict", False), ("relaxed", True), ("permissive", True)):
            doors: Any = Doors.__new__(Doors)
            doors.bearer = None
            doors._settings = Settings(channel_security=mode)
            found = doors._session()
            session = await found(None)
            self.assertEqual(session.may_read({}), expected, mode)
