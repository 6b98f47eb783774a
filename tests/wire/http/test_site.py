"""The HTTP factory on a transport in memory: bytes in, bytes out."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.static import Data

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request
from ipf.wire.http.app import resource
from ipf.wire.http.limits import HttpLimits
from ipf.wire.http.origin import OwnNames
from ipf.wire.http.serving import Refuse
from ipf.wire.http.site import site
from ipf.wire.observe.observe import refusal as observe_refusal

ID = "0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e55"
OWN = "http://10.0.0.1:12345/fhir"  # the address of `StringTransport`


def refuse(problem: Problem) -> Answer:
    """A stand-in for the FHIR rendering."""
    return Answer(problem.rendering.http_status, problem.text.encode())


class Connection:
    """One client of a site that lives in memory."""

    def __init__(self, mounts: dict[str, Any], refusals: dict[str, Refuse] | None = None, **options: Any) -> None:
        self.clock = Clock()
        self.transport = StringTransport()
        self.protocol: Any = site(mounts, refusals, **options).buildProtocol(None)
        self.protocol.callLater = self.clock.callLater
        self.protocol.makeConnection(self.transport)

    def send(self, data: bytes) -> None:
        """Bytes from the client."""
        self.protocol.dataReceived(data)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The first answer that was written: status, headers, body."""
        head, _, body = self.transport.value().partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines[1:])
        return int(lines[0].split()[1]), {name.lower(): value for name, value in pairs}, body

    def get(self, path: str, *headers: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        """One request without a body."""
        lines = [f"{method} {path} HTTP/1.1", "Host: example.org:8090", *headers]
        self.send("".join(f"{line}\r\n" for line in lines).encode() + b"\r\n")
        return self.answer()


class Handlers:
    """Handlers that keep their requests."""

    def __init__(self, answer: Answer | Exception | None = None) -> None:
        self.requests: list[Request] = []
        self.result = answer or Answer(200, b"{}")
        self.waiting: list[Deferred[None]] = []
        self.finished = 0

    async def at_once(self, request: Request) -> Answer:
        """Answer without waiting."""
        self.requests.append(request)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    async def later(self, request: Request) -> Answer:
        """Answer when the test lets it."""
        waiting: Deferred[None] = Deferred()
        self.waiting.append(waiting)
        await waiting
        self.finished += 1
        return await self.at_once(request)


def connect(handlers: Handlers, **options: Any) -> Connection:
    """A connection to a site with only `/fhir`."""
    return Connection({"fhir": resource(handlers.at_once, refuse)}, {"fhir": refuse}, **options)


class RequestTests(TestCase):
    def test_request_becomes_a_value(self) -> None:
        handlers = Handlers()
        connection = connect(handlers)
        connection.send(
            b"POST /fhir/Patient/_search?name=M%C3%BCller&x= HTTP/1.1\r\nHost: example.org:8090\r\n"
            b"Prefer: return=minimal\r\nPREFER: handling=strict\r\nX-Correlation-Id: " + ID.encode() + b"\r\n"
            b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 5\r\n\r\na=b%2"
        )
        (request,) = handlers.requests
        self.assertEqual(request.method, "POST")
        self.assertEqual(request.path, ("Patient", "_search"))
        self.assertEqual(request.query, (("name", "Müller"), ("x", "")))
        self.assertEqual(request.body, b"a=b%2")
        self.assertEqual(request.base_url, "http://example.org:8090/fhir")
        self.assertEqual(request.headers["prefer"], "return=minimal, handling=strict")
        self.assertEqual(request.correlation_id, ID)

    def test_headers_that_are_no_utf_8(self) -> None:
        """Each byte is a character, in every header that is read before a handler is asked."""
        for name in ("X-Correlation-Id", "traceparent", "Origin", "Host", "Accept", "Content-Encoding"):
            handlers = Handlers()
            connection = connect(handlers, limits=HttpLimits(names=OwnNames(origins=("https://app.example",))))
            host = "" if name == "Host" else "Host: a\r\n"
            connection.send(f"GET /fhir HTTP/1.1\r\n{host}{name}: a\xff\xed\xa0\x80\r\n\r\n".encode("latin-1"))
            self.assertEqual(connection.answer()[0], 415 if name == "Content-Encoding" else 200, name)

    def test_paths(self) -> None:
        for url, path in (
            ("/fhir", ()),
            ("/fhir/", ()),
            ("/fhir/Patient/", ("Patient",)),
            ("/fhir/Patient/a%2Fb", ("Patient", "a/b")),
            ("/fhir/metadata?_format=json", ("metadata",)),
            ("/fhir//Patient//1/", ("", "Patient", "", "1")),
            ("/fhir/Patient/a%0Ab%20c+d", ("Patient", "a\nb c+d")),
            ("/fhir/Patient%2F1", ("Patient/1",)),
            ("/%66hir/%E2%82%AC", ("€",)),
            ("/fhir/Patient/../x;y|z$<w>", ("Patient", "..", "x;y|z$<w>")),
        ):
            handlers = Handlers()
            connect(handlers).get(url)
            self.assertEqual([request.path for request in handlers.requests], [path], url)

    def test_bad_urls_are_refused(self) -> None:
        for url in ("/fhir/%FF", "/fhir/Patient?name=%FF", "/fhir/Patient?" + "a=b&" * 600):
            handlers = Handlers()
            status, _, _ = connect(handlers).get(url)
            self.assertEqual((status, handlers.requests), (400, []), url[:40])

    def test_every_method_reaches_the_handler(self) -> None:
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"):
            handlers = Handlers()
            self.assertEqual(connect(handlers).get("/fhir", method=method)[0], 200, method)
            self.assertEqual([request.method for request in handlers.requests], [method])

    def test_an_odd_host_is_no_error(self) -> None:
        """Routing ignores it, as werkzeug raises on some; links replace a malformed one by our own address."""
        label = b"a" * 70
        for host, expected in (
            (b"a..b", "http://a..b/fhir"), (label, f"http://{label.decode()}/fhir"), (b"\xfc", OWN), (b"x/y", OWN),
            (b"a" * 300, OWN), (b"", OWN),
        ):  # fmt: skip
            handlers = Handlers()
            connection = connect(handlers)
            connection.send(b"GET /fhir/Patient HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
            self.assertEqual(connection.answer()[0], 200, host)
            self.assertEqual(handlers.requests[0].base_url, expected, host)

    def test_a_configured_base_url_is_used(self) -> None:
        handlers = Handlers()
        fhir = resource(handlers.at_once, refuse, "https://fhir.example.org/fhir")
        Connection({"fhir": fhir}).get("/fhir/Patient")
        self.assertEqual(handlers.requests[0].base_url, "https://fhir.example.org/fhir")


class AnswerTests(TestCase):
    def test_answer_becomes_bytes(self) -> None:
        answer = Answer(201, b'{"a":1}', [("ETag", 'W/"1"'), ("Location", "http://x/y")])
        status, headers, body = connect(Handlers(answer)).get("/fhir/Patient", f"X-Correlation-Id: {ID}")
        self.assertEqual((status, body), (201, b'{"a":1}'))
        self.assertEqual(headers["etag"], 'W/"1"')
        self.assertEqual(headers["content-type"], "application/fhir+json;charset=utf-8")
        self.assertEqual(headers["content-length"], "7")
        self.assertEqual(headers["x-correlation-id"], ID)
        self.assertNotIn("server", headers)

    def test_traceparent_becomes_the_correlation_id(self) -> None:
        """A request without an id takes the trace id of its `traceparent`; so does its answer."""
        handlers = Handlers()
        parent = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        _, headers, _ = connect(handlers).get("/fhir/Patient", parent)
        self.assertEqual(headers["x-correlation-id"], "4bf92f35-77b3-4da6-a3ce-929d0e0e4736")
        self.assertEqual(handlers.requests[0].correlation_id, headers["x-correlation-id"])

    def test_correlation_id_is_made_when_missing_or_malformed(self) -> None:
        for sent in ((), ("X-Correlation-Id: 17",), ("X-Correlation-Id: a\tb",)):
            handlers = Handlers()
            _, headers, _ = connect(handlers).get("/fhir/Patient", *sent)
            self.assertEqual(str(UUID(headers["x-correlation-id"])), handlers.requests[0].correlation_id)

    def test_request_id_is_the_callers_or_the_correlation_id(self) -> None:
        for sent, expected in (
            ((), ""), (("X-Request-Id: r-17/a=b",), "r-17/a=b"), ((f"X-Request-Id: {'x' * 128}",), "x" * 128),
            ((f"X-Request-Id: {'x' * 129}",), ""), (("X-Request-Id: a b",), ""), (("X-Request-Id: \xe4",), ""),
            (("X-Request-Id: a", "X-Request-Id: b"), "b"),
        ):  # fmt: skip
            handlers = Handlers()
            _, headers, _ = connect(handlers).get("/fhir/Patient", f"X-Correlation-Id: {ID}", *sent)
            self.assertEqual((headers["x-request-id"], handlers.requests[0].request_id), (expected or ID, expected))

    def test_no_body(self) -> None:
        for status in (204, 304):
            found, headers, body = connect(Handlers(Answer(status, b"", [("ETag", 'W/"1"')]))).get("/fhir/Patient/1")
            self.assertEqual((found, body), (status, b""))
            self.assertNotIn("content-type", headers)
        _, headers, body = connect(Handlers(Answer(201))).get("/fhir/Patient")
        self.assertEqual((headers["content-length"], body), ("0", b""))

    def test_head_has_length_but_no_body(self) -> None:
        _, headers, body = connect(Handlers(Answer(200, b"12345"))).get("/fhir/Patient/1", method="HEAD")
        self.assertEqual((headers["content-length"], body), ("5", b""))

    def test_problem_is_rendered(self) -> None:
        refused = Problem(Category.GONE, "away")
        self.assertEqual(connect(Handlers(refused)).get("/fhir/Patient/1")[::2], (410, b"away"))

    def test_an_unforeseen_error_is_logged_and_answered_without_a_trace(self) -> None:
        broken = ZeroDivisionError("secret")
        status, headers, body = connect(Handlers(broken)).get("/fhir/Patient/1", f"X-Correlation-Id: {ID}")
        self.assertEqual((status, headers["x-correlation-id"]), (500, ID))
        self.assertEqual(body, f"internal error; correlation id {ID}".encode())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class HangUpTests(TestCase):
    def test_the_handler_runs_to_its_end_when_the_client_hangs_up(self) -> None:
        handlers = Handlers()
        connection = Connection({"fhir": resource(handlers.later, refuse)})
        connection.send(b"GET /fhir/Patient HTTP/1.1\r\nHost: a\r\n\r\n")
        connection.protocol.connectionLost(Failure(ConnectionDone()))
        handlers.waiting[0].callback(None)
        self.assertEqual(handlers.finished, 1)
        self.assertEqual(connection.transport.value(), b"")
        self.assertEqual(self.flushLoggedErrors(), [])


class LimitTests(TestCase):
    def test_declared_length(self) -> None:
        handlers = Handlers()
        connection = connect(handlers, max_body=10)
        connection.send(b"POST /fhir/Patient HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n" + b"x" * 11)
        self.assertEqual((connection.answer()[0], handlers.requests), (413, []))

    def test_exact_length_passes(self) -> None:
        handlers = Handlers()
        connect(handlers, max_body=10).send(
            b"POST /fhir/Patient HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n" + b"x" * 10
        )
        self.assertEqual(handlers.requests[0].body, b"x" * 10)

    def test_chunked(self) -> None:
        handlers = Handlers()
        connection = connect(handlers, max_body=10)
        connection.send(b"POST /fhir/Patient HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.send(b"8\r\n12345678\r\n" * 2 + b"0\r\n\r\n")
        self.assertEqual((connection.answer()[0], handlers.requests), (413, []))

    def test_endless_body_is_cut(self) -> None:
        connection = connect(Handlers(), max_body=10)
        connection.send(b"POST /fhir/Patient HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.send(b"8\r\n12345678\r\n" * 9)
        self.assertTrue(connection.transport.value().startswith(b"HTTP/1.1 413"))
        self.assertTrue(connection.transport.disconnecting)

    def test_other_mounts(self) -> None:
        connection = Connection({"admin": Resource()}, max_body=10)
        connection.send(b"POST /admin/x HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n" + b"x" * 11)
        status, headers, body = connection.answer()
        self.assertEqual((status, headers["content-type"]), (413, "application/json"))
        self.assertEqual(list(json.loads(body)), ["error", "message"])
        self.assertIn(b"payload_too_large", body)

    def test_observability_errors_carry_their_version(self) -> None:
        """Also a refusal before routing."""
        for path in ("/admin/observe", "/admin/observe/dlq"):
            connection = Connection({"admin": Resource()}, {"admin/observe": observe_refusal}, max_body=10)
            connection.send(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n".encode() + b"x" * 11)
            status, _, body = connection.answer()
            shown = json.loads(body)
            self.assertEqual((status, shown["schema_version"], shown["error"]), (413, "1.0", "payload_too_large"))
            self.assertEqual(list(shown), ["schema_version", "error", "message"])


class MountTests(TestCase):
    def test_no_answer_names_the_server(self) -> None:
        mounts = {"fhir": resource(Handlers().at_once, refuse), "page": Data(b"x", "text/plain")}
        for path, method, expected in (
            ("/fhir/Patient", "GET", 200), ("/page", "GET", 200), ("/page", "HEAD", 200), ("/page/x", "GET", 404),
            ("/nothing", "GET", 404), ("*", "OPTIONS", 200), ("*", "GET", 405), ("/page", "BREW", 501),
        ):  # fmt: skip
            status, headers, _ = Connection(mounts).get(path, method=method)
            self.assertEqual((status, headers.get("server")), (expected, None), (method, path))

    def test_the_first_segment_chooses(self) -> None:
        mounts = {"fhir": resource(Handlers().at_once, refuse), "admin": Data(b"admin", "text/plain")}
        self.assertEqual(Connection(mounts).get("/admin")[2], b"admin")
        self.assertEqual(Connection(mounts).get("/fhir/Patient")[2], b"{}")
        status, headers, body = Connection(mounts).get("/elsewhere", f"X-Correlation-Id: {ID}")
        self.assertEqual((status, headers["x-correlation-id"]), (404, ID))
        self.assertIn(b"not_found", body)
        self.assertEqual(Connection(mounts).get("/")[0], 404)
