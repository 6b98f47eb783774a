"""Limits of HTTP: every row of the attack table that concerns HTTP itself."""

from __future__ import annotations

import gzip
import tracemalloc
from typing import Any

import zstandard
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource

from ipf.errors import Problem
from ipf.ports import Answer, Handler, Request
from ipf.wire.http.app import resource
from ipf.wire.http.limits import SECURITY_HEADERS, HttpLimits, unpacked
from ipf.wire.http.origin import OwnNames
from tests.wire.http.test_site import Connection, Handlers, refuse

PAGE = "https://app.example.org"
_WIDE_COMPRESSOR = zstandard.ZstdCompressor(
    compression_params=zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
).compressobj()
_WIDE = _WIDE_COMPRESSOR.compress(b"{}") + _WIDE_COMPRESSOR.flush()


class BoundedConnection(Connection):
    """A client of a site with `/fhir` and a resource that raises.  `handle`: instead of `Handlers.at_once`."""

    def __init__(self, handlers: Handlers, handle: Handler | None = None, **options: Any) -> None:
        mounts = {"fhir": resource(handle or handlers.at_once, refuse), "broken": Broken()}
        super().__init__(mounts, {"fhir": refuse}, **options)

    def post(self, body: bytes, *headers: str) -> tuple[int, dict[str, str], bytes]:
        """One POST with a body."""
        lines = ["POST /fhir/Patient HTTP/1.1", "Host: example.org", f"Content-Length: {len(body)}", *headers]
        self.send("".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body)
        return self.answer()


class Page(Resource):
    """Takes everything."""

    isLeaf = True

    def render(self, request: Any) -> bytes:
        return b"done"


class Broken(Resource):
    """Raises."""

    isLeaf = True

    def render(self, request: Any) -> bytes:
        raise RuntimeError("patient Muster, password s3cret")


class SlowTests(TestCase):
    def slow(self, first: bytes, more: bytes, every: float, times: int) -> BoundedConnection:
        handlers = Handlers()
        connection = BoundedConnection(handlers, limits=HttpLimits(seconds=10.0))
        connection.send(first)
        for _ in range(times):
            if connection.transport.disconnecting:
                break
            connection.clock.advance(every)
            connection.send(more)
        self.handlers = handlers
        return connection

    def test_slow_requests_are_cut_off(self) -> None:
        post = b"POST /fhir/Patient HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
        for name, first, more in (
            ("request line", b"G", b"E"),
            ("headers", b"GET /fhir/Patient HTTP/1.1\r\n", b"X-A: b\r\n"),
            ("body", post, b"x"),
            ("chunked body", post.replace(b"Content-Length: 1000000", b"Transfer-Encoding: chunked"), b"1\r\nx\r\n"),
        ):
            connection = self.slow(first, more, 1.0, 15)
            self.assertTrue(connection.transport.disconnecting, name)
            self.assertEqual(connection.answer()[0], 408, name)
            self.assertEqual(self.handlers.requests, [], name)

    def test_a_long_body_that_keeps_coming_is_accepted(self) -> None:
        body = b"POST /fhir/Patient HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n"
        connection = self.slow(body, b"x" * 50_000, 1.0, 40)
        self.assertEqual(connection.answer()[0], 200)
        self.assertEqual(len(self.handlers.requests[0].body), 2_000_000)
        self.assertEqual([call for call in connection.clock.getDelayedCalls() if "_check_deadline" in str(call)], [])

    def test_an_idle_connection_has_no_deadline(self) -> None:
        connection = BoundedConnection(Handlers(), limits=HttpLimits(seconds=10.0), timeout=75.0)
        connection.get("/fhir/Patient")
        connection.clock.advance(60)
        self.assertFalse(connection.transport.disconnecting)


class HeaderTests(TestCase):
    def test_too_large(self) -> None:
        limits = HttpLimits(header_bytes=4096)
        for name, sent in (
            ("one header", b"GET /fhir/Patient HTTP/1.1\r\nX-A: " + b"a" * 5000),
            ("many headers", b"GET /fhir/Patient HTTP/1.1\r\n" + b"X-A: abcdefgh\r\n" * 400 + b"\r\n"),
            ("the URL", b"GET /fhir/Patient?" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n"),
        ):
            handlers = Handlers()
            connection = BoundedConnection(handlers, limits=limits)
            connection.send(sent)
            self.assertEqual(connection.answer()[0], 431, name)
            self.assertIn(b"at most 4096 bytes: send a long search by POST", connection.transport.value(), name)
            self.assertEqual((connection.transport.disconnecting, handlers.requests), (True, []), name)

    def test_request_smuggling_is_refused(self) -> None:
        for lines in (
            b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            b"Content-Length: 5\r\nContent-Length: 6\r\n",
            b"Content-Length: +5\r\n",
            b"Transfer-Encoding: chunked, identity\r\n",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            b"Transfer-Encoding:\r\n chunked\r\n",
            b"X-A: b\r\n\tContent-Length: 5\r\n",
            b"Host: y\r\n",
            b"host: x\r\n",
            b"X-A : b\r\n",
            b"X-A\x00: b\r\n",
        ):
            handlers = Handlers()
            connection = BoundedConnection(handlers)
            connection.send(b"POST /fhir/Patient HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\nhello")
            self.assertEqual((connection.answer()[0], handlers.requests), (400, []), lines)

    def test_answers_do_not_pile_up_for_a_client_that_does_not_read(self) -> None:
        """The next request waits until the socket accepts more; none is lost, however the requests are split."""
        for size in (40, 100_000):
            self.check_one_at_a_time(size)

    def check_one_at_a_time(self, size: int) -> None:
        """50 requests in pieces of `size` bytes, to a socket that every answer fills."""
        handlers = Handlers(Answer(200, b"x" * 100_000))

        async def fill_socket(request: Request) -> Answer:
            channel.pauseProducing()
            return await handlers.at_once(request)

        connection = BoundedConnection(handlers, fill_socket, timeout=10.0)
        channel, sent = connection.protocol, b"GET /fhir/Patient HTTP/1.1\r\nHost: x\r\n\r\n" * 50
        for at in range(0, len(sent), size):
            connection.send(sent[at : at + size])
        self.assertEqual(len(handlers.requests), 1, "the one before the socket was full")
        self.assertEqual(connection.transport.producerState, "paused")
        for number in range(1, 51):
            self.assertEqual(len(handlers.requests), number)
            channel.resumeProducing()
        self.assertEqual(connection.transport.value().count(b"HTTP/1.1 200"), 50)
        self.assertEqual(connection.transport.producerState, "producing")

    def test_a_client_that_never_reads_is_disconnected(self) -> None:
        handlers = Handlers(Answer(200, b"x"))
        connection = BoundedConnection(handlers, timeout=10.0)
        connection.protocol.pauseProducing()
        connection.send(b"GET /fhir/Patient HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        connection.clock.advance(11)
        self.assertTrue(connection.transport.disconnecting)
        connection.clock.advance(20)
        self.assertTrue(connection.transport.disconnected)
        connection.protocol.connectionLost()
        self.assertEqual(len(handlers.requests), 1)

    def test_security_headers(self) -> None:
        for path in ("/fhir/Patient", "/nowhere", "/broken"):
            _, headers, _ = BoundedConnection(Handlers()).get(path)
            for name, value in SECURITY_HEADERS:
                self.assertEqual(headers[name.decode().lower()], value.decode(), (path, name))
            self.assertNotIn("strict-transport-security", headers)
        self.flushLoggedErrors(RuntimeError)

    def test_a_header_of_the_answer_replaces_the_default(self) -> None:
        connection = BoundedConnection(Handlers(Answer(200, b"{}", [("Cache-Control", "max-age=5")])))
        connection.get("/fhir/Patient")
        self.assertEqual(connection.transport.value().lower().count(b"cache-control"), 1)
        self.assertIn(b"max-age=5", connection.transport.value())

    def test_a_client_sees_no_trace(self) -> None:
        for path, result in (("/fhir/Patient", RuntimeError("password s3cret")), ("/broken", None)):
            connection = BoundedConnection(Handlers(result))
            self.assertEqual(connection.get(path)[0], 500)
            sent = connection.transport.value()
            for word in (b"s3cret", b"Traceback", b"RuntimeError", b".py"):
                self.assertNotIn(word, sent, path)
        self.flushLoggedErrors(RuntimeError)


class GzipTests(TestCase):
    def test_bodies(self) -> None:
        whole = gzip.compress(b'{"resourceType":"Patient"}')
        zstd = zstandard.compress(b'{"resourceType":"Patient"}')
        for name, encoding, body, expected in (
            ("gzip", "gzip", whole, 200),
            ("its other name", "X-GZIP", whole, 200),
            ("as it is", "identity", b"{}", 200),
            ("deflate", "deflate", whole, 415),
            ("twice", "gzip, gzip", gzip.compress(whole), 415),
            ("no gzip", "gzip", b"{}", 400),
            ("cut off", "gzip", whole[:-3], 400),
            ("something behind", "gzip", whole + b"x", 400),
            ("a bomb", "gzip", gzip.compress(b"0" * 5_000_000), 413),
            ("zstd", "zstd", zstd, 200),
            ("no zstd", "zstd", b"{}", 400),
            ("zstd, cut off", "zstd", zstd[:-3], 400),
            ("something behind zstd", "zstd", zstd + b"x", 400),
            ("two frames of zstd", "zstd", zstd + zstd, 400),
            ("a bomb of zstd", "zstd", zstandard.compress(b"0" * 5_000_000), 413),
            ("a huge window", "zstd", _WIDE, 400),
        ):
            handlers = Handlers()
            connection = BoundedConnection(handlers, max_body=100_000)
            self.assertEqual(connection.post(body, f"Content-Encoding: {encoding}")[0], expected, name)
            self.assertEqual(len(handlers.requests), int(expected == 200), name)

    def test_the_handler_gets_the_unpacked_body(self) -> None:
        handlers = Handlers()
        BoundedConnection(handlers).post(gzip.compress(b"hello"), "Content-Encoding: gzip")
        self.assertEqual(handlers.requests[0].body, b"hello")

    def test_a_bomb_takes_no_more_than_the_limit(self) -> None:
        whole = b"0" * 50_000_000
        for coding, bomb in (("gzip", gzip.compress(whole)), ("zstd", zstandard.compress(whole))):
            tracemalloc.start()
            try:
                with self.assertRaises(Problem):
                    unpacked(coding, bomb, 100_000)
                self.assertLess(tracemalloc.get_traced_memory()[1], 1_000_000)
            finally:
                tracemalloc.stop()


class CorsTests(TestCase):
    def ask(self, method: str, origin: str, *headers: str, origins: tuple[str, ...] = (PAGE,)) -> dict[str, str]:
        self.handlers = Handlers()
        connection = BoundedConnection(self.handlers, limits=HttpLimits(names=OwnNames(origins=origins)))
        self.status, found, _ = connection.get("/fhir/Patient", f"Origin: {origin}", *headers, method=method)
        return found

    def test_pages_of_other_sites_change_nothing(self) -> None:
        """`Sec-Fetch-Site` comes from browsers only."""
        page = "Origin: https://evil.example"
        for method, site, origins, expected in (
            ("POST", "cross-site", (), 403), ("DELETE", "cross-site", (), 403), ("GET", "cross-site", (), 200),
            ("POST", "same-origin", (), 403), ("POST", None, (), 403), ("GET", None, (), 200),
            ("POST", "cross-site", ("https://evil.example",), 200), ("POST", "cross-site", ("*",), 200),
            ("POST", "cross-site", ("https://app.example",), 403),
        ):  # fmt: skip
            for path in ("/fhir/Patient", "/page"):
                handlers = Handlers()
                mounts = {"fhir": resource(handlers.at_once, refuse), "page": Page()}
                connection = Connection(mounts, limits=HttpLimits(names=OwnNames(origins=origins)))
                headers = [page, *([f"Sec-Fetch-Site: {site}"] if site else [])]
                status = connection.get(path, *headers, method=method)[0]
                self.assertEqual(status, expected, (method, site, origins, path))
                self.assertEqual(len(handlers.requests), path == "/fhir/Patient" and expected == 200)

    def test_off_by_default(self) -> None:
        found = self.ask("GET", PAGE, origins=())
        self.assertEqual([name for name in found if name.startswith("access-control")], [])

    def test_a_named_origin(self) -> None:
        found = self.ask("GET", PAGE)
        self.assertEqual((found["access-control-allow-origin"], found["vary"]), (PAGE, "Origin"))
        self.assertIn("ETag", found["access-control-expose-headers"])
        self.assertNotIn("access-control-allow-credentials", found)

    def test_a_preflight_does_not_reach_the_handler(self) -> None:
        found = self.ask("OPTIONS", PAGE, "Access-Control-Request-Method: PUT")
        self.assertEqual((self.status, self.handlers.requests), (204, []))
        self.assertIn("PUT", found["access-control-allow-methods"])
        self.assertIn("Authorization", found["access-control-allow-headers"])

    def test_other_origins_get_nothing(self) -> None:
        for origin in ("https://evil.example", f"{PAGE}.evil.example", "null", PAGE.upper()):
            for method, headers in (("GET", ()), ("OPTIONS", ("Access-Control-Request-Method: PUT",))):
                found = self.ask(method, origin, *headers)
                self.assertEqual([name for name in found if name.startswith("access-control")], [], origin)

    def test_any_origin(self) -> None:
        self.assertEqual(self.ask("GET", "https://x.example", origins=("*",))["access-control-allow-origin"], "*")
