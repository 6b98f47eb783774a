"""Release formats: small files of our own in the published columns; what becomes of them, and what is refused."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.fhir.releases import READERS, read
from ipf.ports.fhir.terminology_import import NewSystem

T = "\t"
SNOMED = {
    "Snapshot/Terminology/sct2_Concept_Snapshot_INT_20260101.txt": [
        "id effectiveTime active moduleId definitionStatusId",
        "138875005 20250101 1 900000000000207008 900000000000074008",
        "100 20260101 1 900000000000207008 900000000000073002",
        "200 20250101 0 900000000000207008 900000000000074008",
        "300 20250101 1 900000000000207008 900000000000074008",
    ],
    "Snapshot/Terminology/sct2_Description_Snapshot-en_INT_20260101.txt": [
        "id effectiveTime active moduleId conceptId languageCode typeId term caseSignificanceId",
        "1 20250101 1 9 138875005 en 900000000000003001 Root_(root) 9",
        "2 20250101 1 9 100 en 900000000000003001 Heart_attack_(disorder) 9",
        "3 20250101 1 9 100 en 900000000000013009 Heart_attack 9",
        "4 20250101 1 9 100 en 900000000000013009 Cardiac_infarction 9",
        "5 20250101 0 9 100 en 900000000000013009 Withdrawn 9",
        "6 20250101 1 9 300 en 900000000000003001 Heart_structure_(body_structure) 9",
    ],
    "Snapshot/Terminology/sct2_Relationship_Snapshot_INT_20260101.txt": [
        "id effectiveTime active moduleId sourceId destinationId relationshipGroup typeId characteristicTypeId"
        " modifierId",
        "1 20250101 1 9 100 138875005 0 116680003 9 9",
        "2 20250101 1 9 300 138875005 0 116680003 9 9",
        "3 20250101 1 9 100 300 1 363698007 9 9",
        "4 20250101 0 9 200 138875005 0 116680003 9 9",
    ],
    "Snapshot/Refset/Language/der2_cRefset_LanguageSnapshot-en_INT_20260101.txt": [
        "id effectiveTime active moduleId refsetId referencedComponentId acceptabilityId",
        "a 20250101 1 9 900000000000509007 4 900000000000549004",
        "b 20250101 1 9 900000000000509007 3 900000000000548007",
        "c 20250101 1 9 900000000000508004 4 900000000000548007",
    ],
    "Snapshot/Refset/Content/der2_Refset_SimpleSnapshot_INT_20260101.txt": [
        "id effectiveTime active moduleId refsetId referencedComponentId",
        "a 20250101 1 9 723264001 300",
    ],
}
LOINC = {
    "LoincTable/Loinc.csv": [
        '"LOINC_NUM","COMPONENT","PROPERTY","SYSTEM","STATUS","VersionLastChanged","SHORTNAME","LONG_COMMON_NAME"',
        '"1-8","Glucose","MCnc","Ser","ACTIVE","2.80","Gluc Ser","Glucose, in serum"',
        '"2-6","Old","MCnc","Ser","DEPRECATED","2.9","","Old one"',
    ],
    "AccessoryFiles/ComponentHierarchyBySystem/ComponentHierarchyBySystem.csv": [
        "PATH_TO_ROOT,SEQUENCE,IMMEDIATE_PARENT,CODE,CODE_TEXT",
        ",1,,LP1-1,Laboratory",
        "LP1-1,1,LP1-1,1-8,Glucose",
    ],
    "AccessoryFiles/AnswerFile/AnswerList.csv": [
        "AnswerListId,AnswerListName,AnswerStringId,DisplayText",
        "LL1-9,Yes no,LA33-6,Yes",
        "LL1-9,Yes no,LA32-8,No",
    ],
    "AccessoryFiles/AnswerFile/LoincAnswerListLink.csv": ["LoincNumber,AnswerListId", "1-8,LL1-9"],
}
RXNORM = {
    "rrf/RXNCONSO.RRF": [
        "10|ENG||||||||||RXNORM|IN|10|Aspirin||N||",
        "10|ENG||||||||||RXNORM|SY|10|ASA||N||",
        "10|ENG||||||||||MTHSPL|SU|10|Other source||N||",
        "20|ENG||||||||||RXNORM|SCD|20|Aspirin 81 MG Oral Tablet||N||",
        "30|ENG||||||||||RXNORM|SCDG|30|Aspirin Pill||O||",
    ],
    "rrf/RXNREL.RRF": [
        "10|||RO|20|||has_ingredient|||RXNORM||||N||",
        "30|||PAR|20|||isa|||RXNORM||||N||",
    ],
    "rrf/RXNSAT.RRF": ["20||||||||RXN_STRENGTH|RXNORM|81 MG|N||"],
}
ORDER = [
    "00001 A00     0 Cholera                                                      Cholera",
    "00002 A000    1 Cholera due to Vibrio cholerae 01, biovar cholerae           Cholera due to Vibrio cholerae 01",
]
TABULAR = """<?xml version="1.0"?><ICD10CM.tabular><version>2026</version><chapter><name>1</name><desc>Infections</desc>
<section id="A00-A09"><desc>Intestinal</desc><diag><name>A00</name><desc>Cholera</desc><diag><name>A00.0</name>
<desc>Classical cholera</desc><inclusionTerm><note>Classic</note></inclusionTerm></diag></diag></section></chapter>
</ICD10CM.tabular>"""


class Releases(TestCase):
    """Each format from a folder, SNOMED CT from a ZIP archive too."""

    def _folder(self, files: dict[str, list[str]], separator: str = "") -> Path:
        root = Path(self.mktemp())
        for name, lines in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = "\r\n".join(line.replace(" ", T).replace("_", " ") if separator else line for line in lines)
            # Names of columns have no underscores in RF2.
            path.write_text(text + "\r\n")
        return root

    def _one(self, kind: str, path: Path, version: str = "") -> NewSystem:
        (system,) = read(kind, path, version)
        return system

    def _refused(self, kind: str, path: Path) -> str:
        with self.assertRaises(Problem) as refused:
            list(read(kind, path))
        return refused.exception.text

    def test_snomed(self) -> None:
        folder = self._folder(SNOMED, T)
        archive = Path(self.mktemp())
        with zipfile.ZipFile(archive, "w") as made:
            for path in folder.rglob("*.txt"):
                made.write(path, f"SnomedCT/{path.relative_to(folder)}")
        for path in (folder, archive):
            system = self._one("snomed", path)
            self.assertEqual(system.version, "http://snomed.info/sct/900000000000207008/version/20260101")
            attack = system.concepts["100"]
            self.assertEqual((attack.display, attack.parents), ("Heart attack", ["138875005"]))
            self.assertEqual([one.value for one in attack.designations],
                             ["Heart attack (disorder)", "Heart attack", "Cardiac infarction"])  # fmt: skip
            self.assertIn(("363698007", "300"), attack.properties)
            self.assertIn(("sufficientlyDefined", "true"), attack.properties)
            self.assertEqual((system.concepts["200"].is_active, system.concepts["300"].display),
                             (False, "Heart structure (body structure)"))  # fmt: skip
            self.assertIn(("refset", "723264001"), system.concepts["300"].properties)

    def test_bad_rows_of_snomed(self) -> None:
        bad = dict(SNOMED)
        name = "Snapshot/Terminology/sct2_Relationship_Snapshot_INT_20260101.txt"
        bad[name] = [*bad[name], "5 20250101 1 9 100 999 0 116680003 9 9", "6 short"]
        text = self._refused("snomed", self._folder(bad, T))
        self.assertIn(f"{name}:6: there is no concept 999", text)
        self.assertIn(f"{name}:7: 2 columns instead of 10", text)
        del bad[name]
        self.assertIn("no snapshot of relationships", self._refused("snomed", self._folder(bad, T)))

    def test_loinc(self) -> None:
        system = self._one("loinc", self._folder(LOINC))
        self.assertEqual((system.version, system.is_case_sensitive), ("2.80", False))
        glucose = system.concepts["1-8"]
        self.assertEqual((glucose.display, glucose.parents), ("Glucose, in serum", ["LP1-1"]))
        self.assertIn(("SYSTEM", "Ser"), glucose.properties)
        self.assertIn(("answers-for", "LL1-9"), glucose.properties)
        self.assertEqual([one.value for one in glucose.designations], ["Gluc Ser"])
        self.assertEqual((system.concepts["2-6"].is_active, system.concepts["LP1-1"].is_abstract), (False, True))
        self.assertEqual(system.concepts["LA33-6"].properties, [("answer-list", "LL1-9")])
        self.assertIn("Loinc.csv:1: there is no column", self._refused("loinc", self._folder({"Loinc.csv": ["a,b"]})))

    def test_rxnorm(self) -> None:
        system = self._one("rxnorm", self._folder(RXNORM), "05012026")
        self.assertEqual((system.version, sorted(system.concepts)), ("05012026", ["10", "20", "30"]))
        self.assertEqual(
            (system.concepts["10"].display, system.concepts["10"].designations[0].value), ("Aspirin", "ASA")
        )
        tablet = system.concepts["20"]
        self.assertEqual(tablet.properties, [("TTY", "SCD"), ("has_ingredient", "10"), ("RXN_STRENGTH", "81 MG")])
        self.assertEqual((tablet.parents, system.concepts["30"].is_active), (["30"], False))
        self.assertIn("RXNCONSO.RRF:1: 2 columns instead of 18",
                      self._refused("rxnorm", self._folder({"RXNCONSO.RRF": ["a|b|"]})))  # fmt: skip

    def test_icd10cm(self) -> None:
        folder = self._folder({"icd10cm-order-2026.txt": ORDER})
        for path in (folder, folder / "icd10cm-order-2026.txt"):
            system = self._one("icd10cm", path)
            self.assertEqual((system.version, list(system.concepts)), ("2026", ["A00", "A00.0"]))
            self.assertEqual((system.concepts["A00"].is_abstract, system.concepts["A00.0"].parents), (True, ["A00"]))
        tabular = Path(self.mktemp())
        tabular.mkdir()
        (tabular / "icd10cm-tabular-2026.xml").write_text(TABULAR)
        system = self._one("icd10cm", tabular)
        expected = [("chapter-1", []), ("A00-A09", ["chapter-1"]), ("A00", ["A00-A09"]), ("A00.0", ["A00"])]
        self.assertEqual([(one.code, one.parents) for one in system.concepts.values()], expected)
        self.assertEqual(system.concepts["A00.0"].designations[0].value, "Classic")
        self.assertIn("icd10cm-order-2026.txt:1: no code", self._refused(
            "icd10cm", self._folder({"icd10cm-order-2026.txt": ["x"]})))  # fmt: skip
        (tabular / "icd10cm-tabular-2026.xml").write_text("<!DOCTYPE a><a/>")
        self.assertIn("document type", self._refused("icd10cm", tabular))

    def test_ndjson(self) -> None:
        head = {"resourceType": "CodeSystem", "url": "http://x.test/cs", "version": "3", "name": "X",
                "caseSensitive": False, "property": [{"code": "kind", "type": "Coding"}]}  # fmt: skip
        rows = [
            head,
            {"code": "a", "display": "A", "designation": [{"language": "de", "value": "Ah"}]},
            {"code": "b", "concept": [{"code": "c"}], "property": [
                {"code": "parent", "valueCode": "a"}, {"code": "kind", "valueCoding": {"code": "k"}},
                {"code": "inactive", "valueBoolean": True}]},
        ]  # fmt: skip
        path = Path(self.mktemp()).with_suffix(".ndjson")
        path.write_text("\n".join(map(json.dumps, rows)))
        system = self._one("ndjson", path)
        self.assertEqual((system.url, system.version, system.is_case_sensitive), ("http://x.test/cs", "3", False))
        b = system.concepts["b"]
        self.assertEqual((b.parents, b.properties, b.is_active), (["a"], [("kind", "k")], False))
        self.assertEqual(system.concepts["c"].parents, ["b"])
        path.write_text("\n".join([json.dumps(head), '{"code": ""}', "{", '{"code": "a"}', '{"code": "a"}']))
        text = self._refused("ndjson", path)
        for place in (":2: a concept needs a code", ":3: ", ":5: the code a is there twice"):
            self.assertIn(place, text)

    def test_packages(self) -> None:
        resource = {"resourceType": "CodeSystem", "id": "cs", "url": "http://x.test/cs", "content": "complete",
                    "status": "active", "concept": [{"code": "a", "concept": [{"code": "b"}]}]}  # fmt: skip
        manifest = {"name": "x.test", "version": "1.0.0", "fhirVersions": ["4.0.1"]}
        path = Path(self.mktemp()).with_suffix(".tgz")
        with tarfile.open(path, "w:gz") as made:
            for name, one in (("package.json", manifest), ("CodeSystem-cs.json", resource)):
                content = json.dumps(one).encode()
                member = tarfile.TarInfo(f"package/{name}")
                member.size = len(content)
                made.addfile(member, io.BytesIO(content))
        self.assertEqual(self._one("package", path).concepts["b"].parents, ["a"])

    def test_nothing_to_read(self) -> None:
        empty = Path(self.mktemp())
        empty.mkdir()
        for kind in READERS:
            self.assertIn("has no ", self._refused(kind, empty), kind)
        self.assertIn("does not exist", self._refused("loinc", empty / "none"))
        self.assertIn("is no format", self._refused("other", empty))
