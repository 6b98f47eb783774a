"""Ordering keys: messages with the same key are converted in order of arrival.

Source: decisions section 4 (`IPF_ORDERING`); HL7 v2.9 section 3.4.2.3 (PID-3).
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from ipf.hl7.header import Header, as_bytes_of_msh
from ipf.ports import DEFAULT_TENANT

_NUMBER = blake2b(digest_size=8)
_LONGEST_START = 4096  # bytes of a PID segment to search for PID-3


def ordering_key(raw: bytes, header: Header, ordering: str, tenant: str = DEFAULT_TENANT) -> int | None:
    """63-bit key of messages that must stay in order; None = unordered.

    `patient`: sending application and the first repetition of PID-3 (its id and assigning authority; PID-2 where PID-3
    is empty, as before v2.3).  `sender`: sending application.  Messages without a patient, and messages of different
    tenants, are unordered.
    """
    if ordering == "none":
        return None
    key = header.source_system.encode()
    if tenant != DEFAULT_TENANT:
        key = tenant.encode() + b"\x1e" + key
    if ordering == "patient":
        patient = _patient(raw if raw.startswith(b"MSH") else as_bytes_of_msh(raw), header)
        if not patient:
            return None
        key += b"\x1f" + patient
    number = _NUMBER.copy()  # half as dear as a new one
    number.update(key)
    return int.from_bytes(number.digest()) >> 1


def _patient(raw: bytes, header: Header) -> bytes:
    """Id and authority of the first PID, as sent; empty when there is none."""
    pattern = header.pattern
    marks = _known_marks(pattern) if pattern is not None else _marks(header)
    separator, component, repetition, after_cr, after_lf = marks
    at = raw.find(after_cr)
    if at < 0:
        at = raw.find(after_lf)
        if at < 0:
            return b""
    end = raw.find(b"\r", at + 1, at + _LONGEST_START)
    segment = raw[at + 1 : end if end >= 0 else at + _LONGEST_START]
    fields = segment.split(separator, 4)
    if b"\n" in segment:
        fields = segment.partition(b"\n")[0].split(separator, 4)
    for field in fields[3:1:-1]:
        parts = (field.partition(repetition)[0] if repetition in field else field).split(component, 4)
        if parts[0] and parts[0] != b'""':
            return parts[0] + b"\x1f" + (parts[3] if len(parts) > 3 else b"")
    return b""


def _marks(header: Header) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    separators = header.separators
    field = separators.field.encode()
    return field, separators.component.encode(), separators.repetition.encode(), b"\rPID" + field, b"\nPID" + field


_known_marks = lru_cache(maxsize=256)(_marks)
