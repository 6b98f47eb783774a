"""Maps, tables and logical models that come in FHIR packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model.packages import Packages
from ipf.mapping.language.grammar import parse
from ipf.mapping.language.structuremap import to_json
from ipf.mapping.library.maps import Library
from ipf.mapping.library.mapset import transform
from ipf.ports import Json
from tests.fhir.model.test_packages import archive
from tests.flows.test_mapping import MAP, maps_folder

MODEL = "http://x.org/StructureDefinition/Ward"
ADDRESS = "http://x.org/StructureDefinition/Place"
TEXT = f"""
/// url = "http://x.org/StructureMap/ward"
uses "{MODEL}" alias Ward as source
uses "http://hl7.org/fhir/StructureDefinition/Location" alias Location as target
group ward(source src : Ward, target tgt : Location) {{
  src.name as name -> tgt.name = name;
  src.place as place -> tgt.address as address then {{ place.town as town -> address.city = town; }};
  src.kind as kind -> tgt.status = translate(kind, 'http://x.org/ConceptMap/kind|2.0', 'code');
}}
"""


def model(url: str, root: str, **elements: str) -> Json:
    """A logical model whose elements have these types."""
    listed: list[Json] = [{"path": root}]
    listed += [{"path": f"{root}.{one}", "max": "1", "type": [{"code": kind}]} for one, kind in elements.items()]
    differential = {"element": listed}
    kind = {"kind": "logical", "type": url, "differential": differential}
    return {"resourceType": "StructureDefinition", "id": root, "url": url, **kind}


def table(version: str, target: str) -> Json:
    """A version of the ConceptMap."""
    rows = [{"element": [{"code": "A", "target": [{"code": target, "equivalence": "equal"}]}]}]
    return {"resourceType": "ConceptMap", "url": "http://x.org/ConceptMap/kind", "version": version, "group": rows}


class PackagedTests(TestCase):
    def setUp(self) -> None:
        self.maps = maps_folder(Path(self.mktemp()))
        self.folder = self.maps / "packages"
        self.folder.mkdir()

    def library(self, text: str = TEXT, **more: Any) -> Library:
        """The folder and one package."""
        files = {
            "package/map.json": to_json(parse(text, "")),
            "package/ward.json": model(MODEL, "Ward", name="string", place=ADDRESS, kind="code"),
            "package/place.json": model(ADDRESS, "Place", town="string"),
            "package/kind2.json": table("2.0", "suspended"),
            "package/kind3.json": table("3.0", "inactive"),
            **more,
        }
        return Library.load(self.maps, packages=Packages.load(archive(self.folder / "x.tgz", files).parent))

    def test_a_packaged_map(self) -> None:
        """It knows its models and the version of its table, and is compiled when it is asked for."""
        library = self.library()
        self.assertFalse(library.is_compiled("http://x.org/StructureMap/ward"))
        source = {"name": "ICU", "place": {"town": "Oslo"}, "kind": "A"}
        made = transform(library.program("http://x.org/StructureMap/ward"), source).target
        expected = {"resourceType": "Location", "name": "ICU", "address": {"city": "Oslo"}, "status": "suspended"}
        self.assertEqual(made, expected)
        self.assertEqual(library.message_types, ("ADT_A01", "ADT_A08"))

    def test_mistakes(self) -> None:
        """An element that the target does not have is a mistake of the map; what is no map stops the load."""
        library = self.library(TEXT.replace("tgt.name", "tgt.nom"))
        problem = self.assertRaises(Problem, library.program, "http://x.org/StructureMap/ward")
        self.assertIn("nom", str(problem))
        broken = {"resourceType": "StructureMap", "url": "http://x.org/StructureMap/none", "group": 7}
        problem = self.assertRaises(Problem, self.library, **{"package/broken.json": broken})
        self.assertIn("package/broken.json", str(problem))
        self.assertIs(problem.category, Category.MAPPING)
        self.assertIs(self.assertRaises(Problem, library.program, "urn:none").category, Category.UNMAPPED)

    def test_the_folder_goes_first(self) -> None:
        """A map of the folder replaces that of a package."""
        other = to_json(parse(MAP.replace("urn:test:mr", "urn:other"), ""))
        library = self.library(**{"package/other.json": other})
        self.assertEqual(library.maps["urn:test:map:ADT_A01"].file, "messages/ADT_A01.fml")
