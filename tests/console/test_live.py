"""The hub of live pages, and the tail of the message list: without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.config.console import ConsoleSettings
from ipf.console.html.rendering import Renderer
from ipf.console.html.static import StaticFiles
from ipf.console.pages.messages import MESSAGES
from ipf.console.people.sessions import Sessions
from ipf.console.serving.backend import BackendDown
from ipf.console.serving.live import EVERY_SECONDS, MOST_ROWS, LiveHub, Row, StateListener
from ipf.console.serving.tail import TailListener, is_possible, matches
from ipf.wire.admin.route import Role

ROW: dict[str, Any] = {
    "id": 1, "received_at": "2026-01-01T00:00:00Z", "source_system": "LAB", "message_type": "ADT_A01",
    "status": "FAILED",
    "source_id": "<b>", "last_error": "No map", "tenant": "default", "correlation_id": "c",
}  # fmt: skip


class Channel:
    """What a page has read, in a transport with bytes that wait."""

    def __init__(self) -> None:
        self.transport = self
        self.dataBuffer = b""


class Web:
    """One open page."""

    def __init__(self) -> None:
        self.channel = Channel()
        self.written: list[bytes] = []
        self.ended = ""
        self._finish: Deferred[None] = Deferred()

    def notifyFinish(self) -> Deferred[None]:
        return self._finish

    def write(self, content: bytes) -> None:
        self.written.append(content)

    def finish(self) -> None:
        self.ended = "finished"
        self._finish.callback(None)

    def loseConnection(self) -> None:
        self.ended = "lost"
        self._finish.callback(None)


class HubTests(TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.asked: list[int] = []
        self.state: Mapping[str, Any] | BackendDown = {"queue": 1}
        self.hub = LiveHub(self.poll, self.clock)

    async def poll(self, rows: int) -> tuple[Mapping[str, Any], Sequence[Row]]:
        self.asked.append(rows)
        if isinstance(self.state, BackendDown):
            raise self.state
        return self.state, [ROW] if rows else []

    def open(self) -> Web:
        web = Web()
        self.hub.add(web, StateListener(), lambda: True)
        return web

    def test_pages_share_one_poll(self) -> None:
        pages = [self.open() for _ in range(50)]
        self.clock.advance(0)
        self.assertEqual(len(self.asked), 1)
        self.assertEqual({page.written[0] for page in pages}, {b'event: state\ndata: {"up":true,"queue":1}\n\n'})
        self.clock.advance(EVERY_SECONDS)
        self.assertEqual((len(self.asked), len(pages[0].written)), (2, 1))
        self.state = {"queue": 2}
        self.clock.advance(EVERY_SECONDS)
        self.assertEqual(len(pages[7].written), 2)

    def test_a_page_that_comes_later_gets_the_state(self) -> None:
        self.open()
        self.clock.advance(0)
        late = self.open()
        self.clock.advance(EVERY_SECONDS)
        self.assertEqual(len(late.written), 1)

    def test_nothing_is_asked_without_a_page(self) -> None:
        self.open().finish()
        self.clock.advance(0)
        for _ in range(5):
            self.clock.advance(EVERY_SECONDS)
        self.assertLessEqual(len(self.asked), 1)
        self.open()
        self.clock.advance(0)
        self.assertGreater(len(self.asked), 0)

    def test_an_engine_that_is_down_is_said_and_asked_again(self) -> None:
        page, self.state = self.open(), BackendDown("refused")
        self.clock.advance(0)
        self.assertIn(b'"up":false', page.written[0])
        self.state = {"queue": 1}
        self.clock.advance(EVERY_SECONDS)
        self.assertIn(b'"up":true', page.written[1])

    def test_a_page_that_does_not_read_is_closed(self) -> None:
        page = self.open()
        page.channel.dataBuffer = b"x" * 1_000_000
        self.clock.advance(0)
        self.assertEqual((page.ended, self.hub.pages), ("lost", 0))

    def test_a_stream_ends_with_its_session(self) -> None:
        sessions = Sessions(ConsoleSettings(idle_minutes=1), self.clock.seconds)
        session, web = sessions.begin("u1", "Ada", Role.VIEWER), Web()
        self.hub.add(web, StateListener(), lambda: sessions.is_open(session))
        for _ in range(100):
            self.clock.advance(EVERY_SECONDS)
        self.assertEqual(web.ended, "")
        for _ in range(40):
            self.clock.advance(EVERY_SECONDS)
        self.assertEqual(web.ended, "finished")

    def test_a_quiet_stream_is_kept_alive(self) -> None:
        page = self.open()
        for _ in range(70):
            self.clock.advance(EVERY_SECONDS)
        self.assertEqual([one for one in page.written if one.startswith(b":")], [b": still here\n\n"] * 2)


class TailTests(TestCase):
    def tail(self, **filters: str) -> TailListener:
        return TailListener(Renderer(StaticFiles()), "en", MESSAGES, MESSAGES.columns_of("source_id,status"), filters)

    def test_rows_that_are_new_or_changed(self) -> None:
        tail = self.tail()
        self.assertIn(b"&lt;b&gt;", tail.event(b"", [ROW]))
        self.assertEqual(tail.event(b"", [ROW]), b"")
        self.assertIn(b"Delivered", tail.event(b"", [ROW | {"status": "DELIVERED"}]))

    def test_more_than_a_poll_returns(self) -> None:
        tail = self.tail()
        first = [ROW | {"id": number} for number in range(MOST_ROWS)]
        self.assertIn(b'"gap":false', tail.event(b"", first))
        self.assertIn(b'"gap":true', tail.event(b"", [row | {"id": row["id"] + MOST_ROWS} for row in first]))

    def test_filters(self) -> None:
        for filters, expected in [
            ({}, True), ({"status": "FAILED"}, True), ({"status": "DELIVERED"}, False),
            ({"source_system": "LAB"}, True),
            ({"source_system": "LA"}, False), ({"error": "no MAP"}, True), ({"error": "x"}, False),
            ({"status": "FAILED", "tenant": "b"}, False),
        ]:  # fmt: skip
            self.assertEqual(matches(ROW, filters), expected, filters)
            self.assertEqual(bool(self.tail(**filters).event(b"", [ROW])), expected)
        for filters, offset, possible in [({}, 0, True), ({"status": "x"}, 50, False), ({"text": "x"}, 0, False)]:
            self.assertEqual(is_possible(filters, offset), possible)
