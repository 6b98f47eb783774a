"""The grants of a caller as one text, for work that is done later in its name."""

from __future__ import annotations

import json

from ipf.ports import OPEN, Caller

_KEPT = ("subject", "client", "scopes", "tenant", "patient", "user", "issuer")


def written_caller(caller: Caller) -> str | None:
    """The text; None for a caller without limits.  Purposes and break-glass belong to one request and are left out."""
    return None if caller.is_unlimited else json.dumps([getattr(caller, name) for name in _KEPT])


def read_caller(text: str | None) -> Caller:
    """The caller of a text; OPEN for None."""
    if text is None:
        return OPEN
    kept = dict(zip(_KEPT, json.loads(text), strict=True))
    return Caller(**{**kept, "scopes": tuple(kept["scopes"])})
