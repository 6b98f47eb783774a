"""The engine as the console sees it: HTTP requests to the admin, observability and FHIR APIs.

What arrives: paths and parameters.  What leaves: decoded JSON.  `BackendRefused` has the status and the error text of
the engine; `BackendDown` says that the engine did not answer.  The admin token is added here; it never reaches a
browser.

Source: interface specification "Operator UI".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from ipf.console.serving.pulse import NoAnswer, Pulse
from ipf.errors import Problem
from ipf.fhir.model.json import dumps, loads
from ipf.wire.client.remote_service import RemoteService, Response

WRITE_SECONDS = 300.0
"""The time limit of everything but reads: a trial or an installation compiles maps, which takes a busy machine long."""
_WRITE_FAILURES = 2
"""Questions without an answer that end a write: whether it was done is not known then."""
ACTOR = "X-Ipf-Actor"
"""The signed-in person on whose behalf the console writes; the engine's audit trail names him."""


class BackendDown(Exception):
    """The engine did not answer.  The text is the reason.

    `since`: the time of its last answer; None when it answers other requests.
    """

    def __init__(self, text: str, since: datetime | None = None) -> None:
        super().__init__(text)
        self.since = since


class BackendRefused(Exception):
    """The engine answered with an error.  `status`: HTTP status; the text is that of the engine."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


_Outcome = tuple[Any, BackendDown | BackendRefused | None]


class Backend:
    """`url`: address of the engine; `token`: of its admin API, None = it has none; `clock`: seconds and callLater.

    `fhir_url`: address of its FHIR listener; None: it is the same.
    """

    def __init__(
        self,
        service: RemoteService,
        url: str,
        token: str | None,
        clock: IReactorTime,
        fhir_url: str | None = None,
    ) -> None:
        self._service = service
        self._url = url.rstrip("/")
        self._fhir_url = self._url if fhir_url is None else fhir_url.rstrip("/")
        self._token = token
        self._now = clock.seconds
        self.pulse = Pulse(service, self._url, clock)
        self._fhir_pulse = self.pulse if self._fhir_url == self._url else Pulse(service, self._fhir_url, clock)
        self._shared: dict[str, tuple[float, Deferred[_Outcome]]] = {}

    async def shared(self, path: str, parameters: Mapping[str, Any] | None = None, seconds: float = 1.0) -> Any:
        """What `get` answers, at most so many seconds old: all pages that poll share it, and nobody is its actor."""
        key = f"{path}?{urlencode(parameters or {})}"
        known = self._shared.get(key)
        if known is None or self._now() - known[0] >= seconds:
            known = self._now(), Deferred.fromCoroutine(self._outcome(path, parameters))
            self._shared[key] = known
        waiting: Deferred[_Outcome] = Deferred()

        def passed_on(outcome: _Outcome) -> _Outcome:
            waiting.callback(outcome)
            return outcome

        known[1].addCallback(passed_on)
        found, problem = await waiting
        if problem is not None:
            self._shared.pop(key, None)
            raise problem
        return found

    async def _outcome(self, path: str, parameters: Mapping[str, Any] | None) -> _Outcome:
        """The answer, or why there is none."""
        try:
            return await self.get(path, parameters), None
        except (BackendDown, BackendRefused) as problem:
            return None, problem

    async def get(self, path: str, parameters: Mapping[str, Any] | None = None, actor: str = "") -> Any:
        """GET a path; the decoded body.  Parameters that are None or empty are left out."""
        return decoded(await self.call("GET", path, parameters, actor=actor))

    async def send(self, method: str, path: str, body: Any, actor: str) -> Any:
        """Send JSON on behalf of a person; the decoded body, None without one."""
        return decoded(await self.call(method, path, None, None if body is None else dumps(body), actor))

    async def fhir(
        self, path: str, query: Sequence[tuple[str, str]], access_token: str, body: Any = None, root: str = "/fhir"
    ) -> Any:
        """GET from `/fhir` with a person's access token, or POST a body; the decoded body of the answer.

        It is what is stored now: a person who follows a link from a message sees what that message wrote.
        """
        headers, target = (
            {"Accept": "application/fhir+json", "Cache-Control": "no-cache"},
            f"{self._fhir_url}{root}{path}" + (f"?{urlencode(query)}" if query else ""),
        )
        if access_token:
            headers["Authorization"] = f"Bearer {access_token}"
        if body is None:
            return decoded(await self._request("GET", target, None, headers))
        headers["Content-Type"] = "application/fhir+json"
        return decoded(await self._request("POST", target, dumps(body), headers))

    async def call(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        actor: str = "",
        content_type: str = "application/json",
    ) -> Response:
        """One request, whatever its answer.  BackendDown when there is none."""
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if actor:
            headers[ACTOR] = quote(actor, safe="@ .")
        if body is not None:
            headers["Content-Type"] = content_type
        given = {name: value for name, value in (parameters or {}).items() if value not in (None, "")}
        query = f"?{urlencode(given)}" if given else ""
        return await self._request(method, f"{self._url}{path}{query}", body, headers)

    async def _request(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        seconds = None if method == "GET" else WRITE_SECONDS
        pulse = self.pulse if url.startswith(f"{self._url}/admin") else self._fhir_pulse
        try:
            request = self._service.request(method, url, body, headers, seconds)
            return await pulse.watched(request, 1 if method == "GET" else _WRITE_FAILURES)
        except NoAnswer as none:
            raise BackendDown(str(none), none.since) from None


def decoded(response: Response) -> Any:
    """The JSON of an answer, None without a body.  BackendRefused for any status but 2xx."""
    if not 200 <= response.status < 300:
        raise BackendRefused(response.status, error_text(response))
    try:
        return loads(response.body) if response.body else None
    except Problem:
        raise BackendDown("the engine's answer is no JSON") from None


def error_text(response: Response) -> str:
    """What the engine says about an error: `message` of its error body, or the first issue of an OperationOutcome."""
    try:
        body = loads(response.body)
    except Problem:
        return f"HTTP {response.status}"
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return str(body["message"])
    issues = body.get("issue") if isinstance(body, dict) else None
    if isinstance(issues, list) and issues and isinstance(issues[0], dict):
        return str(issues[0].get("diagnostics") or issues[0].get("code") or f"HTTP {response.status}")
    return f"HTTP {response.status}"
