"""Codes that no table had: the call that records them, in the transaction that settles their messages."""

from __future__ import annotations

from collections.abc import Sequence

from ipf.ports import Settlement
from ipf.store.inbox.codes_sql import NOTE
from ipf.store.postgres.quoting import joined, printable

_LONGEST = 200  # characters of a code that are kept
_MOST = 200  # codes of one message that are recorded


def note_call(settlements: Sequence[Settlement]) -> str:
    """The statement, or nothing when every code had its place."""
    found = [(end.id, one) for end in settlements if end.unmapped for one in end.unmapped[:_MOST]]
    if not found:
        return ""
    return NOTE.call(
        joined(id_ for id_, _ in found),
        joined(printable(one.concept_map, _LONGEST) for _, one in found),
        joined(printable(one.code, _LONGEST) for _, one in found),
    )
