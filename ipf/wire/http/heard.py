"""The headers that a connection has sent, and what they mean for a request that sends them again.

The same are the same byte for byte.  A few that are another with each request, and say no more than themselves (a
trace, an id, a condition), may have another value; all that could change how a request is read, whom it is from or
where it goes may not.  Lines are compared in a time that does not tell where they differ: one of them may be a token,
and one connection of a proxy may carry many clients.

Source: RFC 9110 section 5, RFC 9112 section 5.
"""

from __future__ import annotations

import re
from hmac import compare_digest

from twisted.web.http_headers import Headers

from ipf.ports import Credential
from ipf.telemetry import correlation
from ipf.wire.http.asked import fields_of

_CORRELATION = correlation.HEADER.lower()
_OWN = frozenset((
    _CORRELATION, correlation.TRACEPARENT, "tracestate", "x-request-id", "request-id", "x-b3-traceid", "x-b3-spanid",
    "x-b3-parentspanid", "b3", "x-amzn-trace-id", "x-cloud-trace-context", "x-forwarded-for", "if-none-match",
    "if-modified-since",
))  # fmt: skip
_FIELD = re.compile(rb"([A-Za-z0-9-]+): ?([!-~](?:[ -~]*[!-~])?)")
_FOLD = (b" ", b"\t")


class Meaning:
    """What headers mean: by their lower-case names, the two that name the trace, and what stands for the token."""

    __slots__ = ("bases", "correlation", "credential", "fields", "traceparent")

    def __init__(self, headers: Headers, credential: Credential | None) -> None:
        self.fields = fields_of(headers.getAllRawHeaders())
        self.correlation = _last(headers, correlation.HEADER)
        self.traceparent = _last(headers, correlation.TRACEPARENT)
        self.credential = credential
        self.bases: dict[bytes, str] = {}  # addresses below which resources are known, by the first of a path

    def but(self, changed: dict[str, bytes]) -> Meaning:
        """The same with other values of some headers."""
        made: Meaning = object.__new__(Meaning)
        made.fields = self.fields | {name: value.decode("ascii") for name, value in changed.items()}
        made.correlation = changed.get(_CORRELATION, self.correlation)
        made.traceparent = changed.get(correlation.TRACEPARENT, self.traceparent)
        made.credential, made.bases = self.credential, self.bases
        return made


def _last(headers: Headers, name: str) -> bytes | None:
    values = headers.getRawHeaders(name.encode())
    return values[-1] if values else None


class Heard:
    """One block of headers.  `raw`: from the end of the first line to the empty one; `headers`: as Twisted read it.

    What it means is found out when it is first repeated: most blocks of a connection that changes them never are.
    """

    __slots__ = ("_does_change", "_headers", "_lines", "_meaning", "_names", "_raw", "credential")

    def __init__(self, raw: bytes, headers: Headers, credential: Credential | None) -> None:
        self.credential = credential
        self._raw = raw
        self._headers = headers
        self._meaning: Meaning | None = None
        self._lines: list[bytes] = []
        self._names: dict[int, bytes] = {}
        self._does_change = False  # the last one did, and so the next is not compared as a whole first

    def repeated(self, data: bytes) -> tuple[int, Meaning] | None:
        """Where the first line of `data` ends, and what the headers behind it mean; None when they are others."""
        at = len(data) - len(self._raw)
        if at > 0 and not self._does_change and compare_digest(data[at:], self._raw):
            return at, self._meant()
        at = data.find(b"\r\n")
        lines = data[at:].split(b"\r\n")
        if at <= 0 or len(lines) != self._raw.count(b"\r\n") + 1:
            return None
        changed = self._changed(lines)
        self._does_change = bool(changed)
        return None if changed is None else (at, self._meant().but(changed))

    def _meant(self) -> Meaning:
        if self._meaning is None:
            self._meaning = Meaning(self._headers, self.credential)
        return self._meaning

    def _changed(self, lines: list[bytes]) -> dict[str, bytes] | None:
        """Other values by lower-case names; None when lines differ that must not."""
        if not self._lines:
            self._lines = self._raw.split(b"\r\n")
            self._names = dict(self._own_lines())
        found = {}
        pairs = enumerate(zip(lines, self._lines, strict=True))
        for number in [number for number, (new, old) in pairs if not compare_digest(new, old)]:
            field = _FIELD.fullmatch(lines[number])
            if field is None or self._names.get(number) != field[1]:
                return None
            found[field[1].decode("ascii").lower()] = field[2]
        return found

    def _own_lines(self) -> list[tuple[int, bytes]]:
        """The numbers and names of lines that may change: whole headers that are there once."""
        fields = [(number, _FIELD.fullmatch(line)) for number, line in enumerate(self._lines)]
        return [
            (number, field[1])
            for number, field in fields
            if field is not None
            and field[1].decode("ascii").lower() in _OWN
            and not self._lines[number + 1].startswith(_FOLD)
            and len(self._headers.getRawHeaders(field[1]) or ()) == 1
        ]
