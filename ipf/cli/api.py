"""Requests to the admin API of a running service, each answered with JSON or with an error that says what to do.

What arrives: paths and parameters.  What leaves: decoded JSON.  Every failure is a :class:`Refused`, whose text is for
the person at the terminal: the service's own words, or why it could not be asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import treq
from twisted.internet.defer import CancelledError, TimeoutError
from twisted.internet.error import ConnectError, ConnectionRefusedError, DNSLookupError
from twisted.web.client import ResponseFailed, ResponseNeverReceived

from ipf.fhir.model.json import dumps, loads

_UNREACHABLE = (ConnectError, DNSLookupError, ResponseFailed, ResponseNeverReceived, TimeoutError, CancelledError)


class Refused(Exception):
    """What could not be done, for a person to read.  `hint`: what may help."""

    def __init__(self, text: str, hint: str = "", status: int | None = None) -> None:
        super().__init__(text)
        self.hint = hint
        self.status = status


@dataclass(frozen=True, slots=True)
class Api:
    """A service: `base` is its HTTP address without a path; `token` goes into `Authorization`.

    `reactor`: what the command runs on.
    """

    base: str
    token: str | None = None
    seconds: float = 30.0
    reactor: Any = None

    async def get(self, path: str, **parameters: Any) -> Any:
        """JSON of a GET; parameters that are None are left out."""
        return await self.call("GET", path, parameters)

    async def post(self, path: str, body: Any = None, **parameters: Any) -> Any:
        """JSON of a POST with a JSON body."""
        return await self.call("POST", path, parameters, None if body is None else dumps(body))

    async def call(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """The decoded answer; None when it has no body."""
        status, content = await self._send(method, path, parameters or {}, body, content_type)
        if 200 <= status < 300:
            return loads(content) if content else None
        raise _refused(status, content)

    async def upload(self, path: str, content: bytes, content_type: str) -> Any:
        """JSON of a POST with a body of another type."""
        return await self.call("POST", path, body=content, content_type=content_type)

    async def reach(self, path: str) -> tuple[int, Any]:
        """Status and JSON of a GET, whatever the status is."""
        status, content = await self._send("GET", path, {}, None, "")
        return status, _decoded(content)

    async def _send(
        self, method: str, path: str, parameters: Mapping[str, Any], body: bytes | None, kind: str
    ) -> tuple[int, bytes]:
        headers: dict[bytes | str, bytes | str] = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = kind
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            answer = await treq.request(
                method,
                self.base.rstrip("/") + path,
                params={name: str(value) for name, value in parameters.items() if value is not None},
                headers=headers,
                data=body,
                timeout=self.seconds,
                allow_redirects=False,
                persistent=False,
            )
            return answer.code, await answer.content()
        except _UNREACHABLE as why:
            raise Refused(_unreachable(self.base, why), "is the service running there? See --url.") from None


def _refused(status: int, content: bytes) -> Refused:
    said = _decoded(content)
    text = said.get("message") if isinstance(said, dict) else None
    if status == 401:
        hint = "give the admin token: --token-file, or IPF_ADMIN_AUTH_TOKEN"
    elif status == 404 and text is None:
        hint = "this release of the service has no such address"
    else:
        hint = ""
    return Refused(f"{text or 'the service refused'} (HTTP {status})", hint, status)


def segment(text: object) -> str:
    """A value as one segment of a path."""
    return quote(str(text), safe="")


def _decoded(content: bytes) -> Any:
    try:
        return loads(content)
    except Exception:
        return None


def _unreachable(base: str, why: BaseException) -> str:
    if isinstance(why, ConnectionRefusedError):
        return f"nobody listens at {base}"
    if isinstance(why, DNSLookupError):
        return f"the host of {base} is not known"
    if isinstance(why, TimeoutError | CancelledError):
        return f"{base} does not answer in time"
    return f"{base} cannot be reached ({type(why).__name__})"
