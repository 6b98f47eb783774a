"""The server that is measured: requests, and what a run has created, which it deletes at its end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from treq.client import HTTPClient
from twisted.internet.defer import Deferred, gatherResults
from twisted.web.client import Agent, HTTPConnectionPool

FHIR_JSON = "application/fhir+json"
TAGS = "urn:ipf:conformance"
SECONDS = 120.0
"""For one request: a slow server is no wrong one."""
_ROUNDS = 4

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer.  `body`: parsed JSON, None for any other body."""

    status: int
    headers: Mapping[str, str]
    body: Any
    text: str

    @property
    def id(self) -> str:
        """The id of the resource in the body, or in Location."""
        if isinstance(self.body, dict) and self.body.get("id") and self.body.get("resourceType") != "Bundle":
            return str(self.body["id"])
        parts = urlsplit(self.headers.get("location", "")).path.split("/")
        return parts[parts.index("_history") - 1] if "_history" in parts else parts[-1]

    @property
    def version(self) -> str:
        """The version in ETag."""
        return self.headers.get("etag", "").removeprefix("W/").strip('"')

    def __str__(self) -> str:
        issues = self.body.get("issue", ()) if isinstance(self.body, dict) else ()
        details = [
            one.get("diagnostics") or (one.get("details") or {}).get("text") or one.get("code") for one in issues
        ]
        return f"{self.status} {'; '.join(map(str, details))}"[:200].strip()


@dataclass(slots=True)
class Server:
    """One server and one run.  Every resource of the run has the tag `run`."""

    base: str
    reactor: Any
    headers: dict[str, str] = field(default_factory=dict)
    run: str = field(default_factory=lambda: uuid4().hex[:12])
    created: list[str] = field(default_factory=list)
    _client: Any = None

    def __post_init__(self) -> None:
        pool = HTTPConnectionPool(self.reactor)
        pool.maxPersistentPerHost = 50
        self._client = HTTPClient(Agent(self.reactor, connectTimeout=SECONDS, pool=pool))

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """One request.  `path`: below the base, or a whole URL; header names with `_` for `-`."""
        sent = {"Accept": FHIR_JSON, **self.headers}
        data = None
        if body is not None:
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            sent["Content-Type"] = FHIR_JSON
        sent |= {name.replace("_", "-").title(): value for name, value in headers.items()}
        url = path if path.startswith("http") else f"{self.base}/{path}" if path else self.base
        response = await self._client.request(method, url, headers=sent, data=data, timeout=SECONDS)
        text = (await response.content()).decode("utf-8", "replace")
        found = {name.decode().lower(): values[0].decode() for name, values in response.headers.getAllRawHeaders()}
        try:
            parsed = json.loads(text) if text else None
        except ValueError:
            parsed = None
        reply = Reply(response.code, found, parsed, text)
        self._note(method, path, reply)
        return reply

    async def at_once(self, *requests: tuple[Any, ...], **headers: str) -> list[Reply]:
        """Requests (method, path, body) that are all sent before the first answer is awaited."""
        waiting = [Deferred.fromCoroutine(self.send(*one, **headers)) for one in requests]
        found: list[Reply] = await gatherResults(waiting, consumeErrors=True)
        return found

    def tagged(self, resource: Json, *more: str) -> Json:
        """The resource with the tag of the run, and one for each further word."""
        codes = [self.run, *(f"{self.run}-{one}" for one in more)]
        return {**resource, "meta": {"tag": [{"system": TAGS, "code": code} for code in codes]}}

    def tag(self, *more: str) -> str:
        """The search for what the run has made, or for what has a further tag."""
        return f"_tag={TAGS}%7C{'-'.join((self.run, *more))}"

    def _note(self, method: str, path: str, reply: Reply) -> None:
        """Remember what was created."""
        if reply.status == 201 and reply.headers.get("location"):
            self._created(reply.headers["location"])
        elif reply.status == 201 and method == "PUT" and path.count("/") == 1:
            self.created.append(path)
        if isinstance(reply.body, dict) and str(reply.body.get("type", "")).endswith("-response"):
            for entry in reply.body.get("entry", ()):
                answer = entry.get("response", {})
                if str(answer.get("status", "")).startswith("201") and answer.get("location"):
                    self._created(answer["location"])

    def _created(self, location: str) -> None:
        parts = urlsplit(location).path.split("/")
        parts = parts[: parts.index("_history")] if "_history" in parts else parts
        self.created.append("/".join(parts[-2:]))

    async def clean(self) -> list[str]:
        """Delete what was created, the newest first, in rounds: some servers refuse what is referenced.

        The references that are still there.
        """
        left = list(dict.fromkeys(reversed(self.created)))
        for _ in range(_ROUNDS):
            kept = []
            for reference in left:
                if (await self.send("DELETE", reference)).status not in (200, 202, 204, 404, 410):
                    kept.append(reference)
            if not kept:
                return []
            left = kept
        return left
