"""The retry budget with the default settings: measured on the stage, and documented as it is."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.app.runtime.stores import delivery_backoff
from ipf.config.settings import Settings
from ipf.pipeline.deliver.attempts import budget_seconds
from ipf.pipeline.deliver.deliver import Deliver
from ipf.ports import Backoff, Delivered
from tests.pipeline.deliver.test_deliver import DeliverFixture

ROOT = Path(__file__).resolve().parents[3]
DEFAULTS = Settings()
BUSY, REFUSED = Delivered(503, 1, None), Delivered(404, 1, None)


class BudgetTests(DeliverFixture, TestCase):
    """The time from the first attempt to the status `error`, for a subscriber that answers each attempt at once."""

    def until_error(self, answer: Delivered, chance: float) -> float:
        """Seconds on the clock of the stage.  `chance`: of the random part of each pause."""
        self.setUp()
        self.queue.add("a", 1)
        self.far.answers["a"] = answer
        deliver = Deliver(
            self.queue, {"rest-hook": self.far}, self.compose, self.set_status, self.notifier, self.clock, self.now,
            worker="w", backoff=delivery_backoff(DEFAULTS), poll_seconds=1.0, chance=lambda: chance,
        )  # fmt: skip
        deliver.start()
        while not self.statuses:
            self.clock.advance(0.25)
            self.assertLess(self.clock.seconds(), 1000)
        return float(self.clock.seconds())

    def documented(self, *names: str) -> list[str]:
        """The pages without line breaks and marks of comments."""
        return [" ".join((ROOT / name).read_text().replace("\n#", "\n").split()) for name in names]

    def test_the_pages_say_what_is_measured(self) -> None:
        shortest, longest = self.until_error(BUSY, 0.999), self.until_error(BUSY, 0.0)
        refused = self.until_error(REFUSED, 0.0)
        budget = budget_seconds(delivery_backoff(DEFAULTS))
        self.assertLess(abs(longest - budget), 5)
        self.assertLess(abs(shortest - 0.75 * budget), 10)
        said = f"{round(0.75 * budget)} to {round(budget)} s"
        self.assertEqual((budget, said), (123, "92 to 123 s"))
        for page in self.documented(
            "docs/reference/subscriptions.md", "docs/how-to/debug-a-subscription.md", "etc/ipf.env"
        ):
            self.assertIn(said, page)
        (page,) = self.documented("docs/reference/subscriptions.md")
        self.assertLess(abs(refused - 240), 5)
        self.assertIn("180 to 240 s", page)
        timeouts = DEFAULTS.delivery_max_attempts * DEFAULTS.delivery_timeout_ms // 1000
        self.assertIn(f"up to {timeouts} s more", page)

    def test_the_budget_of_messages(self) -> None:
        """Source: interface specification "States and transitions": about 15 s in flight."""
        backoff = Backoff(
            DEFAULTS.backoff_base_ms, DEFAULTS.backoff_factor, DEFAULTS.backoff_max_ms, DEFAULTS.max_attempts
        )
        seconds = sum(backoff.delay_ms(number) for number in range(1, backoff.max_attempts)) / 1000
        (page,) = self.documented("docs/reference/operations.md")
        self.assertIn(f"about {seconds:g} s after the first", page)
