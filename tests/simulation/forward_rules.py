"""The rules of forwarding: each received message once in the ledger, sent in order, none passed over, one lease.

Source: docs/how-to/forward-messages.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ipf.ports.messages.forwards import Forwarded, ForwardStatus
from ipf.ports.messages.sources import JSON_PROTOCOLS

if TYPE_CHECKING:
    from tests.simulation.faults import Process
    from tests.simulation.rules import Rules
    from tests.simulation.world import World

PENDING, SENT, DEAD = ForwardStatus.PENDING, ForwardStatus.SENT, ForwardStatus.DEAD_LETTER
GOOD, REFUSED = ("AA", "CA"), ("AR", "CR")


@dataclass
class Leased:
    """The lease of the destination."""

    fence: int = 0
    until: datetime | None = None
    worker: str = ""


@dataclass
class ForwardRules:
    """See the module.  `codes`: the acknowledgements of each message, by control id."""

    world: World
    rules: Rules
    leased: Leased = field(default_factory=Leased)
    codes: dict[str, list[str | None]] = field(default_factory=dict)
    handed: set[str] = field(default_factory=set)
    filled_to: int = 0

    def called(self, process: Process, name: str, args: Sequence[Any]) -> None:
        """A back-off begins at the failure."""
        if name == "settle" and args[1] == self.leased.fence:  # without its lease it changes nothing
            self._check_backoff(args[2])

    def committed(self, process: Process, name: str, args: Sequence[Any], result: Any) -> None:
        """Compare the ledger with what it was."""
        row = self.world.forwards._rows.get(self.world.destination.name)
        if row is None:
            return
        now = self.world.clock.now()
        if name == "begin" and result is not None:
            worker = args[1]
            is_held = self.leased.until is not None and self.leased.until > now and self.leased.worker != worker
            self.rules.hold(not is_held, f"{args[0]} is leased to {process.name} while another lease is held")
            self.rules.hold(result > self.leased.fence, f"{args[0]}: the fence {result} was used before")
            self.leased.fence, self.leased.worker = result, worker
        if name == "settle" and result:
            self.rules.hold(args[1] == self.leased.fence, f"{args[0]} was settled with the fence {args[1]}")
            self._check_end(args[2])
        self.leased.until = row.leased_until
        if name == "next" and result is not None:
            waiting = [id for id, entry in row.entries.items() if entry.status is PENDING]
            self.rules.hold(result.message_id == min(waiting), f"message {result.message_id} is forwarded too early")
            self.handed.add(self._control_id(result.message_id))
        if name == "fill":
            self._check_filled(row)

    def _check_filled(self, row: Any) -> None:
        """Nothing is passed over."""
        for id, one in self.world.inbox.rows.items():
            is_forwarded = one.original_id is None and one.message.source_protocol not in JSON_PROTOCOLS
            if is_forwarded and id <= row.filled_to:
                self.rules.hold(id in row.entries, f"message {id} is not in the ledger of the destination")
        self.rules.hold(row.filled_to >= self.filled_to, "the cursor of the destination goes back")
        self.filled_to = row.filled_to

    def _check_end(self, end: Forwarded) -> None:
        """SENT needs an acknowledgement, DEAD_LETTER a refusal."""
        codes = self.codes.get(self._control_id(end.message_id), [])
        if end.status is SENT:
            self.rules.hold(any(code in GOOD for code in codes), f"message {end.message_id} is SENT without an AA")
        if end.status is DEAD:
            self.rules.hold(any(code in REFUSED for code in codes), f"message {end.message_id} is dead without an AR")

    def _check_backoff(self, end: Forwarded) -> None:
        entry = self.world.forwards._rows[self.world.destination.name].entries.get(end.message_id)
        if end.status is PENDING and entry is not None:
            # an answer that was lost counts as well: the ledger may be ahead of the attempt by one
            waits = {min(1.0 * 2**attempts, 300.0) for attempts in (entry.attempts, max(entry.attempts - 1, 0))}
            self.rules.hold(end.retry_seconds in waits, f"message {end.message_id} waits {end.retry_seconds} s")

    def _control_id(self, message_id: int) -> str:
        row = self.world.inbox.rows.get(message_id)
        return "" if row is None else row.message.source_id

    def forwarded(self, message: bytes, code: str | None) -> None:
        """It was handed out by the ledger."""
        control_id = message.split(b"|")[9].decode()
        self.codes.setdefault(control_id, []).append(code)
        self.rules.hold(control_id in self.handed, f"{control_id} is forwarded, and was not the next")

    def missing(self) -> list[str]:
        """What has not come to rest."""
        row = self.world.forwards._rows.get(self.world.destination.name)
        if row is None:
            return ["nothing was forwarded"]
        pending = [id for id, one in row.entries.items() if one.status is PENDING and id in self.world.inbox.rows]
        found = [f"message {id} is not forwarded" for id in pending]
        newest = [
            id for id, one in self.world.inbox.rows.items()
            if one.original_id is None and one.message.source_protocol not in JSON_PROTOCOLS
        ]  # fmt: skip
        return found + ([f"forwarding is at {row.filled_to}"] if row.filled_to < max(newest, default=0) else [])
