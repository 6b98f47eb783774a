"""Stored sources (`Version.sources`), as JSON: HL7 v2 fields of each element, of a list by the digest of each item."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from ipf.fhir.model.json import dumps, loads


def read_sources(text: str) -> dict[str, Any]:
    """Fields by element, of a list fields by digest; empty: no message wrote the resource."""
    return loads(text.encode()) if text else {}


def digest(item: Any) -> str:
    """What tells an item from others of its list."""
    return blake2b(dumps(item), digest_size=6).hexdigest()
