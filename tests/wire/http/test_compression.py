"""Content codings of answers: which, for whom, and what never changes."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import zstandard
from twisted.trial.unittest import SynchronousTestCase

from ipf.ports import Answer, Request
from ipf.ports.threads import run_inline
from ipf.wire.http.app import resource
from ipf.wire.http.compression import LEAST, coding_for, compressing
from tests.wire.http.test_site import Connection, refuse

BODY = b'{"resourceType":"Patient"}' * 100
_PLAIN: dict[str | None, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "zstd": zstandard.decompress,
    None: bytes,
}


def request(**headers: str) -> Request:
    """A request with headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request("GET", ("Patient",), (), named, b"", "", "")


def connection(answer: Answer) -> Connection:
    """A client of a site that always gives this answer."""

    async def handle(request: Request) -> Answer:
        return answer

    return Connection({"fhir": resource(compressing(handle, run_inline), refuse)})


class NegotiationTests(SynchronousTestCase):
    def test_weights(self) -> None:
        for accepted, coding in (
            ("gzip", "gzip"),
            ("x-gzip", "gzip"),
            ("GZIP;q=1.0", "gzip"),
            ("gzip, deflate, br", "gzip"),
            ("gzip, deflate, br, zstd", "zstd"),
            ("zstd;q=0.5, gzip;q=0.8", "gzip"),
            ("*", "zstd"),
            ("zstd;q=0, *", "gzip"),
            ("*;q=0", None),
            ("gzip;q=0", None),
            ("gzip;q=0.000", None),
            ("identity", None),
            ("gzip;q=0.5, identity", None),
            ("gzip;q=0.5, identity;q=0.2", "gzip"),
            ("identity;q=0, gzip;q=0.1", "gzip"),
            ("br", None),
            ("", None),
            ("gzip;q=x", None),
            ("gzip;q=2", None),
            ("gzip;q=nan", None),
            ("gzip;level=9", None),
            (",;,=;q", None),
        ):
            self.assertEqual(coding_for(request(accept_encoding=accepted)), coding, accepted)
        self.assertIsNone(coding_for(request()))

    def test_pages_of_others_learn_no_sizes(self) -> None:
        for site, token, is_compressed in (
            ("cross-site", "", False),
            ("same-site", "", False),
            ("same-origin", "", True),
            ("none", "", True),
            ("cross-site", "Bearer x", True),
        ):
            headers = {"accept_encoding": "gzip", "sec_fetch_site": site} | ({"authorization": token} if token else {})
            self.assertEqual(coding_for(request(**headers)) is not None, is_compressed, (site, token))


class AnswerTests(SynchronousTestCase):
    def test_bodies(self) -> None:
        for kind, body, accepted, coding in (
            ("application/fhir+json;charset=utf-8", BODY, "gzip", "gzip"),
            ("application/fhir+xml", BODY, "zstd", "zstd"),
            ("application/fhir+ndjson", BODY, "zstd, gzip", "zstd"),
            ("text/html", b"x" * 2_000_000, "gzip", "gzip"),
            ("application/fhir+json", b"x" * (LEAST - 1), "gzip", None),
            ("application/fhir+json", b"x" * LEAST, "gzip", "gzip"),
            ("application/fhir+json", BODY, "br", None),
            ("image/png", BODY, "gzip", None),
            ("application/octet-stream", BODY, "gzip", None),
        ):
            case = (kind, len(body), accepted)
            status, headers, sent = connection(Answer(200, body, content_type=kind)).get(
                "/fhir/x", f"Accept-Encoding: {accepted}"
            )
            self.assertEqual((status, headers.get("content-encoding")), (200, coding), case)
            self.assertEqual(_PLAIN[coding](sent), body, case)
            self.assertEqual(int(headers["content-length"]), len(sent), case)
            is_text = not kind.startswith(("image", "application/octet"))
            self.assertEqual("Accept-Encoding" in headers.get("vary", ""), is_text, case)

    def test_head_has_the_headers_of_get(self) -> None:
        answer = Answer(200, BODY, [("ETag", 'W/"3"')])
        _, expected, _ = connection(answer).get("/fhir/x", "Accept-Encoding: gzip")
        status, headers, body = connection(answer).get("/fhir/x", "Accept-Encoding: gzip", method="HEAD")
        del expected["date"], headers["date"], expected["x-correlation-id"], headers["x-correlation-id"]
        del expected["x-request-id"], headers["x-request-id"]
        self.assertEqual((status, headers, body), (200, expected, b""))

    def test_what_has_no_body_says_that_it_varies(self) -> None:
        status, headers, body = connection(Answer(304)).get("/fhir/x", "Accept-Encoding: gzip")
        self.assertEqual((status, headers["vary"], body), (304, "Accept-Encoding", b""))
        self.assertNotIn("content-encoding", headers)
