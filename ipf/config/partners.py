"""Settings that have no effect without another one.

Whoever sets one relies on it: a key set without an issuer, or the names of client certificates without a listener that
asks for certificates, would leave something open that the operator takes for closed.  The service does not start then.
Limits, timeouts and intervals of a part that is not used are no such settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from ipf.config.roles import FHIR, RECEIVE
from ipf.config.settings import Settings

_DEFAULT_TENANT = "default"
_TOKENS = (
    "requires SUBSCRIPTION_SERVICE_AUTH_ISSUER, and not SUBSCRIPTION_SERVICE_AUTH_ENABLED=false: "
    "without tokens everybody sees everything"
)


@dataclass(frozen=True, slots=True)
class _Need:
    """`is_met`: whether the partner of the settings `of` is set.  `text`: what to set, or to remove."""

    of: tuple[str, ...]
    is_met: Callable[[Settings], object]
    text: str


_NEEDS = (
    _Need(
        ("auth_jwks_url", "auth_audience", "auth_patient_claim", "auth_skew_seconds", "criteria_need_search"),
        lambda found: found.auth_issuer,
        "requires SUBSCRIPTION_SERVICE_AUTH_ISSUER: without it no request needs a token",
    ),
    _Need(("multitenancy", "access_labels", "access_consent"), lambda found: found.auth_enabled, _TOKENS),
    _Need(
        ("access_trusted_clients",),
        lambda found: found.access_labels or found.access_consent,
        "requires IPF_ACCESS_LABELS or IPF_ACCESS_CONSENT: nothing else limits clients",
    ),
    _Need(
        ("tenants", "tenant_claim"),
        lambda found: found.has_tenants,
        "requires SUBSCRIPTION_SERVICE_MULTITENANCY=enabled: without it all data are of one tenant",
    ),
    _Need(("mapping_source",), lambda found: found.mapping_url, "requires IPF_MAPPING_URL"),
    _Need(
        ("fhir_token_url",),
        lambda found: found.fhir_url or found.mapping_url,
        "requires IPF_FHIR_URL or IPF_MAPPING_URL",
    ),
    _Need(
        ("fhir_client_id", "fhir_client_secret", "fhir_scope"),
        lambda found: found.fhir_token_url,
        "requires IPF_FHIR_TOKEN_URL: without it requests carry no token",
    ),
    _Need(
        ("audit_syslog_ca", "audit_syslog_certificate", "audit_syslog_key", "audit_syslog_surfaces"),
        lambda found: found.audit_syslog,
        "requires IPF_AUDIT_SYSLOG: without it no audit record is sent",
    ),
    _Need(
        ("hl7_http_token",),
        lambda found: found.hl7_http_listen or not found.runs(RECEIVE),
        "requires IPF_HL7_HTTP_LISTEN",
    ),
    _Need(
        ("mllp_client_names",),
        lambda found: any(one.endpoint.startswith("mtls:") for one in found.mllp_listen) or not found.runs(RECEIVE),
        "requires an mtls: listener in IPF_MLLP_LISTEN: only these ask for certificates",
    ),
)


def without_partner(settings: Settings) -> Iterator[str]:
    """A sentence for each setting that has no effect; it begins with the variable."""
    rows = {one.name: one for one in fields(Settings)}
    for need in _NEEDS:
        for name in need.of:
            if getattr(settings, name) != rows[name].default and not need.is_met(settings):
                yield f"{rows[name].metadata['variable'].name}: {need.text}"
    if settings.runs(FHIR) and not settings.has_tenants:
        yield from _named_tenants(settings)


def _named_tenants(settings: Settings) -> Iterator[str]:
    """Tenants whose data nobody could read, and tenants that have no patients to hold."""
    named = {
        "IPF_MLLP_TENANTS": [tenant for _, tenant in settings.mllp_tenants],
        "IPF_MLLP_CLIENT_NAMES": [tenant for _, tenant in settings.mllp_client_names],
        "IPF_LEGAL_HOLDS": [one.rpartition(":")[0] for one in settings.legal_holds],
    }
    for variable, tenants in named.items():
        for tenant in tenants:
            if tenant not in ("", _DEFAULT_TENANT):
                yield f"{variable}: the tenant {tenant} requires SUBSCRIPTION_SERVICE_MULTITENANCY=enabled"


def ineffective(settings: Settings) -> Iterator[str]:
    """A warning for each setting that another one makes ineffective, without leaving anything open."""
    switches = {
        "READS": settings.audit_reads,
        "SEARCH": settings.audit_searches,
        "DELIVERIES": settings.audit_deliveries,
    }
    for name, is_on in switches.items():
        if is_on and not settings.audit_enabled:
            variable = f"SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_{name}"
            yield f"{variable} has no effect: SUBSCRIPTION_SERVICE_AUDIT_ENABLED is false"
    if settings.endpoint_allow and not settings.endpoint_deny and not settings.has_tenants:
        yield (
            "SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW has no effect: it adds to what tenants or "
            "SUBSCRIPTION_SERVICE_ENDPOINT_DENY refuse; DENY=* leaves only what it names"
        )
