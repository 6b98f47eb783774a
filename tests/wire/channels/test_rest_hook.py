"""The rest-hook channel on real sockets: requests, responses and failures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase
from twisted.web.http_headers import Headers

from ipf.ports import Delivered, Notification
from ipf.telemetry.correlation import traceparent
from ipf.wire.channels.rest_hook import RestHook, header_problem, seconds_of
from ipf.wire.client.failures import describe
from ipf.wire.client.http_client import HttpClient
from ipf.wire.client.resolver import AddressRule
from tests.waiting import PATIENCE, free_port, until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
CORRELATION = "01a1fd61-507d-7430-891d-8ed8941211ce"
Behaviour = Callable[["Subscriber", bytes], None]


class Subscriber(Protocol):
    """One connection of the endpoint: stores complete requests and behaves as the test says."""

    def __init__(self, end: Endpoint) -> None:
        self.end = end
        self.buffer = b""

    def dataReceived(self, data: bytes) -> None:
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = next((int(x[15:]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length:")), 0)
        if len(rest) >= length:
            self.buffer = rest[length:]
            self.end.requests.append(head + found + rest[:length])
            self.end.behave(self, self.end.requests[-1])


class Endpoint(Factory):
    noisy = False

    def __init__(self, behave: Behaviour) -> None:
        self.behave = behave
        self.requests: list[bytes] = []
        self.connections: list[Subscriber] = []

    def buildProtocol(self, addr: object) -> Subscriber:
        connection = Subscriber(self)
        self.connections.append(connection)
        return connection


def replies(data: bytes) -> Behaviour:
    return lambda connection, request: connection.transport.write(data)


class RestHookTests(TestCase):
    def endpoint(self, behave: Behaviour) -> tuple[Endpoint, str]:
        end = Endpoint(behave)
        port: IListeningPort = reactor.listenTCP(0, end, interface="127.0.0.1")
        self.addCleanup(self.close_all, end, port)
        return end, f"http://127.0.0.1:{port.getHost().port}/hook"

    async def close_all(self, end: Endpoint, port: IListeningPort) -> None:
        for connection in end.connections:
            connection.transport.abortConnection()
        await port.stopListening()
        await until(lambda: not any(one.transport.connected for one in end.connections), "all connections have ended")

    def webhook(
        self,
        timeout: float = PATIENCE,
        *,
        body_limit: int = 65536,
        forbids: AddressRule | None = None,
    ) -> RestHook:
        http = HttpClient(reactor, timeout, body_limit=body_limit, connections_per_host=8, forbids=forbids)
        self.addCleanup(lambda: Deferred.fromCoroutine(http.close()))
        return RestHook(http, timeout, reactor)

    async def ask(self, behave: Behaviour, limit: float = PATIENCE, **options: Any) -> tuple[Delivered, Endpoint]:
        end, url = self.endpoint(behave)
        return await self.webhook(limit, **options).send(put(url)), end

    async def test_put_carries_body_headers_and_correlation(self) -> None:
        delivered, end = await self.ask(replies(OK))
        self.assertTrue(delivered.succeeded)
        head, _, body = end.requests[0].partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        self.assertEqual(lines[0], b"PUT /hook/Patient/p1 HTTP/1.1")
        self.assertEqual(body, b'{"resourceType":"Patient"}')
        for line in (
            b"Content-Type: application/fhir+json; charset=UTF-8",
            b"Authorization: Bearer s3cret",
            b"X-Correlation-Id: " + CORRELATION.encode(),
            b"Traceparent: " + (traceparent(CORRELATION) or "").encode(),
            b"Content-Length: 26",
        ):
            self.assertIn(line, lines)
        self.assertNotIn(b"accept-encoding", head.lower())

    async def test_empty_post_says_content_length_zero(self) -> None:
        end, url = self.endpoint(replies(OK))
        await self.webhook().send(Notification("POST", url, (), None, CORRELATION))
        self.assertTrue(end.requests[0].startswith(b"POST /hook HTTP/1.1\r\n"))
        self.assertIn(b"\r\nContent-Length: 0\r\n", end.requests[0])
        self.assertNotIn(b"Content-Type", end.requests[0])

    async def test_connections_are_kept(self) -> None:
        end, url = self.endpoint(replies(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok"))
        hook = self.webhook()
        for _ in range(3):
            self.assertEqual((await hook.send(put(url))).http_status, 202)
        self.assertEqual((len(end.requests), len(end.connections)), (3, 1))

    async def test_refusals_are_answers(self) -> None:
        for status in (400, 404, 410, 500):
            delivered, _ = await self.ask(replies(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status))
            self.assertEqual((delivered.http_status, delivered.error, delivered.succeeded), (status, None, False))

    async def test_retry_after_is_read(self) -> None:
        reply = b"HTTP/1.1 429 Slow down\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
        delivered, _ = await self.ask(replies(reply))
        self.assertEqual((delivered.http_status, delivered.retry_after), (429, 7.0))

    async def test_redirects_are_not_followed(self) -> None:
        delivered, end = await self.ask(replies(b"HTTP/1.1 307 Go\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n"))
        self.assertEqual((delivered.http_status, len(end.requests)), (307, 1))

    async def test_cookies_are_not_kept(self) -> None:
        end, url = self.endpoint(replies(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"))
        hook = self.webhook()
        await hook.send(put(url))
        await hook.send(put(url))
        self.assertNotIn(b"cookie", end.requests[1].lower())

    async def test_a_large_body_is_not_read(self) -> None:
        reply = b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 300_000
        delivered, _ = await self.ask(replies(reply), body_limit=65536)
        self.assertTrue(delivered.succeeded)

    async def test_the_status_counts_when_the_body_never_ends(self) -> None:
        clock = Clock()
        http: Any = EndlessBody()
        sending = Deferred.fromCoroutine(RestHook(http, 5.0, clock).send(put("http://hook.example.org")))
        self.assertNoResult(sending)
        clock.advance(5.0)
        delivered = self.successResultOf(sending)
        self.assertEqual((delivered.http_status, delivered.duration_ms), (200, 5000))
        self.assertTrue(http.response.is_closed)

    async def test_responses_are_not_decompressed(self) -> None:
        reply = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope"
        delivered, _ = await self.ask(replies(reply))
        self.assertTrue(delivered.succeeded)

    async def test_time_limit(self) -> None:
        delivered, _ = await self.ask(lambda connection, request: None, limit=0.2)
        self.assertEqual((delivered.http_status, delivered.error), (None, "no answer within 0.2 s"))
        self.assertGreaterEqual(delivered.duration_ms, 150)

    async def test_reset_and_close(self) -> None:
        for behave in (
            lambda connection, request: connection.transport.abortConnection(),
            lambda connection, request: connection.transport.loseConnection(),
        ):
            delivered, end = await self.ask(behave)
            self.assertEqual(delivered.error, "the connection was closed unanswered")
            self.assertEqual(len(end.requests), 1)

    async def test_a_request_is_sent_once(self) -> None:
        """Also on a reused connection that the endpoint closes: the delivery stage repeats it, not the client."""

        def second_request_dies(connection: Subscriber, request: bytes) -> None:
            if connection is end.connections[0] and len(end.requests) > 1:
                connection.transport.abortConnection()
            else:
                connection.transport.write(OK)

        end, url = self.endpoint(second_request_dies)
        hook = self.webhook()
        await hook.send(put(url))
        for method in ("PUT", "DELETE"):
            delivered = await hook.send(Notification(method, url, (), None, CORRELATION))
            if method == "PUT":
                self.assertEqual(delivered.error, "the connection was closed unanswered")
        self.assertEqual((delivered.succeeded, len(end.requests), len(end.connections)), (True, 3, 2))

    async def test_headers_without_end(self) -> None:
        """The head of a response counts against the size limit, in lines of any length."""
        for line in (b"X: y\r\n", b"X: " + b"y" * 8000 + b"\r\n"):
            reply = b"HTTP/1.1 200 OK\r\n" + line * (300_000 // len(line))
            delivered, _ = await self.ask(replies(reply))
            self.assertEqual((delivered.http_status, delivered.error), (None, "the response is too large"))

    async def test_a_response_that_is_not_http(self) -> None:
        delivered, _ = await self.ask(replies(b"SSH-2.0-OpenSSH_9.6\r\n"))
        self.assertEqual((delivered.http_status, delivered.error), (None, "no valid HTTP answer"))

    async def test_refused_connection_and_unknown_scheme(self) -> None:
        hook = self.webhook()
        self.assertEqual((await hook.send(put(f"http://127.0.0.1:{free_port()}"))).error, "connection refused")
        self.assertIn("no usable http or https URL", (await hook.send(put("ftp://127.0.0.1/x"))).error or "")
        for broken in ("not a url", "http://", "http://[::1", "http://a:b:c/", "http://me@127.0.0.1/", "http://a:0/"):
            error = (await hook.send(Notification("POST", broken, (), None, CORRELATION))).error
            self.assertEqual(error, "the endpoint is no usable http or https URL", broken)

    async def test_tls_to_a_plain_port_is_an_error(self) -> None:
        _, url = self.endpoint(replies(OK))
        delivered = await self.webhook(0.3).send(put(url.replace("http:", "https:")))
        self.assertIsNone(delivered.http_status)
        self.assertIsNotNone(delivered.error)

    async def test_forbidden_address(self) -> None:
        delivered, end = await self.ask(replies(OK), forbids=lambda host, address, port: "by a test")
        self.assertIn("not permitted: by a test", delivered.error or "")
        self.assertEqual(end.requests, [])

    async def test_registered_headers_are_checked(self) -> None:
        end, url = self.endpoint(replies(OK))
        hook = self.webhook()
        for name, value in (("X", "a\r\nHost: evil"), ("Host", "evil"), ("Transfer-Encoding", "chunked"), ("X A", "a")):
            delivered = await hook.send(Notification("POST", url, ((name, value),), None, CORRELATION))
            self.assertIn("registered header", delivered.error or "")
        self.assertEqual(end.requests, [])

    async def test_urls_outside_ascii(self) -> None:
        end, url = self.endpoint(replies(OK))
        self.assertTrue((await self.webhook().send(put(url + "/grün"))).succeeded)
        self.assertTrue(end.requests[0].startswith(b"PUT /hook/gr%C3%BCn/Patient/p1 "))

    async def test_cancelling(self) -> None:
        end, url = self.endpoint(lambda connection, request: None)
        sending = Deferred.fromCoroutine(self.webhook().send(put(url)))
        await until(lambda: end.requests, "the request has been sent")
        sending.cancel()
        with self.assertRaises(CancelledError):
            await sending


class EndlessBody:
    """An HTTP client that returns a response with an incomplete body."""

    def __init__(self) -> None:
        self.response = EndlessResponse()

    async def request(self, *request: object) -> EndlessResponse:
        return self.response


class EndlessResponse:
    code, length, headers, is_closed = 200, 10, Headers(), False

    def deliverBody(self, reader: Any) -> None:
        reader.makeConnection(self)
        reader.dataReceived(b"abc")

    def loseConnection(self) -> None:
        self.is_closed = True


class RuleTests(TestCase):
    def test_retry_after(self) -> None:
        now = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
        for text, seconds in (
            (b"0", 0.0),
            (b" 120 ", 120.0),
            (b"Thu, 01 Jan 2026 12:01:30 GMT", 90.0),
            (b"Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
            (b"-5", None),
            (b"soon", None),
            (b"9" * 400, 999999999.0),
        ):
            self.assertEqual(seconds_of(text, now), seconds, text)

    def test_header_rules(self) -> None:
        self.assertIsNone(header_problem([("Authorization", "Bearer x"), ("X-Ünits", "")][:1]))
        self.assertIsNone(header_problem([("X-Tab", "a\tb"), ("X-Text", "grün")]))
        for name, value in (("", "x"), ("X:Y", "x"), ("X-Ü", "x"), ("X", "a\x00b"), ("content-length", "3")):
            self.assertIsNotNone(header_problem([(name, value)]), name)

    def test_unknown_failures_are_described_by_their_type(self) -> None:
        self.assertEqual(describe(RuntimeError("Patient/secret")), "not sent: RuntimeError")


def put(url: str) -> Notification:
    headers = (("Authorization", "Bearer s3cret"),)
    return Notification("PUT", f"{url}/Patient/p1", headers, b'{"resourceType":"Patient"}', CORRELATION)
