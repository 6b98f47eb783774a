"""Pages packed with gzip, for browsers that accept it.

A page of a long message shrinks from 600 to 10 kB.  A page that another site leads to stays as it is: its size would
tell that site what stands in it (BREACH).  `Sec-Fetch-Site` says so; browsers send it wherever there is TLS to spy on.
Source: RFC 9110 section 12.5.3, https://www.w3.org/TR/fetch-metadata/, docs/security.md.
"""

from __future__ import annotations

import gzip
from dataclasses import replace

from ipf.ports import Answer, Request

LEAST = 1_000
"""Bytes of an answer that is worth it."""
_LEVEL = 6
_FOREIGN = ("cross-site", "same-site")


def packed(request: Request, answer: Answer) -> Answer:
    """The answer as the browser takes it."""
    answer = replace(answer, headers=[*answer.headers, ("Vary", "Accept-Encoding")])
    headers = request.headers
    accepted = "gzip" in headers.get("accept-encoding", "") and headers.get("sec-fetch-site", "") not in _FOREIGN
    if not accepted or len(answer.body) < LEAST:
        return answer
    more = [*answer.headers, ("Content-Encoding", "gzip")]
    return replace(answer, body=gzip.compress(answer.body, _LEVEL, mtime=0), headers=more)
