"""The settings of security labels, Consents and break-glass.

Source: https://hl7.org/fhir/R4/security-labels.html, https://hl7.org/fhir/R4/consent.html
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.config.parsers import boolean, labels, optional, patients, words
from ipf.config.variables import variable


@dataclass(frozen=True)  # only one base of Settings may have slots
class AccessSettings:
    """What limits callers besides their scopes."""

    access_labels: tuple[str, ...] = variable(
        "IPF_ACCESS_LABELS",
        labels,
        (),
        "labels that only tokens with their scope see, such as R or system|code; unset: labels limit nothing",
    )
    access_consent: bool = variable("IPF_ACCESS_CONSENT", boolean, False, "active Consents that deny limit tokens")
    access_trusted_clients: tuple[str, ...] = variable(
        "IPF_ACCESS_TRUSTED_CLIENTS",
        words,
        (),
        "client ids that labels and Consents do not limit, such as a feed or a backup",
    )
    legal_holds: tuple[str, ...] = variable(
        "IPF_LEGAL_HOLDS",
        patients,
        (),
        "patients who must not be erased, and whom retention keeps: Patient/1, or tenant:Patient/1",
    )
    deident_profile: str | None = variable(
        "IPF_DEIDENT_PROFILE", optional, None, "file with what de-identified exports keep; unset: the built-in profile"
    )
