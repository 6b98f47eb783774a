"""Whether the published data that tests read is complete."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.reference import REFERENCE, needs_reference


@needs_reference
class ReferenceTests(TestCase):
    def test_published_data_is_present(self) -> None:
        """Every folder that a test reads is there, so that no test passes on nothing."""
        folders = {path.name for path in REFERENCE.iterdir()}
        needed = {"fhir-examples", "fhirpath", "fml", "jose", "load", "mllp", "patch", "search", "us-core",
                  "us-core-server", "v2-pairs", "v2-to-fhir", "validation"}  # fmt: skip
        self.assertEqual(needed - folders, set())
