"""What a part of a job wrote, as the text that its own transaction stores (`ports.jobs.JobResult`).

A worker that finds it after a crash reads the results of the entries from it instead of writing again.
"""

from __future__ import annotations

import json

from ipf.ports import FhirStore, Version
from ipf.rest.write.unit import EntryResult, Outcome, UnitResult


def written(result: UnitResult) -> str:
    """The text: status, outcome, type, id and version of each entry."""
    return json.dumps([_row(one) for one in result.entries], separators=(",", ":"))


def _row(result: EntryResult) -> list[object]:
    version = result.version
    key = [] if version is None else [version.resource_type, version.id, version.version_id]
    return [result.status, result.outcome.value, *key]


async def read(text: str, tenant: str, store: FhirStore) -> list[EntryResult]:
    """The results of a text.  A version that was removed since is None."""
    found = []
    for status, outcome, *key in json.loads(text):
        version: Version | None = await store.read_version(tenant, *key) if key else None
        found.append(EntryResult(status, Outcome(outcome), version))
    return found
