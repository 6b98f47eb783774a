"""What is known of a write before it is committed, from which its audit records are made in its transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ipf.ports.audit.records import Audit
from ipf.ports.fhir.resources import Version


class AuditDraft(Protocol):
    """One operation, such as an HTTP request or a converted message.  It may write in several transactions.

    `records_nothing_written`: a transaction that wrote none of its resources has a record too.
    """

    records_nothing_written: bool

    def records(self, status: int, versions: Sequence[Version], ended: int) -> list[Audit]:
        """The records of one transaction.  `status`: of a single write; `ended`: milliseconds since 1970.

        A deletion has the body of the version that it deleted.
        """

    def note(self, name: str, text: str) -> None:
        """A detail that the records name, such as criteria that the writer may not search.  A repeat has no effect."""

    def committed(self, versions: Sequence[Version], count: int) -> None:
        """The transaction with these versions is committed, and with it `count` records."""

    def deferred(self, count: int) -> None:
        """The transaction is committed without its records, which are then stored outside of it."""

    def failed(self, target: str, status: int) -> None:
        """An entry of a batch failed."""
