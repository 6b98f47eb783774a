"""The rules that hold after each step, with a model of each kind of row beside the store: see `Rules`.

A rule that is broken is noted, since the stages catch exceptions; the world ends the run after the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ipf.ports import Notification
from tests.simulation.delivery_rules import DeliveryRules
from tests.simulation.faults import Process
from tests.simulation.feed_rules import FeedRules
from tests.simulation.forward_rules import ForwardRules
from tests.simulation.inbox_rules import InboxRules
from tests.simulation.transports import Outgoing, Subscriber

if TYPE_CHECKING:
    from tests.simulation.world import World


class Broken(AssertionError):
    """A rule was broken in a run."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Rules:
    """All rules, and the trace of the run."""

    def __init__(self, world: World) -> None:
        self.trace: list[tuple[Any, ...]] = []
        self.broken: list[str] = []
        self._world = world
        self.inbox = InboxRules(world, self)
        self.delivery = DeliveryRules(world, self)
        self.forwards = ForwardRules(world, self)
        self.feeds = FeedRules(world, self)
        self._by_port = {
            "inbox": (self.inbox,), "admin": (self.inbox,), "feeds": (self.inbox, self.feeds),
            "transaction": (self.delivery, self.inbox), "fhir": (), "deliveries": (self.delivery,),
            "forwards": (self.forwards,),
        }  # fmt: skip

    def note(self, *what: Any) -> None:
        """Add a line to the trace."""
        self.trace.append((self._world.clock.rightNow, *what))

    def hold(self, condition: bool, text: str) -> None:
        """A rule; `text`: what is broken when the condition is false."""
        if not condition:
            self.broken.append(text)
            self.note("BROKEN", text)

    def called(self, process: Process, port: str, name: str, args: Sequence[Any]) -> None:
        """A process calls a store."""
        for rules in self._by_port[port]:
            rules.called(process, name, args)

    def committed(self, process: Process, port: str, name: str, args: Sequence[Any], result: Any) -> None:
        """The call had its effect."""
        if not _is_idle(name, result):
            self.note(process.name, port, name, _shown(args, result))
        for rules in self._by_port[port]:
            rules.committed(process, name, args, result)

    def answered(self, process: Process, port: str, name: str, args: Sequence[Any], result: Any) -> None:
        """The process has the answer."""
        if port == "inbox":
            self.inbox.answered(process, name, args, result)

    def acknowledged(self, sender: str, outgoing: Outgoing, code: str) -> None:
        """The service acknowledges a message."""
        self.note(sender, "gets", code, outgoing.control_id)
        self.inbox.acknowledged(sender, outgoing, code)

    def notified(self, process: Process, subscriber: Subscriber, notification: Notification) -> None:
        """A notification arrives at a subscriber."""
        self.note(process.name, "notifies", subscriber.id, [event.number for event in notification.events])
        self.delivery.notified(subscriber, notification)

    def forwarded(self, name: str, message: bytes, code: str | None) -> None:
        """A forwarded message arrives; `code`: its acknowledgement."""
        self.note("forward", name, message.split(b"|")[9].decode(), code)
        self.forwards.forwarded(message, code)


def _is_idle(name: str, result: Any) -> bool:
    return result in (None, [], 0) and name not in ("settle", "commit", "reject", "delete")


def _shown(args: Sequence[Any], result: Any) -> str:
    """What the trace shows of a call: never what the process drew at random."""
    first = args[0] if args else None
    if isinstance(first, list) and first and hasattr(first[0], "source_id"):
        return f"{[one.source_id for one in first]} -> {[str(one) for one in result]}" if result is not None else "None"
    if isinstance(first, list) and first and hasattr(first[0], "status"):
        ends = [(one.id, one.fence, str(one.status), one.attempt_count) for one in first]
        return f"{ends} -> {result}"
    if hasattr(first, "changes"):
        return str([(one.version.resource_type, one.version.version_id) for one in first.changes])
    if hasattr(first, "subscription_id"):
        end = args[1]
        kept = getattr(result, "is_kept", result)
        if hasattr(end, "delivered_to"):
            return f"{first.subscription_id}/{first.token} to {end.delivered_to} failures {end.attempt_count} -> {kept}"
        return f"{first.subscription_id}/{first.token}"
    if isinstance(result, list):
        return str([getattr(one, "subscription_id", getattr(one, "id", type(one).__name__)) for one in result])
    return ""
