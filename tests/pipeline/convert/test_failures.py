"""`last_error` in words: every category of failure, in both stages, with and without a further attempt."""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.pipeline.convert.failures import FHIR_STAGE, MAPPING_STAGE, Failure
from ipf.ports.identity import ConflictKind, IdentityConflict, IdentityFinding, IdentityKey
from tests.pipeline.convert.test_convert import message

FINDING = IdentityFinding(ConflictKind.AMBIGUOUS, "Patient", (IdentityKey("urn:s", "MR", "1"),), ("Patient/a",))


class FailureTests(TestCase):
    def test_every_category(self) -> None:
        """It names stage, type and sender, the reason, and what to do; nothing that cannot succeed is "tried again"."""
        claimed = replace(message(1), message_type="ORU_R01", source_system="LAB")
        for category in Category:
            for stage, word in ((MAPPING_STAGE, "mapping"), (FHIR_STAGE, "storing")):
                for is_last in (False, True):
                    problem = Problem(category, "the reason.", "PID-3")
                    text = Failure(stage, problem).text(claimed, is_last=is_last)
                    self.assertTrue(text.startswith(f"{word} ORU_R01 of LAB failed: PID-3: the reason. "), text)
                    self.assertTrue(text.endswith("."), text)
                    self.assertNotIn("matchbox", text)
                    self.assertNotIn("hapi", text)
                    can_succeed = not problem.is_permanent
                    self.assertEqual("is tried again" in text, can_succeed and not is_last, text)
                    self.assertEqual("retry it when the cause is gone" in text, can_succeed and is_last, text)
                    self.assertEqual("No attempt can succeed as it is" in text, not can_succeed, text)
                    self.assertEqual("the map" in text, not can_succeed, text)

    def test_a_conflict_waits_for_its_answer(self) -> None:
        for is_last in (False, True):
            conflict = IdentityConflict(FINDING, "Patient: two match; answer it with `ipfctl identity`")
            text = Failure(FHIR_STAGE, conflict).text(message(1), is_last=is_last)
            self.assertTrue(text.endswith("It fails again until the conflict is answered."), text)
            self.assertIn("`ipfctl identity`", text)

    def test_dead_letters_with_one_cause_have_one_text(self) -> None:
        problem = Problem(Category.UNMAPPED, "no map")
        texts = {Failure(MAPPING_STAGE, problem).text(message(number), is_last=True) for number in range(1, 9)}
        self.assertEqual(len(texts), 1)
