"""The caller of a request, as every package knows it.

It is made in one place (`wire/http/oidc.py`, of a verified token) and travels in `Request.caller` and `Unit.caller`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """One identity.

    `subject`, `client`, `issuer`: as the token names them.  `scopes`: as granted, in order.  `tenant`: its claim.
    `patient`: logical id of the patient in context.  `user`: `fhirUser`, such as `Practitioner/7`.  `expires_at`: end
    of the token in seconds since 1970.  `is_system`: a part of this server.  `is_open`: authentication is off.
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

    @property
    def is_unlimited(self) -> bool:
        """Whether it needs no scopes: this server itself, or anybody while authentication is off."""
        return self.is_system or self.is_open

    @property
    def is_anonymous(self) -> bool:
        """Whether the caller is not known."""
        return not (self.subject or self.client or self.is_unlimited)


SYSTEM = Caller(subject="ipf", client="ipf", is_system=True)
"""Conversion, activation, delivery, jobs and the admin API act as this."""

OPEN = Caller(subject="", is_open=True)
"""Everybody, while authentication is off."""

ANONYMOUS = Caller()
"""A request without a token, while authentication is on: it may see metadata."""
