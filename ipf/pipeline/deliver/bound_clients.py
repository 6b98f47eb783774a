"""The clients of a websocket subscription in this process, and what each of them is sent (`websockets.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ipf.fhir.model.redaction import redact_body
from ipf.ports import Caller, Event, Lease, Notification, Session, Terms, WebsocketClient


@dataclass(slots=True)
class ClientBinding:
    """The binding of one client to one subscription.  `by_token`: it gets Bundles without `ping`.

    `sent_at`: time of its newest notification.  `count`: the number of its newest event; None = the number that the
    event has in the subscription.
    """

    session: Session
    sent_at: float
    by_token: bool = False
    count: int | None = None

    @property
    def audience(self) -> Audience:
        """Clients of one audience get the same notifications."""
        return self.session.caller, self.count


Audience = tuple[Caller, int | None]
"""Whose grants apply, and the number of the newest event as in `ClientBinding.count`."""


@dataclass(slots=True, eq=False)
class BoundSubscription:
    """A subscription with clients in this process.  `last_number`: of the newest event sent.

    `period`: that of its heartbeats.  It has its own time of reading, because `terms` are read again when there is an
    event: a heartbeat would tell a client of an event that is hidden from it.
    """

    lease: Lease
    terms: Terms
    last_number: int
    period: int | None
    period_read_at: float
    clients: dict[WebsocketClient, ClientBinding] = field(default_factory=dict)


def parts(events: Sequence[Event], count: int | None) -> Iterator[Sequence[Event]]:
    """The events of each notification.  With an own `count` one each: others would tell where hidden events are."""
    if count is None:
        if events:
            yield events
        return
    for number, event in enumerate(events, count + 1):
        yield [replace(event, number=number)]


def texts_of(notification: Notification, binding: ClientBinding) -> list[bytes]:
    """The frames of a notification."""
    body = None if notification.body is None else redact_body(notification.body)  # it may contain a Subscription
    if binding.by_token and body is not None:
        return [body]
    ping = f"ping {notification.subscription_id}".encode()
    return [ping] if body is None or notification.is_content_withheld else [ping, body]
