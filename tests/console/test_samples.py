"""The samples of the page that sends messages."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.console.content.samples import fresh, samples
from ipf.hl7.message import Message


class SampleTests(TestCase):
    def test_every_sample_is_a_message_with_an_id_of_its_own(self) -> None:
        ids = set()
        for text in samples().values():
            for _ in range(2):
                header = Message.parse(fresh(text).replace("\n", "\r").encode()).header
                ids.add(header.source_id)
        self.assertEqual(len(ids), 2 * len(samples()))
        self.assertGreater(len(samples()), 10)
