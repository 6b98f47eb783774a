"""The tutorials of the first hour, command by command."""

from __future__ import annotations

from tests.documentation.pages import PageTestCase


class FirstHourTests(PageTestCase):
    def test_first_message_and_first_map(self) -> None:
        self.run_pages("tutorials/first-message.md", "tutorials/first-map.md")
