"""The settings of the audit trail and of its feed to a log server.

Source: interface specification "FHIR AuditEvent resources".
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.config.parsers import boolean, integer, optional, surfaces, syslog_server
from ipf.config.variables import variable


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """What is recorded, how long it is kept, where it is sent."""

    audit_enabled: bool = variable(
        "SUBSCRIPTION_SERVICE_AUDIT_ENABLED", boolean, True, "keep an audit log of writes and failures"
    )
    audit_reads: bool = variable(
        "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_READS", boolean, False, "audit successful reads as well"
    )
    audit_searches: bool = variable(
        "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_SEARCH", boolean, False, "audit successful searches as well"
    )
    audit_deliveries: bool = variable(
        "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_DELIVERIES", boolean, False, "audit each notification that is sent"
    )
    audit_days: int = variable(
        "SUBSCRIPTION_SERVICE_AUDIT_RETENTION_DAYS", integer(1, 36_500), 365, "retention time of audit records"
    )
    audit_purge: bool = variable("IPF_AUDIT_PURGE", boolean, False, "remove audit records after that time")
    audit_key: str | None = variable(
        "IPF_AUDIT_KEY", optional, None, "private key (Ed25519, PEM) that signs heads of the audit trail", secret=True
    )
    audit_queue: int = variable(
        "IPF_AUDIT_QUEUE",
        integer(100),
        50_000,
        "audit records that may wait for the store; further ones are dropped",
    )
    audit_syslog: tuple[str, int] | None = variable(
        "IPF_AUDIT_SYSLOG", syslog_server, None, "log server that receives audit records, tls://host:6514; unset: none"
    )
    audit_syslog_ca: str | None = variable(
        "IPF_AUDIT_SYSLOG_CA", optional, None, "PEM file of authorities for its certificate; unset: the system's"
    )
    audit_syslog_certificate: str | None = variable(
        "IPF_AUDIT_SYSLOG_CERTIFICATE", optional, None, "PEM file of the certificate to present to it"
    )
    audit_syslog_key: str | None = variable("IPF_AUDIT_SYSLOG_KEY", optional, None, "PEM file of the key of it")
    audit_syslog_surfaces: tuple[str, ...] = variable(
        "IPF_AUDIT_SYSLOG_SURFACES", surfaces, ("fhir", "admin"), "records to send: fhir, admin, or both"
    )

    @property
    def audits_deliveries(self) -> bool:
        """Whether each notification that is sent leaves a record."""
        return self.audit_enabled and self.audit_deliveries
