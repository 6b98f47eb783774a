"""A profile drafted from sample messages: what is seen, what is written, and that it works at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.app.new_profile import new_profile
from ipf.errors import Problem
from ipf.vendor_profiles.archive import pack
from ipf.vendor_profiles.drafting.draft import draft, quirks_for
from ipf.vendor_profiles.drafting.survey import survey
from ipf.vendor_profiles.findings import Findings
from ipf.vendor_profiles.manifest import read_manifest
from ipf.vendor_profiles.profile import validate_profile
from tests.corpus.samples import HERE, library, names

MSH = "MSH|^~\\&|{app}|NORTH|IPF|IPF|{time}||{type}|{id}|P|{version}{charset}"
PID = "PID|1||4711^^^NORTH^MR||Doe^Ann||{born}|{sex}"


def message(kind: str, *segments: str, **values: str) -> str:
    """A message with a patient and these segments."""
    known = {"app": "ADT", "time": "20260101", "version": "2.5.1", "charset": "", "born": "19700315", "sex": "F"}
    values = known | {"id": kind.replace("^", "")} | values
    head = MSH.format(type=kind, **values), PID.format(**values)
    return "\r".join((*head, *segments, ""))


def check_corpus(test: TestCase, chosen: Sequence[str]) -> None:
    """A profile that is drafted from these samples is valid, and has a case for each message with a map."""
    folder = Path(test.mktemp())
    folder.mkdir()
    for name in chosen:
        (folder / name).write_bytes((HERE / f"{name}.hl7").read_bytes())
    made = new_profile(folder, Path(test.mktemp()), library())
    test.assertEqual([one for one in made["problems"] if one["severity"] == "error"], [])
    test.assertEqual((made["valid"], made["skipped"]), (True, []))
    test.assertEqual(made["cases"], made["messages"] - sum(made["without_map"].values()))


class DraftingTests(TestCase):
    def samples(self, **files: str | bytes) -> Path:
        """A folder with these files."""
        folder = Path(self.mktemp())
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder

    def test_what_is_seen(self) -> None:
        """Files with several messages, frames and any line ends; each thing that a profile deals with."""
        first = message("ADT^A01", "PV1|1|I", "ZPI|1||x")
        second = message("ADT^A08", "ZPI|1|y", id="", born="15.03.1970", version="2.3", sex="F ")
        latin = message("ORU^R01", "ZLB|1", app="LAB", charset="||||||8859/1").replace("Ann", "J\u00fcrgen")
        folder = self.samples(
            a=first.replace("\r", "\n") + "\n" + second.replace("\r", "\r\n"),
            b=b"\x0b" + latin.encode("latin-1") + b"\x1c\r",
            c=f"FHS|^~\\&|X\rBHS|^~\\&|X\r{first}BTS|1\rFTS|1\r",
            d="no message",
        )
        found = survey(folder)
        self.assertEqual([one.file for one in found.samples], ["a", "a", "b", "c"])
        self.assertEqual(found.skipped, ["d"])
        self.assertEqual(dict(found.types), {"ADT_A01": 2, "ADT_A08": 1, "ORU_R01": 1})
        self.assertEqual(dict(found.senders), {("ADT", "NORTH"): 3, ("LAB", "NORTH"): 1})
        self.assertEqual(dict(found.versions), {"2.5.1": 3, "2.3": 1})
        self.assertEqual(found.z_segments, {"ZPI": {1, 2, 3}, "ZLB": {1}})
        self.assertEqual(found.z_segments_of("ORU_R01"), {"ZLB": [1]})
        self.assertEqual(dict(found.times), {"hl7": 3, "day-first": 1})
        self.assertEqual((found.without_control_id, found.padded), (1, 1))
        self.assertEqual(found.charsets["8859/1", "iso8859-1"], 1)
        self.assertEqual((dict(found.codes["PID-8"]), dict(found.codes["PV1-2"])), ({"F": 4}, {"I": 2}))
        self.assertNotIn(b"BTS", found.samples[3].raw)

    def test_the_profile_is_valid_at_once(self) -> None:
        """It selects these senders, has the quirks that the samples need, and a case for each message."""
        folder = self.samples(
            a=message("ADT^A01", "PV1|1|I", "ZPI|1||x", born="15.03.1970"),
            b=message("ORU^R01", "OBR|1||F1|GLU^Glucose", "OBX|1|NM|GLU^Glucose||5|mmol/L|||||F", "ZLB|1"),
            c=message("SIU^S12", "SCH|1|2||||A|B", "ZSC|1"),
            d=message("ADT^A08", "PV1|1|I", id="", sex="Q"),
            e=message("ZZZ^Z01"),
        )
        target = Path(self.mktemp())
        made = new_profile(folder, target, library())
        self.assertEqual((made["valid"], made["cases"], made["failing"]), (True, 4, []))
        self.assertEqual(made["without_map"], {"ZZZ_Z01": 1})
        tables = {"urn:ipf:concepts:HL70001": ["Q"], "http://terminology.hl7.org/CodeSystem/v2-0276": ["B"]}
        self.assertEqual(made["unmapped"], tables)
        manifest = read_manifest((target / "manifest.yaml").read_bytes(), Findings())
        assert manifest is not None
        self.assertEqual([(one.resolver, one.facilities) for one in manifest.ingest], [("msh-4", ("NORTH",))])
        self.assertEqual(manifest.quirks, {"missing-control-id": "content-hash", "timestamps": "day-first"})
        readme = (target / "README.md").read_text()
        for text in ("| ZPI | ZPI-1, ZPI-3 |", "ZZZ^Z01 (1 messages) has no general map", "| PID-8 | F (4), Q |"):
            self.assertIn(text, readme)

    def test_a_place_for_a_z_segment(self) -> None:
        """A rule that is taken out of its comment reads the segment, of the patient it stands with."""
        folder = self.samples(a=message("ADT^A01", "PV1|1|I", "ZPI|1||VIP"))
        target = self.drafted(folder)
        path = target / "maps/ADT_A01.fml"
        text = path.read_text()
        self.assertIn("  // zpi.ZPI_3 as value", text)
        path.write_text(text.replace("  // zpi.ZPI_3", "  zpi.ZPI_3"))
        case = target / "tests/adt_a01-001.json"
        case.write_text(
            '{"resourceType": "Patient", "extension": [{"url": "urn:example:north:zpi-3", "valueString": "VIP"}]}'
        )
        self.assertEqual(validate_profile(pack(target), "x.tar.gz", library()).as_json()["tests"]["passed"], 1)

    def test_z_segments_of_several_patients(self) -> None:
        """Each stays with the patient of its own group."""
        second = "PID|1||4712^^^NORTH^MR||Roe^Eve||19800101|F"
        obr = "OBR|1||F{}|GLU^Glucose", "OBX|1|NM|GLU^Glucose||5|mmol/L|||||F"
        text = message("ORU^R01^ORU_R01", *obr, "ZLB|one", second, *obr, "ZLB|two").replace("F{}", "F1", 1)
        folder = self.samples(a=text.replace("F{}", "F2"))
        target = self.drafted(folder)
        path = target / "maps/ORU_R01.fml"
        path.write_text(path.read_text().replace("  // zlb.ZLB_1", "  zlb.ZLB_1"))
        extension = '"extension": [{"url": "urn:example:north:zlb-1", "valueString": "%s"}]'
        patient = '{"resourceType": "Patient", "identifier": [{"value": "%s"}], ' + extension + "}"
        (target / "tests/oru_r01-001.json").write_text(f"[{patient % (4711, 'one')}, {patient % (4712, 'two')}]")
        checked = validate_profile(pack(target), "x.tar.gz", library())
        self.assertEqual([one.message for one in checked.cases], [""])

    def drafted(self, folder: Path) -> Path:
        """The folder of a profile that is not yet validated."""
        target = Path(self.mktemp())
        for path, content in draft(survey(folder), library(), "north").files.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes(content)
        return target

    def test_the_corpus(self) -> None:
        """Messages of every 20th sample; `test_drafting_corpus.py` takes all."""
        check_corpus(self, names()[::20])

    def test_formats_of_times(self) -> None:
        """Each row: times of birth, the quirk, and whether the README asks for it; of a type without a map."""
        for times, quirk, asks in (
            (("19700315", "197003150102+0100"), None, False), (("02.05.1961",), "day-first", False),
            (("15/03/1970", "02/05/1961"), "day-first", False), (("03/15/1970",), "month-first", False),
            (("02/05/1961",), None, True), (("1970-03-15",), "iso-8601", False),
            (("15/03/1970", "03/15/1970"), None, False),
        ):  # fmt: skip
            found = survey(self.samples(**{f"f{born[:2]}{number}": message("ZZZ^Z01", born=born)
                                           for number, born in enumerate(times)}))  # fmt: skip
            self.assertEqual(quirks_for(found).get("timestamps"), quirk, times)
            text = draft(found, library()).files["README.md"].decode()
            self.assertEqual("ask the sender" in text, asks, times)

    def test_refusals(self) -> None:
        target = Path(self.mktemp())
        self.assertIn("no HL7 v2", str(self.assertRaises(Problem, new_profile, self.samples(a="x"), target, library())))
        target.mkdir()
        (target / "kept").write_text("x")
        folder = self.samples(a=message("ZZZ^Z01"))
        problem = self.assertRaises(Problem, new_profile, folder, target, library())
        self.assertIn("is not an empty folder", str(problem))
        self.assertEqual((target / "kept").read_text(), "x")
