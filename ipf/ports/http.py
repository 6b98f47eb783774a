"""HTTP requests and answers as values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from ipf.ports.base import DEFAULT_TENANT
from ipf.ports.caller import OPEN, Caller


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request without its socket.  `path`: segments after `/fhir`; `headers`: lower-case names."""

    method: str
    path: tuple[str, ...]
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]
    body: bytes
    base_url: str
    correlation_id: str
    tenant: str = DEFAULT_TENANT
    caller: Caller = OPEN


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer without its socket."""

    status: int
    body: bytes = b""
    headers: Sequence[tuple[str, str]] = ()
    content_type: str = "application/fhir+json;charset=utf-8"


Handler = Callable[[Request], Awaitable[Answer]]
