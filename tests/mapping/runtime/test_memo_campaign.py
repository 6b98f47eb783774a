"""Memoized results of every sample of the corpus."""

from __future__ import annotations

from tests.mapping.runtime import test_memo

GROUP = "campaigns"


class EverySampleCampaign(test_memo.LibraryTests):
    every = 1
