"""The creator of a Subscription, read with its row: one column of JSON.

Before version 0.2.0 every client that wrote a Subscription had a row, and the one that set the endpoint owned it.
"""

from __future__ import annotations

import json

from ipf.ports import Caller
from ipf.ports.grants import Writer

WRITERS_OF = """(
    SELECT json_agg(json_build_array(g.subject, g.client, g.scopes, g.tenant, g.patient, g.fhir_user, g.issuer,
        g.since, g.owns) ORDER BY g.granted_at, g.issuer, g.subject, g.client)::text
    FROM subscription_grants g WHERE g.rid = s.rid)"""
"""The column for a row `s` of subscription_states; NULL when there are none."""


def writers_in(text: str | None) -> tuple[Writer, ...]:
    """The creator in that column; several of a Subscription that was written before version 0.2.0 and has no owner."""
    writers = () if text is None else tuple(_writer(*row) for row in json.loads(text))
    return tuple(one for one in writers if one.owns) or writers


def _writer(
    subject: str,
    client: str,
    scopes: str,
    claim: str | None,
    patient: str | None,
    user: str | None,
    issuer: str,
    since: int,
    owns: bool,
) -> Writer:
    return Writer(Caller(subject, client, tuple(scopes.split()), claim, patient, user, issuer), since, owns)
