"""Content codings of HTTP answers: gzip and zstd, as `Accept-Encoding` asks for them.

Text of at least LEAST bytes is compressed; a Binary's image or PDF is compressed already.  A request that the page of
another site makes with what the browser adds by itself (`Sec-Fetch-Site` without a token) gets its answer as it is: its
size would tell that page what stands in it (BREACH).  Large bodies are compressed in a thread.

Source: RFC 9110 sections 8.4, 12.5.3; RFC 8878; https://www.w3.org/TR/fetch-metadata/; docs/explanation/security.md
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import zstandard

from ipf.ports import Answer, Handler, Request
from ipf.ports.threads import RunInThread, run_by_size

LEAST = 1_000
"""Bytes of an answer that is worth it."""
_GZIP_LEVEL = 1  # level 6 takes twice the time of level 1 for 7 % less
_ZSTD_LEVEL = 3
_FOREIGN = ("cross-site", "same-site")
_TEXTS = ("application/fhir+", "application/json", "application/xml", "application/problem+json", "text/")
_VARY = ("Vary", "Accept-Encoding")


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, _GZIP_LEVEL, mtime=0)


def _zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(body)


_CODINGS: dict[str, Callable[[bytes], bytes]] = {"zstd": _zstd, "gzip": _gzip}
"""In the order in which they are chosen when the client has no preference."""


def compressing(handle: Handler, run_in_thread: RunInThread) -> Handler:
    """The handler with its answers compressed for clients that accept it."""

    async def compressed_answer(request: Request) -> Answer:
        return await compressed(request, await handle(request), run_in_thread)

    return compressed_answer


async def compressed(request: Request, answer: Answer, run_in_thread: RunInThread) -> Answer:
    """The answer in the coding that the client prefers."""
    if not answer.content_type.startswith(_TEXTS) or any(name == "Content-Encoding" for name, _ in answer.headers):
        return answer
    answer = replace(answer, headers=[*answer.headers, _VARY])
    coding = coding_for(request)
    if coding is None or len(answer.body) < LEAST:
        return answer
    body = await run_by_size(len(answer.body), run_in_thread, lambda: _CODINGS[coding](answer.body))
    return replace(answer, body=body, headers=[*answer.headers, ("Content-Encoding", coding)])


def coding_for(request: Request) -> str | None:
    """The coding of the answer to a request; None: as it is."""
    headers = request.headers
    accepted = headers.get("accept-encoding")
    if not accepted or (headers.get("sec-fetch-site", "") in _FOREIGN and "authorization" not in headers):
        return None
    return _preferred(accepted[:500])


@lru_cache(maxsize=256)
def _preferred(accepted: str) -> str | None:
    """The supported coding with the highest weight; None where the client likes the body as it is better."""
    weights = dict(filter(None, map(_weighted, accepted.lower().split(","))))
    others = weights.get("*", 0.0)
    best = max(_CODINGS, key=lambda name: weights.get(name, others))
    weight = weights.get(best, others)
    return best if weight > 0 and weight >= weights.get("identity", 0.0) else None


def _weighted(item: str) -> tuple[str, float] | None:
    """A coding with its weight; None for what is not one."""
    name, _, rest = item.partition(";")
    weight = rest.strip()
    if not weight:
        return name.strip().replace("x-gzip", "gzip"), 1.0
    key, _, number = weight.partition("=")
    try:
        found = float(number) if key.strip() == "q" else -1.0
    except ValueError:
        return None
    return (name.strip(), found) if 0.0 <= found <= 1.0 else None
