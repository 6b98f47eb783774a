"""Conflicts between settings that are each valid.

What arrives: all settings of a service.  What leaves: a sentence for each conflict.  It begins with the variable to
change and never shows a secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from ipf.config.partners import without_partner
from ipf.config.roles import CONVERT, DELIVER, FHIR, POLL, RECEIVE
from ipf.config.settings import Settings

_DEFAULT_TENANT = "default"


def conflicts(settings: Settings) -> Iterator[str]:
    """Every conflict."""
    checks = (_databases, _roles, _tokens, without_partner, _listeners, _tenants, _feed)
    return chain.from_iterable(check(settings) for check in checks)


def _databases(settings: Settings) -> Iterator[str]:
    if (settings.db_url is None) != (settings.fhir_db_url is None):
        missing = "IPF_DB_URL" if settings.db_url is None else "IPF_FHIR_DB_URL"
        yield f"{missing}: set both database URLs, or neither to use the embedded PostgreSQL"
    if settings.db_url is not None and settings.db_url == settings.fhir_db_url:
        yield "IPF_FHIR_DB_URL: must name another database than IPF_DB_URL"
    if settings.fhir_read_db_url is not None and settings.fhir_db_url is None:
        yield "IPF_FHIR_READ_DB_URL: requires IPF_FHIR_DB_URL; the embedded PostgreSQL has no standby"


def _roles(settings: Settings) -> Iterator[str]:
    """A process with roles but nothing to run, or whose work no process could go on with."""
    if not settings.running:
        off = "IPF_WORKER_ENABLED" if CONVERT in settings.roles else "IPF_POLLING_ENABLED"
        yield f"IPF_ROLES: with {off}=false there is nothing to run"
    if settings.db_url is not None or settings.fhir_db_url is not None:
        return
    named, needs = (
        set(settings.roles),
        "set IPF_DB_URL and IPF_FHIR_DB_URL: no other process uses an embedded PostgreSQL",
    )
    if named & {RECEIVE, POLL} and CONVERT not in named:
        yield f"IPF_ROLES: {_first(named, RECEIVE, POLL)} without convert leaves messages to other processes; {needs}"
    if (FHIR in named or (CONVERT in named and settings.fhir_url is None)) and DELIVER not in named:
        yield f"IPF_ROLES: {_first(named, CONVERT, FHIR)} without deliver leaves events to other processes; {needs}"


def _first(named: set[str], *roles: str) -> str:
    return next(role for role in roles if role in named)


def _tokens(settings: Settings) -> Iterator[str]:
    if settings.fhir_token_url and not (settings.fhir_client_id and settings.fhir_client_secret):
        missing = "IPF_FHIR_CLIENT_SECRET" if settings.fhir_client_id else "IPF_FHIR_CLIENT_ID"
        yield f"{missing}: IPF_FHIR_TOKEN_URL requires a client id and a client secret"
    if settings.auth_enabled and not settings.auth_issuer:
        yield "SUBSCRIPTION_SERVICE_AUTH_ISSUER: required when SUBSCRIPTION_SERVICE_AUTH_ENABLED is true"
    if settings.admin_read_token and not settings.admin_token:
        yield "IPF_ADMIN_AUTH_TOKEN: required with IPF_ADMIN_READ_TOKEN; without it anybody could write"
    if settings.admin_read_token and settings.admin_read_token == settings.admin_token:
        yield "IPF_ADMIN_READ_TOKEN: must differ from IPF_ADMIN_AUTH_TOKEN"


def _listeners(settings: Settings) -> Iterator[str]:
    of_mllp, of_http = ({one.name for one in found} for found in (settings.mllp_listen, settings.hl7_http_listen))
    listening, both = of_mllp | of_http | set(dict(settings.file_sources)), of_mllp & of_http
    if both:
        yield f"IPF_HL7_HTTP_LISTEN: {min(both)} is the name of a listener of IPF_MLLP_LISTEN"
    named_by = {"IPF_MLLP_TENANTS": settings.mllp_tenants, "IPF_MLLP_ALLOW": settings.mllp_allow}
    for variable, given in named_by.items():
        for name, _ in given:
            if name and name not in listening:
                yield f"{variable}: no listener or file source is named {name}"


def _tenants(settings: Settings) -> Iterator[str]:
    """Nobody could read the messages of a tenant that is not served."""
    if not settings.tenants:
        return
    named_by = {"IPF_MLLP_TENANTS": settings.mllp_tenants, "IPF_MLLP_CLIENT_NAMES": settings.mllp_client_names}
    for variable, given in named_by.items():
        for name, tenant in given:
            if tenant and tenant not in (_DEFAULT_TENANT, *settings.tenants):
                yield f"{variable}: {tenant}, the tenant of {name}, is not among IPF_TENANTS"


def _feed(settings: Settings) -> Iterator[str]:
    """The feed of audit records to a log server."""
    if (settings.audit_syslog_certificate is None) != (settings.audit_syslog_key is None):
        missing = "KEY" if settings.audit_syslog_key is None else "CERTIFICATE"
        yield f"IPF_AUDIT_SYSLOG_{missing}: set both the certificate and the key for the log server, or neither"
    if settings.audit_syslog is not None and not settings.audit_enabled:
        yield "IPF_AUDIT_SYSLOG: requires SUBSCRIPTION_SERVICE_AUDIT_ENABLED"
