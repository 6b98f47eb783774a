"""Requests to the admin API of a running service.

What arrives: paths and parameters.  What leaves: decoded JSON.  Every failure is a :class:`Refused`; its text is the
error message of the service, or the reason why the service could not be reached.
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
    """A command failed.  The text is shown to the operator.  `hint`: what may help.  `status`: of the HTTP response."""

    def __init__(self, text: str, hint: str = "", status: int | None = None) -> None:
        super().__init__(text)
        self.hint = hint
        self.status = status


@dataclass(frozen=True, slots=True)
class Api:
    """The admin API of a service.  `base`: its HTTP address without a path; `token`: the bearer token, if any."""

    base: str
    token: str | None = None
    seconds: float = 30.0
    reactor: Any = None

    async def get(self, path: str, **parameters: Any) -> Any:
        """GET a path; the decoded response.  Parameters that are None are left out."""
        return await self.call("GET", path, parameters)

    async def post(self, path: str, body: Any = None, **parameters: Any) -> Any:
        """POST a JSON body; the decoded response."""
        return await self.call("POST", path, parameters, None if body is None else dumps(body))

    async def call(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """Send a request; the decoded response, None if it has no body.  Refused for any status but 2xx."""
        status, content = await self._send(method, path, parameters or {}, body, content_type)
        if 200 <= status < 300:
            return loads(content) if content else None
        raise _refused(status, content)

    async def download(self, path: str, **parameters: Any) -> bytes:
        """GET a path; the body as it came.  Refused for any status but 2xx."""
        status, content = await self._send("GET", path, parameters, None, "")
        if 200 <= status < 300:
            return content
        raise _refused(status, content)

    async def upload(self, path: str, content: bytes, content_type: str) -> Any:
        """POST a body of another type; the decoded response."""
        return await self.call("POST", path, body=content, content_type=content_type)

    async def reach(self, path: str) -> tuple[int, Any]:
        """GET a path; status and decoded body, whatever the status is."""
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
            response = await treq.request(
                method,
                self.base.rstrip("/") + path,
                params={name: str(value) for name, value in parameters.items() if value is not None},
                headers=headers,
                data=body,
                timeout=self.seconds,
                allow_redirects=False,
                persistent=False,
            )
            return response.code, await response.content()
        except _UNREACHABLE as why:
            raise Refused(_unreachable(self.base, why), "is the service running there? See --url.") from None


def _refused(status: int, content: bytes) -> Refused:
    error = _decoded(content)
    text = error.get("message") if isinstance(error, dict) else None
    if status == 401:
        hint = "set the admin token: --token-file, or IPF_ADMIN_AUTH_TOKEN"
    elif status == 404 and text is None:
        hint = "this release of the service does not have this path"
    else:
        hint = ""
    return Refused(f"{text or 'the service refused the request'} (HTTP {status})", hint, status)


def segment(text: object) -> str:
    """A value, quoted as one segment of a path."""
    return quote(str(text), safe="")


def _decoded(content: bytes) -> Any:
    try:
        return loads(content)
    except Exception:
        return None


def _unreachable(base: str, why: BaseException) -> str:
    if isinstance(why, ConnectionRefusedError):
        return f"{base} refuses connections"
    if isinstance(why, DNSLookupError):
        return f"the host of {base} is unknown"
    if isinstance(why, TimeoutError | CancelledError):
        return f"{base} does not respond in time"
    return f"{base} cannot be reached ({type(why).__name__})"
