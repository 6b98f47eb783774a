"""What a plan finds that it needs beyond the prefetch: read in the same transaction, before the units are planned
again.

Most messages need nothing more.  Some need the Patient that a stored visit belongs to, the survivor of a merged
Patient, or the answer of an operator.  Locks are different: they are taken in one order, so the transaction begins anew
with them.  So are the host names of endpoints: they are looked up while no transaction is open.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ipf.ports.queries.search import Query

Key = tuple[str, str, str]
"""(tenant, resource type, id)"""

AnswerKey = tuple[str, str, str]
"""(tenant, resource type, text of an identity key)"""


@dataclass(slots=True)
class SecondLook:
    """`ids`: resources to read.  `conditions`: searches.  `answers`: answers of operators.  `locks`: match keys.

    `rids`: internal numbers.  `hosts`: names to look up.
    """

    ids: dict[Key, None] = field(default_factory=dict)
    conditions: dict[tuple[str, str, str], tuple[str, Query]] = field(default_factory=dict)
    answers: dict[AnswerKey, None] = field(default_factory=dict)
    locks: dict[tuple[str, str, str], tuple[str, Query]] = field(default_factory=dict)
    rids: int = 0
    hosts: dict[str, None] = field(default_factory=dict)

    def add(self, other: SecondLook) -> None:
        """Add what another unit needs."""
        self.ids |= other.ids
        self.conditions |= other.conditions
        self.answers |= other.answers
        self.locks |= other.locks
        self.rids += other.rids
        self.hosts |= other.hosts

    def __bool__(self) -> bool:
        return bool(self.ids or self.conditions or self.answers or self.locks or self.rids or self.hosts)


class MoreNeeded(Exception):
    """The plan of a unit needs more; it is planned again once that is read."""

    def __init__(self, wanted: SecondLook) -> None:
        super().__init__("the plan needs a second look")
        self.wanted = wanted
