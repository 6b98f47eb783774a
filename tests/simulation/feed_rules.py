"""The rules of polling: one lease at a time, and the mark never passes what is not stored.

Source: docs/how-to/poll-a-server.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.faults import Process
    from tests.simulation.rules import Rules
    from tests.simulation.world import World

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 900.0


@dataclass
class FeedRules:
    """See the module."""

    world: World
    rules: Rules
    fence: int = 0
    until: datetime | None = None

    def called(self, process: Process, name: str, args: Sequence[Any]) -> None:
        """A back-off begins at the failure."""
        if name == "fail":
            lease, due = args[0], args[3]
            wait = min(FIRST_RETRY_SECONDS * 2**lease.failures, LONGEST_RETRY_SECONDS)
            self.rules.hold(due in (wait, self.world.source_wait), f"{lease.name} waits {due} s")

    def committed(self, process: Process, name: str, args: Sequence[Any], result: Any) -> None:
        """One lease at a time."""
        if name == "begin" and result is not None:
            is_held = self.until is not None and self.until > self.world.clock.now()
            self.rules.hold(not is_held, f"{args[0]} is leased to {process.name} while another lease is held")
            self.rules.hold(result.fence > self.fence, f"{args[0]}: the fence {result.fence} was used before")
            self.fence = result.fence
        if name == "save" and result is not None and self._is_saved(result):
            self.rules.hold(args[0].fence == self.fence, f"{args[0].name} was saved with the fence {args[0].fence}")
        self.until = next((row.leased_until for row in self.world.feeds._rows.values()), None)

    def _is_saved(self, outcomes: Sequence[Any]) -> bool:
        return not any(str(one) == "conflicting_duplicate" for one in outcomes)

    def missing(self) -> list[str]:
        """What has not come to rest: the present version of each resource is stored."""
        wanted = {f"Observation/{number}/{count}" for number, (_, count) in self.world.source.changed.items()}
        stored = {row.message.source_id.partition("~")[0] for row in self.world.inbox.rows.values()}
        removed = self.world.rules.inbox.deleted_keys
        return [f"{one} is not polled" for one in sorted(wanted - stored - removed)]
