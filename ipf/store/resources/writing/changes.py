"""Changes of subscriptions, topics and search parameters since an epoch, for `FhirTransaction.changes_since`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from ipf.fhir.model.json import loads
from ipf.fhir.topics.basic import topic_in
from ipf.ports import ActiveSubscription, Changes, Json, ServedTopic
from ipf.ports.grants import callers_of
from ipf.store.postgres.database import Row
from ipf.store.postgres.lookup import CURRENT_VERSION
from ipf.store.postgres.quoting import Statement
from ipf.store.postgres.writers import WRITERS_OF, writers_in

# Changes after the epoch $1: subscriptions with their writers, topics, and all search parameters when one changed.  A
# subscription or topic without a body fires no longer, also after an erasure, which leaves it without a resource; a
# first reading ($1 < 0) skips such topics, and deleted subscriptions.
CHANGES = Statement(
    "fhir_changes",
    "bigint, smallint",
    f"""
SELECT 0, p.name, s.rid, s.id,
       CASE WHEN s.status IN ('requested', 'active', 'error') AND r.deleted IS FALSE THEN v.body END,
       {WRITERS_OF}
FROM subscription_states s JOIN partitions p ON p.id = s.partition_id
LEFT JOIN resources r ON r.rid = s.rid LEFT {CURRENT_VERSION}
WHERE s.epoch > $1 AND ($1 >= 0 OR s.status <> 'deleted')
UNION ALL
SELECT 1, p.name, t.rid, t.url, CASE WHEN t.served AND r.deleted IS FALSE THEN v.body END, NULL
FROM subscription_topics t JOIN partitions p ON p.id = t.partition_id
LEFT JOIN resources r ON r.rid = t.rid LEFT {CURRENT_VERSION}
WHERE t.epoch > $1 AND ($1 >= 0 OR t.served)
UNION ALL
SELECT 2, '', r.rid, r.id, v.body, NULL
FROM resources r JOIN resource_versions v ON v.rid = r.rid AND v.version_id = r.version_id
WHERE r.partition_id = $2 AND r.resource_type = 'SearchParameter' AND NOT r.deleted
  AND (SELECT parameters_epoch FROM subscription_epoch WHERE single) > $1
UNION ALL
SELECT 3, '', parameters_epoch, '', NULL, NULL FROM subscription_epoch WHERE single
ORDER BY 1, 3""",
)


def changes_in(rows: Sequence[Row], since: int) -> Changes:
    """The changes in rows ordered by kind; the subscriptions, which may be many, are parsed lazily."""
    many = sum(row[0] == 0 for row in rows)
    subscriptions = (
        ActiveSubscription(tenant, rid, id_, None if body is None else loads(body), *callers_of(writers_in(who)))
        for _, tenant, rid, id_, body, who in islice(rows, many)
    )
    topics: list[ServedTopic] = []
    parameters: list[Json] = []
    changed = False
    for kind, tenant, rid, _, body, _ in rows[many:]:
        resource = None if body is None else loads(body)
        if kind == 1:
            topics.append(ServedTopic(tenant, rid, topic_in(resource)))
        elif kind == 2 and resource is not None:
            parameters.append(resource)
        else:
            changed = rid > since
    return Changes(subscriptions, topics, parameters if changed else None)
