"""The rules of messages: nothing acknowledged is lost, none is stored twice, states follow the contract's table, one
lease at a time, back-off as specified, patients in order.

Source: interface specification "Ingested message".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ipf.ports import OPEN_STATES, Status
from tests.fakes.inbox import Row
from tests.simulation.transports import GARBAGE, PASSED_TYPE, Outgoing

if TYPE_CHECKING:
    from tests.simulation.faults import Process
    from tests.simulation.rules import Rules
    from tests.simulation.world import World

R, T, F = Status.RECEIVED, Status.TRANSFORMING, Status.FAILED
DONE, DEAD = Status.DELIVERED, Status.DEAD_LETTER


@dataclass
class Seen:
    """A message as it was after the last call."""

    status: Status
    attempts: int = 0
    next_at: datetime | None = None
    fence: int = 0
    holder: str | None = None
    leased_at: datetime | None = None
    claimed: int = 0
    reopened: int = 0

    def follow(self, row: Row) -> None:
        """As it is now."""
        self.status, self.attempts, self.next_at = row.status, row.attempt_count, row.next_attempt_at
        self.fence, self.holder, self.leased_at = row.fence, row.claimed_by, row.leased_at


@dataclass
class InboxRules:
    """See the module.  `held`: by process, the messages whose claim it knows and has not settled."""

    world: World
    rules: Rules
    seen: dict[int, Seen] = field(default_factory=dict)
    keys: dict[tuple[str, str], int] = field(default_factory=dict)
    acked: dict[tuple[str, str], int] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    deleted_keys: set[str] = field(default_factory=set)
    held: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    computed: dict[tuple[int, int], datetime | None] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    count: int = 0

    def delay(self, attempts: int) -> timedelta:
        """The contract's back-off after so many failures."""
        base, factor, most = self.world.backoff.base_ms, self.world.backoff.factor, self.world.backoff.max_ms
        return timedelta(milliseconds=int(min(base * factor ** (attempts - 1), most)))

    # -- calls

    def called(self, process: Process, name: str, args: Sequence[Any]) -> None:
        """A back-off begins at the failure."""
        if name != "settle":
            return
        for end in args[0]:
            key = end.id, end.fence
            if end.status is F and key not in self.computed:
                self.computed[key] = end.next_attempt_at
                due = process.clock.now() + self.delay(end.attempt_count)
                self.rules.hold(end.next_attempt_at == due, f"message {end.id} waits until {end.next_attempt_at}")

    def answered(self, process: Process, name: str, args: Sequence[Any], result: Any) -> None:
        """What a process knows to hold."""
        held = self.held.setdefault(process.name, set())
        if name == "claim":
            held.update((one.id, one.fence) for one in result)
        elif name == "settle":
            held.difference_update((one.id, one.fence) for one in args[0])

    def committed(self, process: Process, name: str, args: Sequence[Any], result: Any) -> None:
        """Compare each message with what it was."""
        if name == "commit":
            self._stored(args[0])
            return
        self.count += 1
        rows = self.world.inbox.rows
        if name in ("store", "save", "run_batch") or len(rows) != len(self.seen):
            for id in [id for id in self.seen if id not in rows]:
                self._removed(id, name)
            for id, row in rows.items():
                if id not in self.seen:
                    self._created(id, row, name)
        for id, row in rows.items():
            seen = self.seen[id]
            if row.status is not seen.status or row.fence != seen.fence or row.attempt_count != seen.attempts:
                self._changed(process, name, args, row, seen)
            seen.follow(row)

    def _created(self, id: int, row: Row, name: str) -> None:
        key = row.message.source_system, row.message.source_id
        if row.original_id is None:
            self.rules.hold(key not in self.keys, f"message {key} is stored twice")
            self.keys[key] = id
        is_new = row.status is R and row.attempt_count == 0
        self.rules.hold(is_new and name in ("store", "save", "run_batch"), f"message {id} begins as {row.status}")
        self.seen[id] = Seen(row.status)

    def _removed(self, id: int, name: str) -> None:
        seen = self.seen.pop(id)
        is_allowed = seen.status is DEAD and name in ("delete", "run_batch")
        self.rules.hold(is_allowed, f"{name} removed message {id} in {seen.status}")
        self.deleted.add(id)
        self.deleted_keys.update(key[1] for key, one in self.keys.items() if one == id)
        self.keys = {key: one for key, one in self.keys.items() if one != id}

    def _changed(self, process: Process, name: str, args: Sequence[Any], row: Row, seen: Seen) -> None:
        rule = getattr(self, f"_{name}", None)
        if rule is None or not rule(process, args, row, seen):
            what = f"{seen.status} {seen.attempts} -> {row.status} {row.attempt_count}"
            self.rules.hold(False, f"{name} by {process.name} changed message {row.id}: {what}")

    # -- one rule for each call that changes messages: whether the change is allowed

    def _claim(self, process: Process, args: Sequence[Any], row: Row, seen: Seen) -> bool:
        now = self.world.clock.now()
        seen.claimed = self.count
        is_due = seen.status is R or (seen.status is F and seen.next_at is not None and seen.next_at <= now)
        earlier = [
            one.id for one in self.world.inbox.rows.values()
            if one.id < row.id and row.message.ordering_key is not None
            and one.message.ordering_key == row.message.ordering_key
            and one.status in OPEN_STATES and not (one.status is T and one.claimed_by == args[0] == row.claimed_by)
        ]  # fmt: skip
        self.rules.hold(not earlier, f"message {row.id} was claimed before {earlier} of its patient")
        return is_due and row.status is T and row.fence > seen.fence and row.attempt_count == seen.attempts

    def _settle(self, process: Process, args: Sequence[Any], row: Row, seen: Seen) -> bool:
        ends = [one for one in args[0] if one.id == row.id and one.fence == seen.fence]
        if seen.status is not T or seen.holder != process.name or len(ends) != 1 or row.fence != seen.fence:
            return False
        most, count = self.world.backoff.max_attempts, seen.attempts + 1
        if row.status is DONE:
            self._check_effect(row)
            return row.attempt_count == seen.attempts and row.last_error is None and row.delivered_at is not None
        if row.status in (F, DEAD) and "another writer" in (row.last_error or ""):
            key = row.message.tenant, f"message/{row.message.correlation_id}"
            self.rules.hold(key not in self.world.fhir.receipts, f"message {row.id} fails, and its resources are there")
        if row.status is F:
            return row.attempt_count == count < most and row.next_attempt_at == self.computed.get((row.id, row.fence))
        if row.status is DEAD:
            return row.attempt_count == count >= most and row.next_attempt_at is None and bool(row.last_error)
        return row.status is R and row.attempt_count == seen.attempts

    def _check_effect(self, row: Row) -> None:
        key = row.message.tenant, f"message/{row.message.correlation_id}"
        if row.original_id is None and row.message.message_type != PASSED_TYPE:
            self.rules.hold(key in self.world.fhir.receipts, f"message {row.id} is DELIVERED without its resources")

    def _recovered(self, row: Row, seen: Seen) -> bool:
        count = seen.attempts + 1
        if seen.status is not T or row.attempt_count != count:
            return False
        if count >= self.world.backoff.max_attempts:
            return row.status is DEAD and row.next_attempt_at is None
        return row.status is F and row.next_attempt_at == self.world.clock.now() + self.delay(count)

    def _recover_stale(self, process: Process, args: Sequence[Any], row: Row, seen: Seen) -> bool:
        limit = self.world.clock.now() - timedelta(seconds=self.world.stale_seconds)
        holder = self.world.processes.get(seen.holder or "")
        if holder is not None and holder.alive and (row.id, seen.fence) in self.held.get(holder.name, ()):
            calm = self.world.clock.seconds() - holder.trouble > self.world.stale_seconds + 25.0
            self.rules.hold(not calm, f"message {row.id} was taken from {holder.name}, which works on it")
        return seen.leased_at is not None and seen.leased_at < limit and self._recovered(row, seen)

    def _recover_worker(self, process: Process, args: Sequence[Any], row: Row, seen: Seen) -> bool:
        holder = self.world.processes.get(seen.holder or "")
        return seen.holder == args[0] and holder is not None and not holder.alive and self._recovered(row, seen)

    def _release_except(self, process: Process, args: Sequence[Any], row: Row, seen: Seen) -> bool:
        is_worked_on = (row.id, seen.fence) in self.held.get(process.name, ())
        self.rules.hold(not is_worked_on, f"message {row.id} was released while {process.name} works on it")
        return seen.status is T and seen.holder == process.name and row.status is R

    def _retry(self, process: Process, args: Sequence[Any], row: Row, seen: Seen) -> bool:
        seen.reopened = self.count
        reset = row.attempt_count == 0 and row.next_attempt_at is None and row.last_error is None
        return seen.status in (F, DEAD) and row.status is R and reset

    _run_batch = _retry

    # -- effects

    def _stored(self, writes: Any) -> None:
        """Resources are written once, each version after the one before, in the order of a patient's messages."""
        for change in writes.changes:
            key = change.tenant, change.version.resource_type, change.version.id
            numbers = [version.version_id for version in self.world.fhir.versions[key]]
            self.rules.hold(numbers == list(range(1, len(numbers) + 1)), f"{key} has the versions {numbers}")
        rows = self.world.inbox.rows.values()
        for receipt in writes.receipts:
            self.rules.hold(receipt.key not in self.written, f"{receipt.key} is written twice")
            self.written.add(receipt.key)
            row = next((one for one in rows if f"message/{one.message.correlation_id}" == receipt.key), None)
            if row is not None and row.message.ordering_key is not None:
                for other in rows:
                    if other.id < row.id and other.message.ordering_key == row.message.ordering_key:
                        self._check_order(other, row, self.seen[row.id].claimed)

    def _check_order(self, other: Row, row: Row, claimed: int) -> None:
        is_written = (other.message.tenant, f"message/{other.message.correlation_id}") in self.world.fhir.receipts
        is_waiting = other.status in OPEN_STATES and not is_written and self.seen[other.id].reopened <= claimed
        is_passed = other.message.message_type == PASSED_TYPE
        self.rules.hold(not is_waiting or is_passed, f"message {row.id} is written before {other.id} of its patient")

    # -- acknowledgements

    def acknowledged(self, sender: str, outgoing: Outgoing, code: str) -> None:
        """AA: it is stored now.  AR: it is among the rejects."""
        if outgoing.kind == GARBAGE:
            kept = any(one.raw == outgoing.frame for one in self.world.inbox.rejects)
            self.rules.hold(code == "AE" or (code == "AR" and kept), f"{outgoing.control_id}: {code} for no message")
            return
        self.rules.hold(code in ("AA", "AE"), f"{outgoing.control_id} gets {code}")
        if code == "AA":
            id = self.keys.get((sender, outgoing.control_id))
            was_deleted = (sender, outgoing.control_id) in self.acked
            self.rules.hold(id is not None or was_deleted, f"{outgoing.control_id} gets AA and is not stored")
            if id is not None:
                self.acked[sender, outgoing.control_id] = id

    def missing(self) -> list[str]:
        """What has not come to rest: each acknowledged message is DELIVERED or DEAD_LETTER with its reason."""
        found = []
        for key, id in self.acked.items():
            row = self.world.inbox.rows.get(id)
            if row is None:
                found += [] if id in self.deleted else [f"message {key} is lost"]
        for row in self.world.inbox.rows.values():
            if row.status not in (DONE, DEAD) or (row.status is DEAD and not row.last_error):
                found.append(f"message {row.id} is {row.status}")
        return found
