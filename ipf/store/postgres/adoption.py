"""Adopts a database of ipf 0.1: its schema becomes the baseline of 0.2, its rows stay.

Arrives: what `schema_versions` says.  Leaves: the SQL of `schema/KIND/adopt-0.1.sql`, which `migrate` runs in one
transaction with the new row of the history.  A database that lacks migrations of 0.1, or that has rows which 0.1 had
still to convert, is refused: ipf 0.1 finishes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from ipf.errors import Category, Problem
from ipf.store.postgres.connection import Connection

LAST = {
    "ipf": (21, "4719012b6266fabfd197613861466599d6d54bdead7fc0bc0a6a2e4df2ef67d6"),
    "fhir": (42, "5d5d137588b2c4290632afd3f45bb3718f72246044b76162d9adf7215cdc4b65"),
}
"""Number of the last migration of ipf 0.1, and the SHA-256 of the checksums of all of them."""

# What 0.1 does in the background after its own migrations; 0.2 does not know the older layouts.
_UNFINISHED = """
SELECT 'packed audit records (' || count(*) || ' blocks)' FROM audit_blocks HAVING count(*) > 0
UNION ALL
SELECT 'a reindex job with status ' || status || ' (' || reason || ')' FROM reindex_jobs
WHERE reason IN ('texts of codes', 'last observations') AND status <> 'done'"""
_FIRST = "start ipf 0.1 once"


def is_former(kind: str, numbers: Sequence[int]) -> bool:
    """Whether the history of a database begins with the first migration of ipf 0.1."""
    return kind in LAST and list(numbers[:1]) == [1]


async def adopting(connection: Connection, kind: str, checksums: Sequence[str]) -> str:
    """The SQL that makes the baseline.  Problem INTERNAL with the way out if the database cannot be adopted."""
    count, digest = LAST[kind]
    if len(checksums) < count:
        text = f"the {kind} database has version {len(checksums)} of ipf 0.1, the last one is {count}"
        raise Problem(Category.INTERNAL, f"{text}: {_FIRST}, which migrates it, then this release")
    if len(checksums) > count or hashlib.sha256("".join(checksums).encode()).hexdigest() != digest:
        text = f"the migrations of the {kind} database are not those of ipf 0.1"
        raise Problem(Category.INTERNAL, f"{text}: restore a backup of ipf 0.1")
    unfinished = [str(what) for (what,) in await connection.run(_UNFINISHED)] if kind == "fhir" else []
    if unfinished:
        text = f"the {kind} database has {', '.join(unfinished)}"
        raise Problem(Category.INTERNAL, f"{text}: {_FIRST} and let it run until these are done, then this release")
    return _sql(kind)


def _sql(kind: str) -> str:
    return (Path(__file__).resolve().parents[1] / "schema" / kind / "adopt-0.1.sql").read_text()
