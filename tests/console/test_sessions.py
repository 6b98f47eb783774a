"""Sessions: how they begin and end, roles, cookies, tokens against forged requests."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.config.console import ConsoleSettings
from ipf.console.people.sessions import MOST, MOST_OF_PERSON, Sessions, cookie, cookies_of, is_genuine, role_of
from ipf.wire.admin.route import Role

SETTINGS = ConsoleSettings(idle_minutes=30, session_hours=12)


class SessionTests(TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.sessions = Sessions(SETTINGS, self.clock.seconds)

    def test_it_ends_after_idle_minutes(self) -> None:
        session = self.sessions.begin("u1", "Ada", Role.ADMIN)
        self.clock.advance(29 * 60)
        self.assertIs(self.sessions.find(session.id), session)
        self.clock.advance(30 * 60 + 1)
        self.assertIsNone(self.sessions.find(session.id))

    def test_it_ends_after_hours_however_busy(self) -> None:
        session = self.sessions.begin("u1", "Ada", Role.ADMIN)
        for _ in range(12 * 6):
            self.assertIsNotNone(self.sessions.find(session.id))
            self.clock.advance(600)
        self.clock.advance(1)
        self.assertIsNone(self.sessions.find(session.id))

    def test_signing_out_ends_it(self) -> None:
        session = self.sessions.begin("u1", "Ada", Role.ADMIN)
        self.sessions.end(session)
        self.assertIsNone(self.sessions.find(session.id))

    def test_ids_and_tokens_are_never_the_same(self) -> None:
        made = [self.sessions.begin("u1", "Ada", Role.ADMIN) for _ in range(50)]
        self.assertEqual(len({one.id for one in made} | {one.csrf for one in made}), 100)

    def test_the_name_in_the_audit_trail(self) -> None:
        for person, name, actor in [("u1", "Ada", "Ada (u1)"), ("ada", "ada", "ada"), ("u1", "", "u1")]:
            self.assertEqual(self.sessions.begin(person, name, Role.ADMIN).actor, actor)

    def test_the_oldest_makes_room(self) -> None:
        first = self.sessions.begin("u0", "first", Role.VIEWER)
        for number in range(MOST):
            self.clock.advance(0.001)
            self.sessions.begin(f"u{number}", "x", Role.VIEWER)
        self.assertIsNone(self.sessions.find(first.id))

    def test_one_person_takes_no_room_of_others(self) -> None:
        other = self.sessions.begin("u1", "Ada", Role.ADMIN)
        mine = []
        for _ in range(MOST + 10):
            self.clock.advance(0.001)
            mine.append(self.sessions.begin("u2", "Bob", Role.VIEWER))
        self.assertIsNotNone(self.sessions.find(other.id))
        self.assertEqual(sum(self.sessions.find(one.id) is not None for one in mine), MOST_OF_PERSON)
        self.assertIsNotNone(self.sessions.find(mine[-1].id))

    def test_the_token_against_forged_requests(self) -> None:
        session = self.sessions.begin("u1", "Ada", Role.ADMIN)
        for given, expected in [(session.csrf, True), ("", False), (session.csrf[:-1], False), ("\udcff", False)]:
            self.assertEqual(is_genuine(session, given), expected)


class RoleTests(TestCase):
    def test_the_highest_role_counts(self) -> None:
        for values, role in [
            (["ipf-viewer"], Role.VIEWER), (["x", "ipf-operator", "ipf-viewer"], Role.OPERATOR),
            (["ipf-admin"], Role.ADMIN), ([], None), (["IPF-ADMIN", "admin"], None),
        ]:  # fmt: skip
            self.assertEqual(role_of(values, SETTINGS), role)


class CookieTests(TestCase):
    def test_attributes(self) -> None:
        self.assertEqual(cookie("ipf", "x", False)[1], "ipf=x; Path=/; HttpOnly; SameSite=Lax")
        self.assertEqual(
            cookie("__Host-ipf", "", True, seconds=0)[1],
            "__Host-ipf=; Path=/; HttpOnly; SameSite=Lax; Secure; Max-Age=0",
        )

    def test_reading(self) -> None:
        for header, found in [("a=1; b=2", {"a": "1", "b": "2"}), ("", {}), ("\0=;;", {})]:
            self.assertEqual(cookies_of({"cookie": header}), found)
