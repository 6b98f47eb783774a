"""The transition table of `Subscription.status`."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.subscriptions.status import (
    ACTIVE,
    ERROR,
    NEW,
    OFF,
    REQUESTED,
    STATUSES,
    TRANSITIONS,
    Trigger,
    follow,
    origins,
)


class StatusTests(TestCase):
    def test_transitions_of_the_specification(self) -> None:
        for before, trigger, after in (
            (NEW, Trigger.SUBMITTED_REQUESTED, REQUESTED),
            (NEW, Trigger.SUBMITTED_OFF, OFF),
            (REQUESTED, Trigger.ACTIVATED, ACTIVE),
            (REQUESTED, Trigger.ACTIVATION_FAILED, ERROR),
            (ACTIVE, Trigger.EXHAUSTED, ERROR),
            (ERROR, Trigger.SUBMITTED_REQUESTED, REQUESTED),
            (ACTIVE, Trigger.SUBMITTED_OFF, OFF),
            (ACTIVE, Trigger.ENDED, OFF),
        ):
            self.assertEqual(follow(before, trigger), after)

    def test_late_triggers_have_no_effect(self) -> None:
        for before, trigger in (
            (OFF, Trigger.ACTIVATED),
            (ERROR, Trigger.ACTIVATED),
            (OFF, Trigger.EXHAUSTED),
            (REQUESTED, Trigger.EXHAUSTED),
        ):
            self.assertIsNone(follow(before, trigger))

    def test_a_subscriber_may_submit_in_every_status(self) -> None:
        for trigger in (Trigger.SUBMITTED_REQUESTED, Trigger.SUBMITTED_OFF):
            self.assertEqual(origins(trigger), STATUSES | {NEW})

    def test_every_row_ends_in_a_status(self) -> None:
        self.assertLessEqual(set(TRANSITIONS.values()), STATUSES)
