"""Any source to any target: maps as text or JSON, logical models, other versions of FHIR, messages."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.fhirpath import Host
from ipf.mapping.language.grammar import parse
from ipf.mapping.language.lexer import FmlError
from ipf.mapping.language.structuremap import to_json
from ipf.mapping.library.mapset import MapSet, read_map
from tests.mapping.support import FML, HEAD, message
from tests.reference import needs_reference

TEXT = (
    HEAD
    + """group main(source src : Patient, target tgt : Person) {
  src.birthDate as d -> tgt.birthDate = d;
  src.gender as g -> tgt.gender = translate(g, 'urn:sex', 'code');
  src -> tgt.identifier as i, i.value = uuid();
}"""
)
SEX = {
    "resourceType": "ConceptMap",
    "url": "urn:sex",
    "group": [{"element": [{"code": "male", "target": [{"code": "other", "equivalence": "equal"}]}]}],
}
PATIENT = {"resourceType": "Patient", "birthDate": "2001", "gender": "male"}

R5 = {
    "resourceType": "StructureDefinition",
    "url": "http://hl7.org/fhir/StructureDefinition/Observation",
    "fhirVersion": "5.0.0",
    "kind": "resource",
    "type": "Observation",
    "differential": {
        "element": [
            {"path": "Observation"},
            {"path": "Observation.status", "max": "1", "type": [{"code": "code"}]},
            {"path": "Observation.value[x]", "max": "1", "type": [{"code": "string"}, {"code": "Attachment"}]},
            {"path": "Observation.component", "max": "*", "type": [{"code": "BackboneElement"}]},
            {"path": "Observation.component.text", "max": "1", "type": [{"code": "string"}]},
            {"path": "Observation.more", "max": "*", "contentReference": "#Observation.component"},
        ]
    },
}
FROM_R5 = (
    HEAD
    + """uses "http://hl7.org/fhir/5.0/StructureDefinition/Observation" alias ObservationR5 as source
uses "http://hl7.org/fhir/StructureDefinition/Observation" alias Observation as target
group main(source src : ObservationR5, target tgt : Observation) {
  src.value : string as v -> tgt.value = v;
  src.component as c -> tgt.component as t then { c.text as x -> t.value = cast(x, 'string'); };
  src.more as c -> tgt.component as t then { c.text as x -> t.value = cast(x, 'string'); };
}"""
)
LOGICAL = [
    {
        "resourceType": "StructureDefinition",
        "url": "urn:model:base",
        "kind": "logical",
        "type": "Thing",
        "differential": {
            "element": [{"path": "Thing"}, {"path": "Thing.code", "max": "*", "type": [{"code": "code"}]}]
        },
    },
    {
        "resourceType": "StructureDefinition",
        "url": "urn:model:better",
        "kind": "logical",
        "type": "Better",
        "baseDefinition": "urn:model:base",
        "differential": {
            "element": [{"path": "Better"}, {"path": "Better.part", "max": "1", "type": [{"code": "urn:model:base"}]}]
        },
    },
]
TO_LOGICAL = (
    HEAD
    + """uses "urn:model:better" alias Better as target
group main(source src : Patient, target tgt : Better) {
  src.gender as g -> tgt.code = g, tgt.part as p, p.code = g;
}"""
)


class MapSetTests(TestCase):
    def test_text_and_json_do_the_same(self) -> None:
        wanted = None
        for content in (TEXT, TEXT.encode(), to_json(parse(TEXT)), json.dumps(to_json(parse(TEXT)))):
            maps = MapSet([read_map(content, "a.fml")], concept_maps=[SEX])
            result = maps.transform("urn:test:map|1", PATIENT, trace=True)
            self.assertEqual(
                {**result.target, "identifier": 1},
                {"resourceType": "Person", "birthDate": "2001", "gender": "other", "identifier": 1},
            )
            wanted = wanted or result.target
            self.assertEqual(result.target, wanted)  # the same source gives the same uuids
            self.assertEqual([one.rule for one in result.steps or ()], ["birthDate", "gender", "src"])
        self.assertEqual(MapSet([parse(TEXT)], concept_maps=[SEX]).urls, ("urn:test:map",))

    def test_what_can_be_wrong(self) -> None:
        maps = MapSet([parse(TEXT)])
        cases: list[tuple[Any, Category, str]] = [
            (lambda: maps.transform("urn:none", PATIENT), Category.UNMAPPED, "no StructureMap urn:none"),
            (lambda: maps.transform("urn:test:map", PATIENT), Category.MAPPING, "no ConceptMap 'urn:sex' is loaded"),
            (lambda: read_map("{ no json"), Category.MAPPING, ""),
            (lambda: read_map('{"resourceType": "Patient"}'), Category.MAPPING, "is no StructureMap"),
            (lambda: read_map(b"\xff\xfe"), Category.MAPPING, "is not UTF-8"),
            (lambda: MapSet([], structure_definitions=[{"url": "u"}]), Category.MAPPING, "is no StructureDefinition"),
        ]
        for call, category, text in cases:
            problem = self.assertRaises(Problem, call)
            self.assertIs(problem.category, category)
            self.assertIn(text, problem.text)
        error = self.assertRaises(FmlError, read_map, HEAD + "group", "bad.fml")
        self.assertEqual(error.place, "bad.fml:2:6")

    def test_more_maps_replace_those_of_the_same_canonical(self) -> None:
        maps = MapSet([parse(TEXT)]).with_more([parse(TEXT.replace("2 ->", "2 ->"))], [SEX])
        self.assertEqual(maps.transform("urn:test:map", PATIENT).target["gender"], "other")

    def test_another_version_of_fhir(self) -> None:
        maps = MapSet([parse(FROM_R5)], structure_definitions=[R5])
        source = {"resourceType": "Observation", "valueString": "a", "component": [{"text": "b"}, {"text": "c"}]}
        target = maps.transform("urn:test:map", {**source, "more": [{"text": "d"}]}).target
        wanted = [{"valueString": one} for one in "bcd"]
        self.assertEqual(target, {"resourceType": "Observation", "valueString": "a", "component": wanted})
        back = FROM_R5.replace("src.value : string as v -> tgt.value = v;", "src.stauts as s;")
        error = self.assertRaises(FmlError, MapSet([parse(back)], structure_definitions=[R5]).program, "urn:test:map")
        self.assertEqual((error.text, error.place), ("Observation has no element 'stauts'", "map:5:3"))
        other = HEAD + 'uses "http://hl7.org/fhir/5.0/StructureDefinition/Observation" alias O as target\n'
        other += "group main(source src, target tgt : O) { src -> tgt.stauts = 'x'; }"
        error = self.assertRaises(FmlError, MapSet([parse(other)], structure_definitions=[R5]).program, "urn:test:map")
        self.assertIn("Observation has no element 'stauts'", error.text)

    def test_logical_models_with_bases(self) -> None:
        maps = MapSet([parse(TO_LOGICAL)], structure_definitions=LOGICAL)
        target = maps.transform("urn:test:map", PATIENT).target
        self.assertEqual(target, {"resourceType": "Better", "code": ["male"], "part": {"code": ["male"]}})

    def test_a_message(self) -> None:
        text = (
            HEAD
            + """group main(source src : ADT_A01, target bundle : Bundle) {
  src.PID as pid -> bundle.entry as e, e.resource = create('Patient') as p then { pid.PID_7 as d -> p.birthDate = d; };
}"""
        )
        made = MapSet([parse(text)]).transform("urn:test:map", message("PID|||||||2001")).target
        self.assertEqual((made["type"], made["entry"][0]["resource"]["birthDate"]), ("transaction", "2001"))

    def test_the_result_shares_nothing_with_its_source(self) -> None:
        text = HEAD + "group main(source src, target tgt) { src.a as a -> tgt.b = a; }"
        source = {"a": {"x": 1}}
        made = MapSet([parse(text)]).transform("urn:test:map", source).target
        made["b"]["x"] = 2
        self.assertEqual(source, {"a": {"x": 1}})

    @needs_reference
    def test_tutorial(self) -> None:
        for case in json.loads((FML / "cases.json").read_text())["cases"][:12]:
            if case["source"].endswith(".json"):
                logical = [json.loads((FML / one).with_suffix(".json").read_text()) for one in case["logicals"]]
                maps = [read_map((FML / one).read_text(), one) for one in case["maps"]]
                made = MapSet(maps, structure_definitions=logical).transform(
                    maps[0].url, json.loads((FML / case["source"]).read_text())
                )
                self.assertEqual(made.target, json.loads((FML / case["expect_file"]).read_text()), case["id"])

    def test_conditions_may_ask_for_value_sets(self) -> None:
        text = (
            HEAD
            + """group main(source src : Patient, target tgt : Person) {
  src.gender as g where (g.memberOf('urn:vs:sex')) -> tgt.gender = g;
  src.name as n where (n.conformsTo('urn:profile')) -> tgt.active = true;
}"""
        )
        asked: list[tuple[Any, str]] = []

        def answer(value: Any, canonical: str) -> bool | None:
            asked.append((value, canonical))
            return value in ("male", {"text": "x"})

        host = Host(member_of=answer, conforms_to=answer)
        for gender, wanted in (("male", {"gender": "male"}), ("odd", {})):
            made = MapSet([parse(text)], host=host).transform("urn:test:map", {"gender": gender}).target
            self.assertEqual(made, {"resourceType": "Person", **wanted})
        made = MapSet([parse(text)], host=host).transform("urn:test:map", {"name": [{"text": "x"}]}).target
        self.assertEqual(made, {"resourceType": "Person", "active": True})
        self.assertEqual(asked, [("male", "urn:vs:sex"), ("odd", "urn:vs:sex"), ({"text": "x"}, "urn:profile")])
        made = MapSet([parse(text)]).transform("urn:test:map", {"gender": "male"}).target
        self.assertEqual(made, {"resourceType": "Person"})
