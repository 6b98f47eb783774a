"""The subscriber of the tutorial in JavaScript and in Java."""

from __future__ import annotations

from tests.documentation.pages import PageTestCase

GROUP = "clients"
_COMMAND = "```sh\npython3 subscriber.py\n"


class SubscriberTests(PageTestCase):
    def test_in_javascript(self) -> None:
        self.run_pages("tutorials/first-subscriber.md", changed=(_COMMAND, "```sh\nnode subscriber.mjs\n"))

    def test_in_java(self) -> None:
        self.run_pages("tutorials/first-subscriber.md", changed=(_COMMAND, "```sh\njava Subscriber.java\n"))
