"""The writers of a Subscription, read with its row: one column of JSON."""

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
    """The writers in that column."""
    return () if text is None else tuple(_writer(*row) for row in json.loads(text))


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
