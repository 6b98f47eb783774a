"""What each update by a message keeps: the subject, and of a Patient numbers and links.

What arrives: the resource of a message, the stored one, its entry.  What leaves: the resource with what it keeps.
`retained` has the rules; `left_out_numbers` those of single fields with numbers.
"""

from __future__ import annotations

from collections.abc import Collection

from ipf.fhir.model.identifier import keys_in_use
from ipf.ports import Json
from ipf.ports.identity import Identity, IdentityKey, Role
from ipf.ports.queries.entries import Entry
from ipf.ports.queries.field_sources import UNKNOWN_SOURCES
from ipf.rest.identity.left_out_numbers import with_left_out_numbers, without_null_numbers
from ipf.rest.identity.retained import may_lack, retained, with_subject


def with_retained(resource: Json, stored: Json, entry: Entry, before: str, patients: Collection[str]) -> Json:
    """The resource with what it keeps.  `before`: the sources of the stored one; `patients`: ids of the message."""
    identity, sources = entry.identity, entry.sources
    is_patient = entry.resource_type == "Patient"
    if is_patient and sources is UNKNOWN_SOURCES:
        return retained(resource, stored, _identity_of(resource), patients)
    if not may_lack(resource, identity):
        return resource
    if identity is None:
        return with_subject(resource, stored)
    if sources is None or not is_patient:
        return retained(resource, stored, identity, patients)
    known = without_null_numbers(stored, sources, before)
    resource = retained(resource, known, identity, patients)
    return with_left_out_numbers(resource, stored, sources, before)


def _identity_of(patient: Json) -> Identity:
    """The numbers of a Patient of a Bundle whose requests say how it is found."""
    keys = tuple(keys_in_use(patient))
    return Identity(keys or (IdentityKey("", "", ""),), Role.SUBJECT)
