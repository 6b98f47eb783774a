"""FHIR NPM packages: lookups and refused archives."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model import packages
from ipf.fhir.model.packages import Packages, read_package, version_key
from tests.reference import REFERENCE, needs_reference

US_CORE = REFERENCE / "us-core"
PATIENT = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-patient"


def resource(kind: str, name: str, version: str = "1.0.0", **more: Any) -> dict[str, Any]:
    """A conformance resource with a canonical of its own."""
    return {"resourceType": kind, "id": name, "url": f"http://x.org/{kind}/{name}", "version": version, **more}


def archive(path: Path, files: dict[str, Any], *, name: str = "x.org", version: str = "1.0.0") -> Path:
    """A package of JSON files (bytes are written as they are)."""
    everything = {"package/package.json": {"name": name, "version": version}, **files}
    with tarfile.open(path, "w:gz") as made:
        for entry, content in everything.items():
            if content is None:
                continue
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            info = tarfile.TarInfo(entry)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return path


class PackageTests(TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.folder.mkdir()

    def _refused(self, files: dict[str, Any]) -> Problem:
        path = archive(self.folder / "bad.tgz", files)
        problem = self.assertRaises(Problem, read_package, path)
        self.assertIn("bad.tgz", str(problem))
        return problem

    def test_by_canonical(self) -> None:
        """The newest version wins; versions match exactly or by prefix; lookups may name a type."""
        for number in ("1.9.0", "1.10.0", "2.0.0-ballot"):
            content = resource("ValueSet", "a", number, title=number, experimental=False)
            archive(self.folder / f"p{number}.tgz", {"package/ValueSet-a.json": content}, version=number)
        found = Packages.load(self.folder)
        url = "http://x.org/ValueSet/a"

        def title(canonical: str) -> Any:
            entry = found.find(canonical)
            return entry and entry.resource()["title"]

        self.assertEqual(title(url), "2.0.0-ballot")
        self.assertEqual(title(f"{url}|1.9.0"), "1.9.0")
        self.assertEqual(title(f"{url}|1"), "1.10.0")
        self.assertIsNone(title(f"{url}|3"))
        self.assertIsNone(found.find(url, "CodeSystem"))
        self.assertEqual([one.version for one in found.newest("ValueSet")], ["2.0.0-ballot"])
        by_id = found.by_id("ValueSet", "a")
        assert by_id is not None
        self.assertEqual((by_id.canonical, by_id.package), (f"{url}|2.0.0-ballot", "x.org#2.0.0-ballot"))

    def test_versions(self) -> None:
        """The order of versions."""
        order = ["", "0.9", "1.0.0-alpha.2", "1.0.0-alpha.10", "1.0.0-b", "1.0.0", "1.0.0+7", "1.2", "1.10", "20230101"]
        self.assertEqual(sorted(order, key=version_key), order)

    def test_filter_by_type(self) -> None:
        """Only requested types are loaded; examples and other folders are ignored."""
        files = {
            "package/ConceptMap-a.json": resource("ConceptMap", "a"),
            "package/ValueSet-a.json": resource("ValueSet", "a"),
            "package/example/ConceptMap-b.json": resource("ConceptMap", "b"),
            "package/.index.json": {"files": []},
            "package/other/x.txt": b"text",
        }
        found = Packages.load(archive(self.folder / "p.tgz", files).parent, ("ConceptMap",))
        self.assertEqual([one.id for one in found.packages[0].entries], ["a"])

    def test_digits_are_kept(self) -> None:
        """Decimals keep their digits."""
        files = {"package/a.json": b'{"resourceType": "Basic", "id": "a", "n": 1.10}'}
        entry = read_package(archive(self.folder / "p.tgz", files)).entries[0]
        self.assertEqual(str(entry.resource()["n"]), "1.10")

    def test_errors_name_archive_and_entry(self) -> None:
        """Archive and entry, and for JSON the line."""
        problem = self._refused({"package/a.json": b'{\n"resourceType": oops}'})
        self.assertIn("package/a.json: is not JSON", str(problem))
        self.assertIn("line 2", str(problem))
        self.assertIn("package/b.json: is not a FHIR resource", str(self._refused({"package/b.json": [1]})))
        self.assertIn("package.json", str(self._refused({"package/package.json": None})))
        self.assertIn("leads out", str(self._refused({"package/../../etc/passwd": b"x"})))
        self.assertIn("leads out", str(self._refused({"/etc/passwd": b"x"})))

    def test_damaged_archives(self) -> None:
        """Truncated, not gzip, with a link."""
        path = archive(self.folder / "cut.tgz", {"package/a.json": resource("ValueSet", "a", text="x" * 100_000)})
        data = path.read_bytes()
        for damaged in (data[: len(data) // 2], b"this is no archive", b""):
            path.write_bytes(damaged)
            self.assertIn("cut.tgz", str(self.assertRaises(Problem, read_package, path)))
        with tarfile.open(path, "w:gz") as made:
            info = tarfile.TarInfo("package/a.json")
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            made.addfile(info)
        self.assertIn("is a link", str(self.assertRaises(Problem, read_package, path)))

    def test_bounds(self) -> None:
        """An entry larger than the bound is not read."""
        self.patch(packages, "LARGEST_ENTRY", 1000)
        problem = self._refused({"package/a.json": resource("ValueSet", "a", text="x" * 2000)})
        self.assertIs(problem.category, Category.TOO_LARGE)

    def test_missing_folder(self) -> None:
        """A configured folder must exist; None is allowed."""
        self.assertRaises(Problem, Packages.load, self.folder / "missing")
        self.assertIsNone(Packages.load(None).find("http://x.org/a"))

    @needs_reference
    def test_us_core(self) -> None:
        """The published package."""
        found = Packages.load(US_CORE)
        entry = found.find(PATIENT + "|7.0.0", "StructureDefinition")
        assert entry is not None
        self.assertEqual(entry.resource()["type"], "Patient")
        self.assertGreater(len(list(found.newest("StructureDefinition"))), 50)
        self.assertGreater(len(list(found.newest("SearchParameter"))), 50)
        self.assertEqual(found.packages[0].name, "hl7.fhir.us.core")
        held = sum(len(one._content) for one in found.packages[0].entries)
        self.assertLess(held, 4_000_000)
