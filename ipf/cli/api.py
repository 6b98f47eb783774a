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
from twisted.web.error import SchemeNotSupported

from ipf.errors import Problem
from ipf.fhir.model.json import dumps, loads

_NO_TOKEN = "set the admin token: --token-file FILE, or IPF_ADMIN_AUTH_TOKEN"
_OTHER_TOKEN = "the service has another token: give the IPF_ADMIN_AUTH_TOKEN of the service, by --token-file FILE"
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
            return self._read(content)
        raise self._refused(status, content)

    async def download(self, path: str, **parameters: Any) -> bytes:
        """GET a path; the body as it came.  Refused for any status but 2xx."""
        status, content = await self._send("GET", path, parameters, None, "")
        if 200 <= status < 300:
            return content
        raise self._refused(status, content)

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
            raise Refused(*_unreachable(self.base, why)) from None
        except (ValueError, SchemeNotSupported):
            raise Refused(f"{self.base} is no HTTP address", "such as --url http://127.0.0.1:8090") from None

    def _read(self, content: bytes) -> Any:
        try:
            return loads(content) if content else None
        except Problem:
            raise Refused(f"the response of {self.base} is no JSON", "does --url name an ipf?") from None

    def _refused(self, status: int, content: bytes) -> Refused:
        error = _decoded(content)
        text = error.get("message") if isinstance(error, dict) else None
        if status == 401:
            hint = _OTHER_TOKEN if self.token else _NO_TOKEN
        elif status == 404 and text is None:
            hint = "does --url name an ipf? A service of another release may not have this path: `ipfctl --version`"
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


def _unreachable(base: str, why: BaseException) -> tuple[str, str]:
    """What went wrong, and what to do."""
    if isinstance(why, ConnectionRefusedError):
        return f"{base} refuses connections", "is the service running there? Name its address: --url, or IPFCTL_URL"
    if isinstance(why, DNSLookupError):
        return f"the host of {base} is unknown", "name the address of the service: --url, or IPFCTL_URL"
    reasons = [getattr(one, "value", one) for one in getattr(why, "reasons", None) or [why]]
    if any(isinstance(one, TimeoutError | CancelledError) for one in reasons):
        return f"{base} does not respond in time", "`ipfctl status` shows its health; --timeout waits for longer"
    texts = ", ".join(str(one) or type(one).__name__ for one in reasons)
    return f"{base} cannot be reached ({texts})", "is it the address of the service, http or https? See --url"
