"""Which of IHE's Basic Audit Log Patterns (BALP) a record satisfies, and the types that patterns give to agents.

The patterns are of one interaction with one resource (create, read, update, delete) and of searches, each also for one
patient.  They are of successful interactions; there is none of batches, transactions, histories and operations.
A notification about a patient satisfies the pattern of a disclosure, whatever its outcome.  `fhir/balp` states the
patterns.

Source: https://profiles.ihe.net/ITI/BALP/content.html
"""

from __future__ import annotations

from typing import NamedTuple

from ipf.ports.audit.records import Audit
from ipf.security.audit.rules import NOTIFICATION

PROFILES = "https://profiles.ihe.net/ITI/BALP/StructureDefinition/IHE.BasicAudit."
REQUEST_ID_SYSTEM = "https://profiles.ihe.net/ITI/BALP/CodeSystem/BasicAuditEntityType"
DICOM = "http://dicom.nema.org/resources/ontology/DCM"
PARTICIPANT = "http://terminology.hl7.org/CodeSystem/provenance-participant-type"
_PARTICIPATION = "http://terminology.hl7.org/CodeSystem/v3-ParticipationType"

Code = tuple[str, str, str]
"""System, code, display."""

SOURCE: Code = (DICOM, "110153", "Source Role ID")
DESTINATION: Code = (DICOM, "110152", "Destination Role ID")
_APPLICATION: Code = (DICOM, "110150", "Application")
_CUSTODIAN: Code = (PARTICIPANT, "custodian", "Custodian")
_AUTHOR: Code = (_PARTICIPATION, "AUT", "author (originator)")
_RECIPIENT: Code = (_PARTICIPATION, "IRCP", "information recipient")
_ENTERER: Code = (PARTICIPANT, "enterer", "Enterer")

DISCLOSURE = "PrivacyDisclosure.Source"
EXPORT: Code = (DICOM, "110106", "Export")
DISCLOSE: Code = (
    "http://terminology.hl7.org/CodeSystem/iso-21089-lifecycle", "disclose", "Disclose Record Lifecycle Event",
)  # fmt: skip

QUERY = "Query"
_DISCLOSURE = "PrivacyDisclosure.Source"
_PATTERNS = {
    "create": "Create", "read": "Read", "vread": "Read", "update": "Update", "patch": "Update", "delete": "Delete",
    "search": QUERY,
}  # fmt: skip


class Roles(NamedTuple):
    """The types of the agents: the client, this server, and the person on whose behalf the client acts."""

    client: Code
    server: Code
    user: Code


_WRITE = Roles(SOURCE, DESTINATION, _AUTHOR)
_ROLES = {
    "Create": _WRITE,
    "Update": _WRITE,
    "Read": Roles(DESTINATION, SOURCE, _RECIPIENT),
    "Delete": Roles(_APPLICATION, _CUSTODIAN, _AUTHOR),
    QUERY: Roles(SOURCE, DESTINATION, _RECIPIENT),
}
_OTHERS = Roles(SOURCE, DESTINATION, _ENTERER)


def family_of(audit: Audit) -> str:
    """The pattern of this interaction, whether the record satisfies it or not; "" when there is none."""
    return _PATTERNS.get(audit.context.interaction, "")


def is_disclosure(audit: Audit) -> bool:
    """Whether this server sent data to somebody who did not ask for them at that moment."""
    return audit.context.interaction == NOTIFICATION


def roles_of(audit: Audit) -> Roles:
    """The types of the agents of a record."""
    return _ROLES.get(family_of(audit), _OTHERS)


def profile_of(audit: Audit) -> str | None:
    """The canonical of the pattern that a record satisfies, the one for a patient if it is about one; else None."""
    family, patients = family_of(audit), len(audit.all_patients)
    if is_disclosure(audit):
        return f"{PROFILES}{_DISCLOSURE}" if patients == 1 and audit.context.address else None
    if not family or audit.context.outcome or not audit.context.address or patients > 1:
        return None
    has_subject = bool(audit.request_target) if family == QUERY else len(audit.entities) == 1
    return f"{PROFILES}{'Patient' if patients else ''}{family}" if has_subject else None
