"""A profile drafted from all samples of the corpus: the general maps of all types, compiled twice more."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.corpus.samples import names
from tests.vendor_profiles.test_drafting import check_corpus

GROUP = "campaigns"


class CorpusTests(TestCase):
    def test_the_corpus(self) -> None:
        """The messages of all types that the general maps read."""
        check_corpus(self, names())
