"""The settings of the operator console, `twistd ipf-ui`: those of the process, and those of sign-in.

The process reads its settings once at start.  The three `OIDC_*` variables are read at each request, so that they can
be set while the console runs.

Sources: interface specification "Operator UI"; decisions section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from ipf.config.parsers import http_url, integer, one_of, optional, text
from ipf.config.variables import Variable, variable

OIDC = ("OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET")


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """All settings of one console process."""

    listen: str = variable("IPF_UI_LISTEN", text, "tcp:3000", "endpoint of the operator console")
    engine_url: str = variable(
        "IPF_UI_ENGINE_URL", http_url, "http://127.0.0.1:8090", "address of the engine that the console shows"
    )
    fhir_url: str | None = variable(
        "IPF_UI_FHIR_URL", http_url, None, "address of its FHIR listener (IPF_FHIR_LISTEN); unset: the engine's"
    )
    base_url: str | None = variable(
        "IPF_UI_BASE_URL", http_url, None, "address of the console in a browser; unset: as the browser addressed it"
    )
    admin_token: str | None = variable("IPF_ADMIN_AUTH_TOKEN", optional, None, "token of the admin API", secret=True)
    scope: str = variable("IPF_UI_SCOPE", text, "openid profile email", "scopes of the sign-in; add those for /fhir")
    roles_claim: str = variable("IPF_UI_ROLES_CLAIM", text, "roles", "claim of the ID token with the roles")
    viewer_role: str = variable("IPF_UI_VIEWER_ROLE", text, "ipf-viewer", "role that may look")
    operator_role: str = variable("IPF_UI_OPERATOR_ROLE", text, "ipf-operator", "role that may also retry and decide")
    admin_role: str = variable("IPF_UI_ADMIN_ROLE", text, "ipf-admin", "role that may also install maps and profiles")
    masking: str = variable(
        "IPF_UI_MASK", one_of("none", "viewer", "operator"), "none", "roles up to this one see patient data masked"
    )
    log_format: str = variable(
        "IPF_LOG_FORMAT", one_of("auto", "json", "human"), "auto", "auto: human on a terminal, otherwise json"
    )
    idle_minutes: int = variable("IPF_UI_IDLE_MINUTES", integer(1, 1440), 30, "idle minutes that end a session")
    session_hours: int = variable("IPF_UI_SESSION_HOURS", integer(1, 168), 12, "hours that a session lasts at most")


@dataclass(frozen=True, slots=True)
class Oidc:
    """How people sign in."""

    issuer: str
    client_id: str
    client_secret: str


def oidc(environ: Mapping[str, str]) -> Oidc | tuple[str, ...]:
    """How people sign in now, or the names of the variables that are missing."""
    values = [environ.get(name, "").strip() for name in OIDC]
    missing = tuple(name for name, value in zip(OIDC, values, strict=True) if not value)
    return missing or Oidc(*values)


def console_variables() -> dict[str, Variable]:
    """The variables of the console by name."""
    return {row.name: row for row in (one.metadata["variable"] for one in fields(ConsoleSettings))}
