"""The tutorials after the first hour, command by command."""

from __future__ import annotations

from tests.documentation.pages import PageTestCase

GROUP = "flows"


class TutorialTests(PageTestCase):
    def test_first_subscriber(self) -> None:
        self.run_pages("tutorials/first-subscriber.md")

    def test_second_interface(self) -> None:
        self.run_pages("tutorials/second-interface.md")

    def test_vendor_profile(self) -> None:
        self.run_pages("tutorials/vendor-profile.md")
