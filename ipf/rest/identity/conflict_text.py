"""The error of a match that was not made, in words.

What arrives: the finding.  What leaves: a sentence with the kinds of the identifiers (no values, they are data of a
patient), the candidates, and where an operator answers it.
"""

from __future__ import annotations

from ipf.ports.identity import ConflictKind, IdentityFinding

_REASONS = {
    ConflictKind.AMBIGUOUS: "matches more than one resource",
    ConflictKind.CONTRADICTION: "matches a resource that contradicts the message in identifiers, name or birth date",
    ConflictKind.SUBJECT: "matches a resource of another patient",
    ConflictKind.DIFFERENCE: "matches a Patient with another family name, birth date or sex",
    ConflictKind.OVERLAY: "matches a Patient with another family name, birth date or sex: another person",
}


def conflict_text(finding: IdentityFinding) -> str:
    """What is not decided, by which identifiers (without values), and what an operator can do."""
    kinds = dict.fromkeys(
        f"identifier {f'of type {key.type}' if key.type else 'without type'} of {key.system or 'no authority'}"
        for key in finding.keys
    )
    return (
        f"{finding.resource_type}: the {' or '.join(kinds)} {_REASONS[finding.kind]} "
        f"({', '.join(finding.candidates)}); "
        "answer it with `ipfctl identity` or /admin/identity-conflicts"
    )
