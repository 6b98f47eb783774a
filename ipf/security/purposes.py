"""The purposes of use that a token names: `system|code` each, or `code` alone.

Tokens name them in `extensions.ihe_iua.purpose_of_use` (IHE), in `extensions.hl7-b2b.purpose_of_use` (UDAP), or in
`purpose_of_use` itself; as codings, or as text: `code`, `system|code`, `system#code`.  What cannot be read is ignored.

Source: https://profiles.ihe.net/ITI/IUA (3.71.4.2.2.1); https://hl7.org/fhir/us/udap-security/b2b.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MOST = 8
LONGEST = 200
_CLAIM = "purpose_of_use"
_TEXT = re.compile(r"(?:([^\s|#]+)[|#])?([^\s|#]+)")


def purposes(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """At most MOST purposes, in order, without duplicates."""
    found = dict.fromkeys(text for claim in _claims(claims) for value in _several(claim) if (text := _purpose(value)))
    return tuple(found)[:MOST]


def _claims(claims: Mapping[str, Any]) -> Iterator[Any]:
    extensions = claims.get("extensions")
    for name in ("ihe_iua", "hl7-b2b"):
        extension = extensions.get(name) if isinstance(extensions, dict) else None
        if isinstance(extension, dict):
            yield extension.get(_CLAIM)
    yield claims.get(_CLAIM)


def _several(claim: Any) -> list[Any]:
    return claim if isinstance(claim, list) else [claim]


def _purpose(value: Any) -> str | None:
    if isinstance(value, dict):
        code, system = value.get("code"), value.get("system")
        value = f"{system}|{code}" if isinstance(system, str) and isinstance(code, str) and system else code
    read = _TEXT.fullmatch(value) if isinstance(value, str) and len(value) <= LONGEST else None
    if read is None or not value.isprintable():
        return None
    return f"{read[1]}|{read[2]}" if read[1] else read[2]
