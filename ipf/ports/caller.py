"""The caller of a request.

`wire/http/oidc.py` creates it from a verified token; `Request.caller` and `Unit.caller` carry it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """One identity.

    `subject`, `client`, `issuer`: claims of the token.  `scopes`: as granted, in order.  `tenant`: claim of the token.
    `patient`: logical id of the patient in context.  `user`: `fhirUser`, such as `Practitioner/7`.  `expires_at`: end
    of the token in seconds since 1970.  `is_system`: a part of this server.  `is_open`: authentication is off.
    `purpose`: the purposes of use that the token names, each `system|code` or `code`.  `break_glass`: this request
    lifts labels and Consents; it is never stored.
    """

    subject: str = ""
    client: str = ""
    scopes: tuple[str, ...] = ()
    tenant: str | None = None
    patient: str | None = None
    user: str | None = None
    issuer: str = ""
    expires_at: float | None = None
    is_system: bool = False
    is_open: bool = False
    purpose: tuple[str, ...] = ()
    break_glass: bool = False

    @property
    def is_unlimited(self) -> bool:
        """Whether no scopes are required: this server itself, or any caller while authentication is off."""
        return self.is_system or self.is_open

    @property
    def is_anonymous(self) -> bool:
        """Whether the caller is unknown."""
        return not (self.subject or self.client or self.is_unlimited)

    @property
    def is_unknown(self) -> bool:
        """Whether nobody said who he is: without a token, or while authentication is off."""
        return not (self.subject or self.client or self.is_system)


SYSTEM = Caller(subject="ipf", client="ipf", is_system=True)
"""The caller of conversion, activation, delivery, jobs and the admin API."""

OPEN = Caller(subject="", is_open=True)
"""Every caller while authentication is off."""

ANONYMOUS = Caller()
"""A request without a token while authentication is on; it may read the CapabilityStatement."""
