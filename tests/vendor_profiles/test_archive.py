"""Archives: accepted and refused content, in memory."""

from __future__ import annotations

import gzip
import io
import tarfile

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.vendor_profiles import archive
from ipf.vendor_profiles.archive import pack, read_archive
from ipf.vendor_profiles.findings import Findings
from tests.vendor_profiles.samples import EXAMPLE, small, tar


class ArchiveTests(TestCase):
    def refused(self, content: bytes) -> Category:
        with self.assertRaises(Problem) as caught:
            read_archive(content, Findings())
        return caught.exception.category

    def test_accepted_archives(self) -> None:
        """Plain and in gzip, with `./`, and inside one folder."""
        files = small()
        for content in (
            tar(files), tar(files, "w"), tar({f"./{name}": text for name, text in files.items()}),
            tar({f"acme/{name}": text for name, text in files.items()}),
        ):  # fmt: skip
            findings = Findings()
            found = read_archive(content, findings)
            self.assertEqual({name: text.decode() for name, text in found.files.items()}, files)
            self.assertEqual(findings.items, [])

    def test_pack_is_deterministic(self) -> None:
        """The same folder gives the same bytes."""
        found = read_archive(pack(EXAMPLE), Findings())
        self.assertIn("maps/ADT_A04.fml", found.files)
        self.assertEqual(pack(EXAMPLE), pack(EXAMPLE))
        with self.assertRaises(Problem):
            pack(EXAMPLE / "maps")

    def test_invalid_archives(self) -> None:
        whole = tar(small())
        for content in (b"PK\x03\x04", b"", b"{}", b"\x1f\x8b", whole[: len(whole) // 2], gzip.compress(b"text" * 500)):
            self.assertIs(self.refused(content), Category.MALFORMED, content[:9])

    def test_limits(self) -> None:
        """A compressed bomb, too many members, and a large archive are refused."""
        bomb = gzip.compress(b"\0" * 2_000_000)
        self.patch(archive, "MOST_BYTES", 1_000_000)
        self.assertIs(self.refused(bomb), Category.TOO_LARGE)
        self.patch(archive, "MOST_MEMBERS", 5)
        self.assertIs(self.refused(tar(small())), Category.TOO_LARGE)
        self.patch(archive, "MOST_PACKED", 100)
        self.assertIs(self.refused(tar(small())), Category.TOO_LARGE)

    def test_refused_members(self) -> None:
        """Each row: a member that is refused, whatever else the archive holds."""
        for name, kind in (
            ("../evil", tarfile.REGTYPE), ("/etc/passwd", tarfile.REGTYPE), ("maps/../../x", tarfile.REGTYPE),
            ("maps\\x", tarfile.REGTYPE), ("maps/link.fml", tarfile.SYMTYPE), ("maps/hard.fml", tarfile.LNKTYPE),
            ("maps/fifo", tarfile.FIFOTYPE), ("maps/device", tarfile.CHRTYPE), ("manifest.yaml", tarfile.REGTYPE),
            ("maps/" + "x" * 300, tarfile.REGTYPE),
        ):  # fmt: skip
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as made:
                for one, type_ in (("manifest.yaml", tarfile.REGTYPE), (name, kind)):
                    member = tarfile.TarInfo(one)
                    member.type, member.linkname = type_, "manifest.yaml"
                    made.addfile(member)
            findings = Findings()
            found = read_archive(packed.getvalue(), findings)
            self.assertEqual(list(found.files), ["manifest.yaml"])
            self.assertTrue(any(name.startswith(one.path) for one in findings.errors), name)

    def test_unknown_files_give_warnings(self) -> None:
        findings = Findings()
        read_archive(tar({"manifest.yaml": "", "bin/run.sh": "", "maps/a.fml": ""}), findings)
        self.assertEqual([(one.path, one.severity) for one in findings.items],
                         [("bin/run.sh", "warning"), ("README.md", "warning")])  # fmt: skip
