"""What a history is asked for.

Source: https://hl7.org/fhir/R4/http.html#history
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Which versions of a history, and in which order.

    `since`: not older than that.  `at`: (from, to), those that were the newest of their resource at some time from
    `from` until before `to`.  `oldest_first`: the order; the default is newest first.
    """

    since: datetime | None = None
    at: tuple[datetime, datetime] | None = None
    oldest_first: bool = False


EVERY_VERSION = HistoryFilter()
