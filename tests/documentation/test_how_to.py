"""The how-to guides, command by command."""

from __future__ import annotations

from tests.documentation.pages import PageTestCase

GROUP = "flows"


class HowToTests(PageTestCase):
    def test_failures(self) -> None:
        self.run_pages("how-to/debug-a-dead-letter.md", "how-to/debug-a-subscription.md", "how-to/replay-messages.md")

    def test_identity(self) -> None:
        self.run_pages("how-to/resolve-identity-conflicts.md")

    def test_erasure(self) -> None:
        self.run_pages("how-to/erase-a-patient.md")

    def test_maps_and_programs(self) -> None:
        self.run_pages("how-to/write-a-map.md", "how-to/send-messages.md")

    def test_other_ways_in(self) -> None:
        self.run_pages("how-to/receive-messages.md")

    def test_monitoring_and_audit(self) -> None:
        self.run_pages("how-to/monitor.md", "how-to/check-the-audit-trail.md")

    def test_export(self) -> None:
        self.run_pages("how-to/export-de-identified.md")

    def test_security(self) -> None:
        self.run_pages("how-to/secure-a-service.md")
