"""HTTP requests and responses as values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from ipf.ports.audit_draft import AuditDraft
from ipf.ports.base import DEFAULT_TENANT
from ipf.ports.caller import OPEN, Caller
from ipf.ports.fhir.resources import Version


@dataclass(slots=True)
class Request:
    """An HTTP request without its socket.  `path`: segments after `/fhir`; `headers`: lower-case names.

    `address`: the IP address of the client; "" when unknown.  `request_id`: X-Request-Id as the client sent it, or "".
    `draft`: of the audit records of what it writes.  `job`: the id of the job that performs it, or "".
    `route`: the path of the operation in the table of operations, or "".
    """

    method: str
    path: tuple[str, ...]
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]
    body: bytes
    base_url: str
    correlation_id: str
    tenant: str = DEFAULT_TENANT
    caller: Caller = OPEN
    address: str = ""
    request_id: str = ""
    draft: AuditDraft | None = None
    job: str = ""
    route: str = ""

    def by(self, caller: Caller, tenant: str = "") -> Request:
        """The same request with this caller, and with this tenant unless it is "".

        Runs for every request; `dataclasses.replace` is slower.
        """
        return Request(
            self.method, self.path, self.query, self.headers, self.body, self.base_url, self.correlation_id,
            tenant or self.tenant, caller, self.address, self.request_id, self.draft, self.job,
            self.route,
        )  # fmt: skip


@dataclass(slots=True)
class Answer:
    """An HTTP response without its socket.  `about`: the versions read or written, for the audit trail."""

    status: int
    body: bytes = b""
    headers: Sequence[tuple[str, str]] = ()
    content_type: str = "application/fhir+json;charset=utf-8"
    about: Sequence[Version] = ()


Handler = Callable[[Request], Awaitable[Answer]]

Identify = Callable[[Request], Awaitable[Request]]
"""Returns the request with the caller and tenant of its token.  Problem UNAUTHORIZED."""
