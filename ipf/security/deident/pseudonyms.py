"""Ids and dates of patients, replaced in a way that only the holder of the key can repeat.

An id becomes a keyed hash: the same in every export with the same key, so that references still resolve and later
exports can be joined.  The dates of a patient move back by 1 to 365 days, always by the same number, so that the time
between two events of a patient stays.  Nobody without the key can tell the number or compute the hash of a known id.

Sources: RFC 2104 (HMAC), RFC 5869 (HKDF)
"""

from __future__ import annotations

import hmac
import re
from datetime import date, datetime, timedelta

_HASH_DIGITS = 32  # hexadecimal: 128 bits
_DAYS = 365
_OLDEST = 90
"""Years: births before that are told as of that year (45 CFR 164.514(b)(2)(i)(C))."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2})?)?", re.ASCII)
_YEAR = re.compile(r"\d{4}(?:-.*)?", re.ASCII)


class Pseudonyms:
    """`secret`: the first key of IPF_SECRET_KEY.  Another secret gives other ids and other days."""

    def __init__(self, secret: str) -> None:
        self._key = _derived(secret)

    def id(self, tenant: str, resource_type: str, id: str) -> str:
        """The id of a resource in the export."""
        return self._hash("id", tenant, resource_type, id).hex()[:_HASH_DIGITS]

    def days(self, tenant: str, patient: str) -> int:
        """By how many days the dates of a patient (logical id) move back: 1 to 365."""
        return int.from_bytes(self._hash("days", tenant, "Patient", patient)[:8]) % _DAYS + 1

    def seed(self, job: str) -> int:
        """A number of 62 bits for the order of a job's resources."""
        return int.from_bytes(self._hash("order", job)[:8]) >> 2

    @property
    def fingerprint(self) -> str:
        """Names the key."""
        return self._hash("fingerprint").hex()[:8]

    def _hash(self, *parts: str) -> bytes:
        return hmac.digest(self._key, "\0".join(parts).encode(), "sha256")


def earlier(text: str, days: int) -> str | None:
    """A date or time, so many days earlier, at the same time of day.

    One without a day becomes its year.  None: it is no date, or the result is before the year 1.
    """
    if _DAY.fullmatch(text) is None:
        return year(text)
    try:
        moved = date.fromisoformat(text[:10]) - timedelta(days=days)
    except (ValueError, OverflowError):
        return None
    return moved.isoformat() + text[10:]


def year(text: str) -> str | None:
    """The year of a date; None when it is none."""
    return text[:4] if _YEAR.fullmatch(text) else None


def not_older(text: str, now: datetime) -> str:
    """A date, time or year; of one of more than 90 years ago, the year 90 years ago."""
    oldest = now.year - _OLDEST
    return text if int(text[:4]) >= oldest else f"{oldest:04}"


def _derived(secret: str) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256  # 6 MiB of memory: imported on first use
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), 32, None, b"ipf de-identified export").derive(secret.encode())
