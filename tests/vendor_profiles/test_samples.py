"""The sample profiles of etc/profiles/samples, and what docs/reference/vendor-profiles.md shows of them."""

from __future__ import annotations

import re

from twisted.trial.unittest import TestCase

from ipf.vendor_profiles.archive import pack
from ipf.vendor_profiles.folder import archives
from ipf.vendor_profiles.profile import validate_profile
from tests.corpus.samples import library
from tests.vendor_profiles.samples import EXAMPLE

PROFILES = EXAMPLE.parents[1] / "profiles"
SAMPLES = PROFILES / "samples"
DOCUMENT = EXAMPLE.parents[2] / "docs/reference/vendor-profiles.md"


class SampleTests(TestCase):
    def test_they_are_valid(self) -> None:
        """All files are used, and each case passes."""
        cases = {"large-ehr": 5, "fhir-rest": 2}
        self.assertEqual({path.name for path in SAMPLES.iterdir()}, set(cases))
        for name, count in cases.items():
            checked = validate_profile(pack(SAMPLES / name), f"{name}.tar.gz", library())
            self.assertEqual([str(one) for one in checked.findings if one.severity == "error"], [])
            self.assertEqual([(one.path, one.message) for one in checked.cases if not one.passed or one.message], [])
            self.assertEqual(len(checked.cases), count)
            unlisted = [one for one in checked.findings if "no mapping lists" in one.message]
            self.assertEqual(unlisted, [])

    def test_none_takes_effect_by_itself(self) -> None:
        """The folder of the default settings holds no archive."""
        self.assertEqual(archives(PROFILES), [])

    def test_the_document_shows_what_is_tested(self) -> None:
        """Its example of Z segments is a part of the map of a sample."""
        text = DOCUMENT.read_text()
        part = text[text.index("## Z segments") :]
        shown = re.findall(r"```fml\n(.*?)```", part, re.DOTALL)
        source = (SAMPLES / "large-ehr/maps/admission.fml").read_text()
        self.assertEqual(len(shown), 2)
        for block in shown:
            for line in filter(None, (line.strip() for line in block.splitlines())):
                self.assertIn(line, source)
