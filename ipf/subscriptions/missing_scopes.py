"""The text of `Subscription.error` for a creator that may not read what its Subscription matches.

The Subscription is active, and its notifications have no content (interface specification "FHIR surface" 3: the
minimum scope is `system/Subscription.crus`).  The text says which scopes are missing.

Source: decisions "Grants of a Subscription".
"""

from __future__ import annotations

from collections.abc import Iterable

_START = "the client that registered it may not read "


def missing_scopes_text(types: Iterable[str]) -> str:
    """The text for these resource types."""
    names = sorted(types)
    scopes = " ".join(f"system/{name}.r" for name in names)
    which = "scope is" if len(names) == 1 else "scopes are"
    return f"{_START}{', '.join(names)}: notifications are sent without content; the missing {which} {scopes}"


def is_missing_scopes(error: object) -> bool:
    """Whether a `Subscription.error` is such a text."""
    return isinstance(error, str) and error.startswith(_START)
