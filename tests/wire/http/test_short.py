"""A request on the short way is what it would have been on Twisted's; and what is not the same does not take it."""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request
from ipf.telemetry import correlation
from ipf.wire.http import short as http_short
from ipf.wire.http.limits import HttpLimits
from ipf.wire.http.site import FhirResource
from tests.wire.http.test_limits import GuardedConnection
from tests.wire.http.test_site import Handlers, refuse

ID = "0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e55"
TRACE = "00-0190f7a42b6e7cc08a112f6d3c1b9e55-00f067aa0ba902b7-01"
LINES = (
    "GET /fhir/Patient/1", "HEAD /fhir/Patient/1", "GET /fhir/Patient?name=M%C3%BCller&x=+&&y", "GET /fhir",
    "GET /fhir/", "GET /fhir//a//", "GET /fhir/a%2Fb?_id=1", "GET /fhir/a?b?c", "GET /fhir/a?" + "b&" * 600,
    "GET /fhir/a?%FF", "GET /fhir/metadata?", "GET /nowhere", "GET /broken", "GET /", "GET /FHIR/a",
    "DELETE /fhir/a", "OPTIONS /fhir/a", "GET http://example.org/fhir/a", "GET fhir/a", "GET /fhir/a b",
    "get /fhir/a", "GET /fhir/a\x7f", "GET /fhir/\xfc",
)  # fmt: skip
HEADS = (
    (),
    ("Host: example.org:8090", "Accept: application/fhir+json"),
    ("Host: example.org", "Authorization: Bearer a.b.c", "X-A: b", "x-a: d"),
    ("Host: a/b", "Authorization: Bearer a", "Authorization: Bearer b", "Connection: keep-alive"),
    ("Host: x", f"X-Correlation-Id: {ID}", f"traceparent: {TRACE}"),
    ("Host: x", f"traceparent: {TRACE}", "Cookie: a=b", "If-None-Match: W/\"1\""),
    ("Host: x", "Origin: https://app.example.org"),
    ("Host: x", "Expect: 100-continue"),
    ("Host: x", "Content-Encoding: gzip"),
    ("Host: x", "Content-Length: 0"),
    ("Host: x", "Connection: close"),
    ("Host: x", "Bad Header: a"),
    ("Host: x", "X-A: " + "a" * 3000, "X-B: " + "b" * 900),
)  # fmt: skip
FIRST = (
    "Host: x",
    "Authorization: Bearer a.b.c",
    "Accept: a/b",
    "X-Request-Id: 1",
    f"traceparent: {TRACE}",
    "If-None-Match: *",
)
OTHERS: tuple[tuple[tuple[int, str], bool], ...] = (
    ((3, "X-Request-Id: 2"), True),
    ((3, "X-Request-Id:another, and longer"), True),
    ((4, "traceparent: 00-1190f7a42b6e7cc08a112f6d3c1b9e55-00f067aa0ba902b7-01"), True),
    ((4, "traceparent: nonsense"), True),
    ((5, 'If-None-Match: W/"1", W/"2"'), True),
    ((0, "Host: y"), False),
    ((1, "Authorization: Bearer a.b.d"), False),
    ((2, "Accept: a/c"), False),
    ((3, "x-request-id: 1"), False),
    ((3, "X-Request-Id : 2"), False),
    ((3, "X-Request-Id:  2"), False),
    ((3, "X-Request-Id: 2 "), False),
    ((3, "X-Request-Id: 2\t2"), False),
    ((3, "X-Request-Id: 2\x002"), False),
    ((3, "X-Request-Id: 2\r2"), False),
    ((3, "X-Request-Id: 2\n2"), False),
    ((3, "X-Request-Id: \xfc"), False),
    ((3, "X-Request-Id:"), False),
    ((3, "X-Request-Id"), False),
    ((3, " X-Request-Id: 2"), False),
    ((3, "tracestate: 1"), False),
    ((3, "Content-Length: 5"), False),
    ((3, "X-Request-Id: 2\r\nX-Request-Id: 3"), False),
    ((5, "If-None-Match: *\r\n\r\nGET /fhir/b HTTP/1.1"), False),
    ((5, "If-None-Match: *\r\nContent-Length: 9"), False),
)
LIMITS = HttpLimits(header_bytes=4096, origins=("https://app.example.org",))


def sent(line: str, head: tuple[str, ...] = HEADS[1], version: str = "HTTP/1.1", body: str = "") -> bytes:
    """The bytes of a request."""
    return "".join(f"{each}\r\n" for each in (f"{line} {version}", *head, "")).encode("latin-1") + body.encode()


class ShortTests(TestCase):
    def setUp(self) -> None:
        self.short = 0
        made = http_short.ShortRequest

        def counted(*given: Any) -> http_short.ShortRequest:
            self.short += 1
            return made(*given)

        self.patch(http_short, "ShortRequest", counted)
        self.patch(correlation, "new_correlation_id", lambda: ID)
        self.addCleanup(lambda: self.flushLoggedErrors(RuntimeError))

    def connection(self, result: Answer | Exception | None = None, **options: Any) -> GuardedConnection:
        """A new one; `handlers` is what it asks."""
        self.handlers = Handlers(result)
        return GuardedConnection(self.handlers, limits=LIMITS, **options)

    def told(self, connection: GuardedConnection, data: bytes) -> tuple[bytes, list[Request], bool]:
        """What is answered, what the handlers were asked, and whether the connection is closed."""
        connection.transport.clear()
        self.handlers.requests.clear()
        connection.send(data)
        answer = b"\r\n".join(
            one for one in connection.transport.value().split(b"\r\n") if not one.lower().startswith(b"date:")
        )
        return answer, list(self.handlers.requests), connection.transport.disconnecting

    def test_it_is_the_same_on_both_ways(self) -> None:
        """Every line after every block of headers, which was sent once, and twice, before."""
        for head in HEADS:
            for line in LINES:
                expected = self.told(self.connection(), sent(line, head))
                again = self.connection()
                first = self.told(again, sent("GET /fhir/Patient/0", head))
                if first[2]:
                    continue
                for _ in range(2):
                    self.assertEqual(self.told(again, sent(line, head)), expected, (line, head))
                    if expected[2]:
                        break
        self.assertEqual(
            self.short, 2 * (7 * 10 - 1)
        )  # heads that may be repeated, by short lines; one pair is too large

    def test_refusals_and_errors(self) -> None:
        for result, status in (
            (Problem(Category.NOT_FOUND, "gone"), b"404"), (RuntimeError("password s3cret"), b"500"),
            (Answer(204), b"204"), (Answer(304, b"", [("ETag", 'W/"1"')]), b"304"),
            (Answer(200, b"{}", [("X-A", "a\r\nb"), ("Cache-Control", "max-age=5")], "text/plain"), b"200"),
        ):  # fmt: skip
            connection = self.connection(result)
            for method in ("GET", "HEAD"):
                self.told(connection, sent(f"{method} /fhir/a", ("X-A: " + method,)))
                self.short = 0
                short = self.told(connection, sent(f"{method} /fhir/a", ("X-A: " + method,)))[0]
                self.assertEqual(self.short, 1)
                self.assertEqual(short[9:12], status)
                self.assertEqual(short, self.told(self.connection(result), sent(f"{method} /fhir/a", ("X-A: b",)))[0])

    def test_another_block_of_the_same_length_is_read(self) -> None:
        connection = self.connection()
        for token in ("a.b.c", "a.b.c", "a.b.d", "a.b.d", "a.b.c"):
            _, (request,), _ = self.told(connection, sent("GET /fhir/a", (f"Authorization: Bearer {token}",)))
            self.assertEqual(request.headers["authorization"], f"Bearer {token}")
            assert request.credential is not None
            self.assertEqual(request.credential.raw, f"Bearer {token}".encode())

    def test_what_is_another_with_each_request(self) -> None:
        """An id or a trace may change on the short way; nothing else, and nothing that is not a plain value."""
        for (number, line), is_short in OTHERS:
            head = (*FIRST[:number], line, *FIRST[number + 1 :])
            expected = self.told(self.connection(), sent("GET /fhir/a", head))
            connection = self.connection()
            self.told(connection, sent("GET /fhir/0", FIRST))
            self.short = 0
            self.assertEqual(self.told(connection, sent("GET /fhir/a", head)), expected, line)
            self.assertEqual(self.short, int(is_short), line)
            if is_short:  # and what came first is still known
                self.assertEqual(self.told(connection, sent("GET /fhir/a", head)), expected, line)
                request = self.told(connection, sent("GET /fhir/a", FIRST))[1][0]
                self.assertEqual((request.headers["x-request-id"], self.short), ("1", 3))

    def test_what_is_there_twice_does_not_change(self) -> None:
        first = ("Host: x", "X-Request-Id: 1", "X-Request-Id: 0", "Accept: a/b")
        connection = self.connection()
        self.told(connection, sent("GET /fhir/a", first))
        other = ("Host: x", "X-Request-Id: 2", "X-Request-Id: 0", "Accept: a/b")
        found = self.told(connection, sent("GET /fhir/a", other))
        self.assertEqual(found, self.told(self.connection(), sent("GET /fhir/a", other)))
        self.assertEqual(self.short, 0)

    def test_what_goes_on_in_the_next_line_is_refused(self) -> None:
        connection = self.connection()
        self.told(connection, sent("GET /fhir/a", ("Host: x", "X-Request-Id: 1")))
        answer, requests, is_closed = self.told(connection, sent("GET /fhir/a", ("Host: x", "X-Request-Id: 1", " 2")))
        self.assertEqual((answer[9:12], requests, is_closed), (b"400", [], True))

    def test_a_credential_stays_while_it_is_the_same(self) -> None:
        """Also where other headers change; and it is another for another connection."""
        found = []
        connection = self.connection()
        for more in ("a", "a", "b", "c", "c"):
            head = ("Authorization: Bearer x", f"X-Request-Id: {more}")
            _, (request,), _ = self.told(connection, sent("GET /fhir/a", head))
            found.append(request.credential)
        self.assertEqual(len({id(one) for one in found}), 1)
        _, (without,), _ = self.told(connection, sent("GET /fhir/a", ("X-Request-Id: c",)))
        self.assertIsNone(without.credential)
        _, (other,), _ = self.told(self.connection(), sent("GET /fhir/a", ("Authorization: Bearer x",)))
        self.assertIsNot(other.credential, found[0])

    def test_pieces_and_heaps(self) -> None:
        """However the bytes arrive, each request is asked once, in order."""
        whole = b"".join(sent(f"GET /fhir/{number}") for number in range(6))
        post = sent("POST /fhir/p", (*HEADS[1], "Content-Length: 5"), body="hello")
        for size in (1, 7, len(sent("GET /fhir/0")), len(sent("GET /fhir/0")) + 1, len(whole)):
            connection = self.connection()
            for data in (whole, post, whole):
                for at in range(0, len(data), size):
                    connection.send(data[at : at + size])
            paths = [request.path[0] for request in self.handlers.requests]
            self.assertEqual(paths, [*"012345", "p", *"012345"], size)

    def test_what_comes_while_one_waits(self) -> None:
        connection = self.connection()
        connection.protocol.requestFactory.direct[b"fhir"] = FhirResource(self.handlers.later, refuse)
        for number in range(4):
            connection.send(sent(f"GET /fhir/{number}"))
        for number in range(4):
            self.assertEqual(len(self.handlers.waiting), number + 1)
            self.handlers.waiting[number].callback(None)
        self.assertEqual([request.path[0] for request in self.handlers.requests], [*"0123"])
        self.assertEqual(connection.transport.value().count(b"HTTP/1.1 200 OK"), 4)

    def test_the_client_hangs_up(self) -> None:
        connection = self.connection()
        connection.send(sent("GET /fhir/0"))
        connection.protocol.requestFactory.direct[b"fhir"] = FhirResource(self.handlers.later, refuse)
        connection.send(sent("GET /fhir/1"))
        connection.transport.clear()
        connection.protocol.connectionLost(Failure(ConnectionDone()))
        self.handlers.waiting[0].callback(None)
        self.assertEqual((self.handlers.finished, connection.transport.value(), self.short), (1, b"", 1))

    def test_blank_lines_and_old_versions(self) -> None:
        connection = self.connection()
        for data in (sent("GET /fhir/0"), b"\r\n", sent("GET /fhir/1"), b"\r\n" + sent("GET /fhir/2")):
            connection.send(data)
        self.assertEqual([request.path[0] for request in self.handlers.requests], [*"012"])
        self.assertTrue(self.told(connection, sent("GET /fhir/3", version="HTTP/1.0"))[2])

    def test_limits_hold(self) -> None:
        connection = self.connection()
        self.told(connection, sent("GET /fhir/0"))
        answer, requests, is_closed = self.told(connection, sent("GET /fhir/" + "a" * 5000))
        self.assertEqual((answer[9:12], requests, is_closed), (b"431", [], True))

    def test_drips_behind_a_repetition_are_cut_off(self) -> None:
        connection = self.connection()
        for _ in range(3):
            connection.send(sent("GET /fhir/0"))
        connection.send(sent("GET /fhir/1")[:-1])
        connection.clock.advance(LIMITS.seconds + 1)
        self.assertIn(b"408", connection.transport.value())
        self.assertEqual(len(self.handlers.requests), 3)

    def test_silence_counts_from_the_answer(self) -> None:
        connection = self.connection(timeout=10.0)
        connection.protocol.stop_idle()
        connection.protocol.setTimeout(10.0)  # by the clock that it has now
        for _ in range(4):
            connection.clock.advance(9)
            connection.send(sent("GET /fhir/0"))
        self.assertEqual(self.short, 3)
        connection.clock.advance(9.5)
        self.assertFalse(connection.transport.disconnecting)
        connection.clock.advance(1)
        self.assertTrue(connection.transport.disconnecting)
