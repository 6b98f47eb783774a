"""The state machine of `Subscription.status`, as a transition table.

The subscriber submits `requested` or `off` (paused).  The service moves `requested` to `active` when the channel is
ready, and to `error` when activation fails or the delivery retries are used up.  An operator may set any status.

Source: interface specification "FHIR Subscription status"; https://hl7.org/fhir/R4/subscription.html (status codes).
"""

from __future__ import annotations

from enum import Enum

REQUESTED, ACTIVE, OFF, ERROR = "requested", "active", "off", "error"
STATUSES = frozenset({REQUESTED, ACTIVE, OFF, ERROR})
SUBMITTABLE = frozenset({REQUESTED, OFF})
FIRING = frozenset({REQUESTED, ACTIVE, ERROR})
"""Statuses in which matching changes become numbered events; they are delivered in status `active` only."""


class Trigger(Enum):
    """A cause of a transition."""

    SUBMITTED_REQUESTED = "the subscriber writes status requested"
    SUBMITTED_OFF = "the subscriber writes status off"
    ACTIVATED = "the channel is ready"
    ACTIVATION_FAILED = "the channel cannot be made ready"
    EXHAUSTED = "the delivery retries are used up"
    ENDED = "the time in Subscription.end has come"


NEW = "(none)"

TRANSITIONS: dict[tuple[str, Trigger], str] = {
    (NEW, Trigger.SUBMITTED_REQUESTED): REQUESTED,
    (NEW, Trigger.SUBMITTED_OFF): OFF,
    (REQUESTED, Trigger.SUBMITTED_REQUESTED): REQUESTED,
    (ACTIVE, Trigger.SUBMITTED_REQUESTED): REQUESTED,
    (ERROR, Trigger.SUBMITTED_REQUESTED): REQUESTED,
    (OFF, Trigger.SUBMITTED_REQUESTED): REQUESTED,
    (REQUESTED, Trigger.SUBMITTED_OFF): OFF,
    (ACTIVE, Trigger.SUBMITTED_OFF): OFF,
    (ERROR, Trigger.SUBMITTED_OFF): OFF,
    (OFF, Trigger.SUBMITTED_OFF): OFF,
    (REQUESTED, Trigger.ACTIVATED): ACTIVE,
    (REQUESTED, Trigger.ACTIVATION_FAILED): ERROR,
    (ACTIVE, Trigger.EXHAUSTED): ERROR,
    (REQUESTED, Trigger.ENDED): OFF,
    (ACTIVE, Trigger.ENDED): OFF,
    (ERROR, Trigger.ENDED): OFF,
}


def follow(status: str, trigger: Trigger) -> str | None:
    """The status after `trigger`; None when the trigger has no effect in this status."""
    return TRANSITIONS.get((status, trigger))


def origins(trigger: Trigger) -> frozenset[str]:
    """The statuses in which `trigger` has an effect."""
    return frozenset(status for status, known in TRANSITIONS if known is trigger)
