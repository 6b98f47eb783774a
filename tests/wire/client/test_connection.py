"""LookupResult read from bytes that come in any pieces, and what becomes of the connection they came over."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from ipf.wire.client.connection import KEPT_SECONDS, Answered, Exchange, TooLate
from ipf.wire.client.response_parser import HEAD_LIMIT, AnswerReader, NoHttp

OK = b"HTTP/1.1 200 OK\r\n"
EMPTY = OK + b"Content-Length: 0\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


class AnswerTests(TestCase):
    def test_complete_answers(self) -> None:
        """(bytes, status, whether the connection may take another request), whole and byte by byte."""
        for data, status, may_stay in (
            (EMPTY, 200, True),
            (OK + b"content-length:  2 \r\n\r\nok", 200, True),
            (b"HTTP/1.1 204 No Content\r\n\r\n", 204, True),
            (b"HTTP/1.1 304 Same\r\nContent-Length: 500\r\n\r\n", 304, True),
            (b"HTTP/1.1 202\r\nContent-Length: 0\r\n\r\n", 202, True),
            (b"HTTP/1.1 503 \nContent-Length: 1\n\nx", 503, True),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 200, False),
            (OK + b"Connection: Close\r\nContent-Length: 0\r\n\r\n", 200, False),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: a\r\n\r\n" + EMPTY, 200, True),
            (OK + b"Content-Length: 2, 2\r\nContent-Length: 2\r\n\r\nok", 200, True),
            (OK + b"X: 1\r\n Content-Length: 7\r\nContent-Length: 0\r\n\r\n", 200, True),
            (CHUNKED + b"0\r\n\r\n", 200, True),
            (CHUNKED + b"5;a=b\r\nhel\n\n\r\nA\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n", 200, True),
            (CHUNKED + b"nonsense\r\n", 200, False),
            (OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, False),
            (OK + b"Content-Length: 99\r\n\r\n", 200, False),  # more than is read
        ):
            for pieces in ([data], [data[n : n + 1] for n in range(len(data))]):
                reader = AnswerReader(60)
                ends = [reader.feed(piece) for piece in pieces]
                self.assertEqual((reader.status, reader.may_stay), (status, may_stay), data)
                self.assertTrue(any(ends), data)
                if may_stay:
                    self.assertEqual(ends, [False] * (len(pieces) - 1) + [True], data)

    def test_answers_that_go_on(self) -> None:
        """Until the connection ends, or until too much has come."""
        for head in (OK + b"\r\n", OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n"):
            reader = AnswerReader(10)
            self.assertFalse(reader.feed(head + b"0123456789"))
            self.assertTrue(reader.feed(b"0"))
            self.assertFalse(reader.may_stay)
        reader = AnswerReader(10)
        self.assertFalse(reader.feed(CHUNKED + b"fff\r\n"))
        self.assertTrue(reader.feed(b"x" * 11))
        self.assertFalse(reader.may_stay)

    def test_what_comes_behind_ends_the_connection(self) -> None:
        for data in (EMPTY + b"H", OK + b"Content-Length: 1\r\n\r\nxy", CHUNKED + b"0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"):
            reader = AnswerReader(100)
            self.assertTrue(reader.feed(data))
            self.assertFalse(reader.may_stay)

    def test_what_is_no_answer(self) -> None:
        for data in (
            b"SSH-2.0-OpenSSH\r\n",
            b"HTTP/2.0 200 OK\r\n\r\n",
            b"HTTP/1.1 abc\r\n\r\n",
            b"HTTP/1.1 2000 OK\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            OK + b"Content-Length: -1\r\n\r\n",
            OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
            OK + b"X: " + b"x" * HEAD_LIMIT,
        ):
            self.assertRaises(NoHttp, AnswerReader(100).feed, data)

    def test_retry_after(self) -> None:
        reader = AnswerReader(10)
        reader.feed(b"HTTP/1.1 429 Slow\r\nRetry-After:  7 \r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(reader.retry_after, b"7")


class Line(StringTransport):
    """A transport that says when it was hung up."""

    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True


class ExchangeTests(TestCase):
    def setUp(self) -> None:
        self.clock, self.line = Clock(), Line()
        self.ended: list[bool] = []
        self.exchange = Exchange(self.clock, 100, lambda one: self.ended.append(one.is_open))
        self.exchange.makeConnection(self.line)

    def ask(self, until: float = 5.0) -> Deferred[Answered]:
        return self.exchange.ask(b"request", until)

    def lose(self) -> None:
        self.exchange.connectionLost(Failure(ConnectionLost()))

    def test_one_after_another(self) -> None:
        for _ in range(3):
            asked = self.ask()
            self.exchange.dataReceived(EMPTY)
            self.assertEqual(self.successResultOf(asked), (200, None))
        self.assertEqual((self.line.value(), self.ended), (b"request" * 3, [True] * 3))
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(KEPT_SECONDS - 1)
        self.assertFalse(self.line.aborted)
        self.clock.advance(1)
        self.assertTrue(self.line.aborted)
        self.lose()
        self.assertEqual((self.ended[3:], self.clock.getDelayedCalls()), ([False], []))

    def test_time_limits(self) -> None:
        """Silence fails; an answer whose body does not end counts."""
        for heard, expected in ((b"HTTP/1.1 2", None), (OK + b"Content-Length: 9\r\n\r\nabc", 200)):
            self.setUp()
            asked = self.ask(2.0)
            self.exchange.dataReceived(heard)
            self.clock.advance(1.9)
            self.assertNoResult(asked)
            self.clock.advance(0.1)
            if expected is None:
                self.failureResultOf(asked, TooLate)
            else:
                self.assertEqual(self.successResultOf(asked), (expected, None))
            self.assertTrue(self.line.aborted)

    def test_a_nearer_limit_after_a_farther_one(self) -> None:
        asked = self.ask(20.0)
        self.exchange.dataReceived(EMPTY)
        self.successResultOf(asked)
        asked = self.ask(1.0)
        self.clock.advance(1.0)
        self.failureResultOf(asked, TooLate)

    def test_the_connection_ends(self) -> None:
        """Before the head that is a failure, behind it the status counts."""
        for heard, failed in ((b"", True), (b"HTTP/1.1 200 OK\r\nX", True), (OK + b"\r\nabc", False)):
            self.setUp()
            asked = self.ask()
            if heard:
                self.exchange.dataReceived(heard)
            self.lose()
            self.assertEqual(self.exchange.reader.began, bool(heard))
            if failed:
                self.failureResultOf(asked, ConnectionLost)
            else:
                self.assertEqual(self.successResultOf(asked), (200, None))
            self.assertEqual((self.ended, self.clock.getDelayedCalls()), ([False], []))

    def test_what_nobody_asked_for_ends_it(self) -> None:
        self.exchange.dataReceived(EMPTY)
        self.assertTrue(self.line.aborted)

    def test_no_http_ends_it(self) -> None:
        asked = self.ask()
        self.exchange.dataReceived(b"220 mail\r\n")
        self.failureResultOf(asked, NoHttp)
        self.assertTrue(self.line.aborted)

    def test_a_cancelled_request_ends_it(self) -> None:
        asked = self.ask()
        asked.cancel()
        self.failureResultOf(asked, CancelledError)
        self.assertTrue(self.line.aborted)
        self.lose()
