"""The settings of authentication on `/fhir`, and of tenants.

An issuer switches authentication on.  `SUBSCRIPTION_SERVICE_AUTH_ENABLED=false` beside one is a sandbox that the
service warns about.

Source: interface specification "Authentication"; decisions, "Decided after the second measurement".
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.config.parsers import boolean, decimal, http_url, one_of, optional, text, words
from ipf.config.variables import variable


@dataclass(frozen=True)  # only one base of Settings may have slots
class AuthSettings:
    """The identity provider, and whose claims select a tenant."""

    auth_switch: bool | None = variable(
        "SUBSCRIPTION_SERVICE_AUTH_ENABLED",
        boolean,
        None,
        "require bearer tokens on /fhir and /mapping; unset: if there is an issuer; false beside an issuer: a sandbox",
    )
    auth_issuer: str | None = variable(
        "SUBSCRIPTION_SERVICE_AUTH_ISSUER",
        http_url,
        None,
        "the identity provider, equal to the claim iss of its tokens; it switches authentication on",
    )
    auth_jwks_url: str | None = variable(
        "SUBSCRIPTION_SERVICE_AUTH_JWKS_URL", http_url, None, "URL of its key set; unset: as in its discovery document"
    )
    auth_audience: str | None = variable(
        "SUBSCRIPTION_SERVICE_AUTH_AUDIENCE", optional, None, "required value of the claim aud; unset: any"
    )
    auth_patient_claim: str = variable(
        "IPF_AUTH_PATIENT_CLAIM", text, "patient", "claim with the patient of patient/ scopes"
    )
    auth_skew_seconds: float = variable(
        "IPF_AUTH_SKEW_SECONDS", decimal(0.0), 30.0, "accepted clock difference of the identity provider"
    )
    tenant_claim: str = variable(
        "SUBSCRIPTION_SERVICE_MULTITENANCY_TENANT_CLAIM", text, "tenant", "claim with the tenant of a token"
    )
    multitenancy: str = variable(
        "SUBSCRIPTION_SERVICE_MULTITENANCY",
        one_of("disabled", "enabled"),
        "disabled",
        "enabled: the tenant claim selects the partition; needs bearer tokens",
    )
    row_security: bool = variable(
        "SUBSCRIPTION_SERVICE_MULTITENANCY_ROW_SECURITY",
        boolean,
        True,
        "with tenants, PostgreSQL's row-level security separates them as well",
    )
    tenants: tuple[str, ...] = variable(
        "IPF_TENANTS", words, (), "tenants that are served; unset: any tenant of a token"
    )

    @property
    def auth_enabled(self) -> bool:
        """Whether requests to `/fhir` need a bearer token."""
        return self.auth_issuer is not None if self.auth_switch is None else self.auth_switch

    @property
    def is_auth_sandbox(self) -> bool:
        """Whether authentication is switched off although there is an issuer."""
        return self.auth_issuer is not None and not self.auth_enabled

    @property
    def has_tenants(self) -> bool:
        """Whether the tenant of a token selects the partition."""
        return self.multitenancy == "enabled"
