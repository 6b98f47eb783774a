"""How stale a standby may be, step by step on a clock; and what a real server says of its log."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.ports.replica import Position
from ipf.store.postgres.hosts import hosts_of, standby_url
from ipf.store.postgres.replication import COMMITTED, Lag, position_of
from tests import postgres

SYSTEM = 7
MOST = 2.0


class LagTests(TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.changes = 0
        self.lag = Lag(self.clock.seconds, MOST, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def primary(self, lsn: int, timeline: int = 1, system: int = SYSTEM, asked: float | None = None) -> None:
        """The primary answers now what it was asked now, or at `asked`."""
        when = self.clock.seconds() if asked is None else asked
        self.lag.primary.heard(when, ("off", system, False, timeline, lsn))

    def standby(self, lsn: int | None, timeline: int | None = 1, system: int = SYSTEM) -> None:
        """The standby answers now."""
        self.lag.standby.heard(self.clock.seconds(), ("on", system, True, timeline, lsn))

    def test_an_idle_primary(self) -> None:
        """Nothing is written for hours: each pair of answers makes the standby as fresh as the first of them."""
        for _ in range(1000):
            self.primary(100)
            self.clock.advance(0.25)
            self.standby(100)
            self.assertEqual((self.lag.refusal(None), self.lag.staleness), ("", 0.25))
            self.clock.advance(10)
            self.assertEqual(self.lag.refusal(None), "stale")

    def test_the_moment_counts_in_which_the_primary_was_asked(self) -> None:
        self.clock.advance(5)
        self.primary(100, asked=4.0)
        self.standby(100)
        self.assertEqual(self.lag.staleness, 1.0)

    def test_replay_that_is_behind(self) -> None:
        """It is as stale as the newest sample that it has reached is old."""
        for lsn in (100, 200, 300):
            self.primary(lsn)
            self.standby(150)
            self.clock.advance(0.5)
        self.assertEqual((self.lag.refusal(None), self.lag.staleness), ("", 1.5))  # as of the first sample
        self.standby(200)
        self.assertEqual(self.lag.staleness, 1.0)
        self.standby(1000)
        self.assertEqual(self.lag.staleness, 0.5)

    def test_paused_then_resumed(self) -> None:
        self.primary(100)
        self.standby(100)
        for number in range(40):
            self.clock.advance(0.5)
            self.primary(200 + number)
            self.standby(100)
        self.assertEqual(self.lag.refusal(None), "stale")
        self.standby(230)  # reaches a sample that is too old to be kept
        self.assertEqual(self.lag.refusal(None), "stale")
        self.standby(239)
        self.assertEqual((self.lag.refusal(None), self.lag.staleness), ("", 0.0))

    def test_a_primary_that_is_silent(self) -> None:
        """Nobody knows what it has written since."""
        self.primary(100)
        self.standby(100)
        self.clock.advance(MOST)
        self.standby(100)
        self.assertEqual(self.lag.refusal(None), "")
        self.clock.advance(0.01)
        self.standby(100)
        self.assertEqual(self.lag.refusal(None), "stale")

    def test_a_session_waits_for_its_position(self) -> None:
        self.primary(100)
        self.standby(100)
        table = [
            (None, ""),
            (Position(1, 100), ""),
            (Position(1, 101), "session"),
            (Position(2, 50), "session"),  # of a primary that this process does not know yet
        ]
        for least, expected in table:
            self.assertEqual(self.lag.refusal(least), expected, least)
        self.standby(101)
        self.assertEqual(self.lag.refusal(Position(1, 101)), "")

    def test_a_failover(self) -> None:
        """The standby of the former primary may have what the new one lacks; on the new timeline it counts again."""
        self.primary(1000)
        self.standby(1000)
        self.primary(950, timeline=2)
        self.assertEqual(self.lag.refusal(None), "unrelated")
        self.standby(1000)
        self.assertEqual(self.lag.refusal(None), "unrelated")
        self.standby(950, timeline=2)
        self.assertEqual(self.lag.refusal(None), "")
        self.assertEqual(self.lag.refusal(Position(1, 900)), "", "written before the failover")

    def test_what_is_no_standby_of_the_primary(self) -> None:
        self.primary(100)
        cases: list[tuple[Any, ...]] = [
            ("on", SYSTEM + 1, True, 1, 100),  # of another cluster
            ("on", SYSTEM, True, None, 100),  # it receives nothing, or hides it
            ("on", SYSTEM, True, 1, None),
            ("on", SYSTEM, False, 1, 100),  # it writes
        ]
        for row in cases:
            self.lag.standby.heard(0, row)
            self.assertEqual(self.lag.refusal(None), "unrelated", row)
        self.standby(100)
        self.assertEqual(self.lag.refusal(None), "")

    def test_a_standby_that_is_lost(self) -> None:
        """What it had replayed is forgotten: it may be another one, or start again from earlier."""
        self.assertEqual(self.lag.refusal(None), "unreachable")
        self.primary(100)
        self.standby(100)
        server = self.lag.server
        self.lag.standby.lost()
        self.assertEqual((self.lag.refusal(None), self.lag.staleness), ("unreachable", None))
        self.assertNotEqual(self.lag.server, server)
        self.standby(90)
        self.assertEqual(self.lag.refusal(None), "stale")

    def test_samples_are_bounded(self) -> None:
        lag = Lag(self.clock.seconds, 1e9, self._changed)
        for lsn in range(5000):
            lag.primary.heard(float(lsn), ("off", SYSTEM, False, 1, lsn))
        self.assertLessEqual(len(lag._samples), 1000)

    def test_commits_of_this_process(self) -> None:
        self.assertIsNone(self.lag.written)
        for row in ((1, 50), (1, 40), (2, 10), (1, 99)):
            self.lag.primary.committed(row)
        self.assertEqual(self.lag.written, Position(2, 10))


class TextTests(TestCase):
    def test_positions_as_text(self) -> None:
        for position, text in ((Position(1, 0x3000148), "1:0/3000148"), (Position(12, (5 << 32) + 1), "12:5/1")):
            self.assertEqual((position.text, Position.parse(text)), (text, position))
        for wrong in ("", "0/3000148", "0:0/1", "1:0", "1:0/", "1:x/1", "1:0/123456789", "-1:0/1", "1:0/1 2"):
            self.assertIsNone(Position.parse(wrong), wrong)

    def test_only_standbys_are_wanted(self) -> None:
        for given in ("postgresql://ipf@one,two/fhir", "postgresql://ipf@one,two/fhir?target_session_attrs=any"):
            hosts = hosts_of(standby_url(given))
            self.assertEqual([(one.name, one.must_be_standby) for one in hosts], [("one", True), ("two", True)])

    def test_a_url_that_cannot_be_read(self) -> None:
        for wrong in ("postgresql://[one/fhir", "postgresql://a:b@c@d/fhir", "host=one,two hostaddr=127.0.0.1"):
            with self.assertRaises(ValueError, msg=wrong) as raised:
                standby_url(wrong)
            self.assertNotIn("a:b", str(raised.exception))


class ServerTests(TestCase):
    async def test_commits_tell_the_position(self) -> None:
        """A session tells the position behind its commit, a reading one nothing."""
        lag = Lag(Clock().seconds, MOST, lambda: None)
        database = await postgres.database(self, "fhir", positions=lag.primary)
        before = await position_of(database)

        async def add(session: Any) -> None:
            await session.many("INSERT INTO partitions (name) VALUES ('north')")

        await database.transact(add)
        assert lag.written is not None
        self.assertGreater(lag.written.lsn, before.lsn)
        (row,) = await database.many(COMMITTED)
        self.assertLessEqual(lag.written, Position(*row))
        async with database.session() as session:
            self.assertEqual(len(await session.many("SELECT 1 FROM partitions WHERE name = 'north'")), 1)
