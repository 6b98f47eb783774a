"""The local checks of `ipfctl doctor`."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.app.doctor import profile_findings
from ipf.config.settings import Settings
from tests.vendor_profiles.samples import bare, small, tar


class DoctorTests(TestCase):
    def test_vendor_profiles(self) -> None:
        """Each archive is checked with the maps of this installation."""
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "a.tar.gz").write_bytes(tar(small("a")))
        (folder / "b.tar.gz").write_bytes(tar(small("b") | {"maps/a04.fml": "map"}))
        (folder / "c.tar.gz").write_bytes(b"x")
        found = profile_findings(Settings(profile_dir=str(folder)), bare())
        results = {one.check: one.result for one in found}
        expected = {"profile a.tar.gz": "ok", "profile b.tar.gz": "failed", "profile c.tar.gz": "failed"}
        self.assertEqual(results, expected)
        self.assertIn("maps/a04.fml:1", found[1].text)
