"""Packed pages: for whom, and for whom not."""

from __future__ import annotations

import gzip
from dataclasses import replace

from twisted.trial.unittest import TestCase

from ipf.console.html.compression import LEAST, packed
from ipf.ports import Answer, Request


def request(**headers: str) -> Request:
    """A request with headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request("GET", ("messages",), (), named, b"", "", "")


class CompressionTests(TestCase):
    def test_who_gets_it(self) -> None:
        body = b"x" * LEAST
        for accepted, site, is_packed in (
            ("gzip, deflate, br", "same-origin", True),
            ("gzip", "none", True),
            ("gzip", None, True),
            ("gzip", "cross-site", False),
            ("gzip", "same-site", False),
            ("br", "same-origin", False),
            ("", "same-origin", False),
        ):
            headers = {"accept_encoding": accepted} | ({} if site is None else {"sec_fetch_site": site})
            made = packed(request(**headers), Answer(200, body))
            self.assertEqual(("Content-Encoding", "gzip") in made.headers, is_packed, (accepted, site))
            self.assertEqual(gzip.decompress(made.body) if is_packed else made.body, body)
            self.assertIn(("Vary", "Accept-Encoding"), made.headers)

    def test_short_answers_stay(self) -> None:
        answer = Answer(303, b"", [("Location", "/")])
        made = packed(request(accept_encoding="gzip"), answer)
        self.assertEqual(made, replace(answer, headers=[("Location", "/"), ("Vary", "Accept-Encoding")]))
