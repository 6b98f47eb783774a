"""Synthea patients as transaction Bundles, copied with other ids, names and dates until there are enough resources.

A copy has its own UUIDs (ids and identifiers), family names and phone numbers, and its dates lie some weeks apart, so
that the number of distinct values grows with the number of patients, as it does in life.
"""

from __future__ import annotations

import bz2
import json
import re
import uuid
from collections.abc import Iterator
from datetime import date, timedelta
from functools import cache

from bench.fhir import SYNTHEA

SHARED_FILES = 2  # organisations and practitioners come first
_DAYS_APART = 37
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DATE = re.compile(r'"(\d{4}-\d\d-\d\d)')
_FAMILY = re.compile(r'("family": ?"[A-Za-z\']+)(\d+)"')
_PHONE = re.compile(r'("value": ?"555-\d{3}-)(\d{4})"')


def synthea(resources: int) -> Iterator[bytes]:
    """Bundles to be posted in this order, with at least so many entries together."""
    texts = [bz2.decompress(path.read_bytes()).decode() for path in sorted(SYNTHEA.glob("*.bz2"))]
    shared, patients = texts[:SHARED_FILES], texts[SHARED_FILES:]
    entries = 0
    for text in shared:
        entries += len(json.loads(text)["entry"])
        yield text.encode()
    number = 0
    while entries < resources:
        for text in patients:
            bundle = copy(text, number)
            entries += len(json.loads(bundle)["entry"])
            yield bundle.encode()
        number += 1


def copy(text: str, number: int) -> str:
    """The Bundle of another patient with the same course; number 0 is the Bundle itself."""
    if number == 0:
        return text
    own = {entry["fullUrl"].removeprefix("urn:uuid:") for entry in json.loads(text)["entry"]}

    def other(found: re.Match[str]) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{found[0]}.{number}")) if found[0] in own else found[0]

    text = _UUID.sub(other, text)
    text = _DATE.sub(lambda found: f'"{_earlier(found[1], number * _DAYS_APART)}', text)
    text = _FAMILY.sub(lambda found: f'{found[1]}{(int(found[2]) + number * 131) % 1000}"', text)
    return _PHONE.sub(lambda found: f'{found[1]}{(int(found[2]) + number * 1777) % 10_000:04}"', text)


@cache
def _earlier(day: str, days: int) -> str:
    return (date.fromisoformat(day) - timedelta(days)).isoformat()
