"""Maps between FHIR resources, where published engines agree: copies, references, tables of the map, value sets."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import dumps
from ipf.mapping.language.grammar import parse
from ipf.mapping.language.printer import print_map
from ipf.mapping.language.structuremap import from_json, to_json
from ipf.mapping.library.mapset import MapSet
from ipf.ports import Json
from tests.mapping.support import HEAD, program, run


def mapped(rules: str, source: Json, kinds: str = "source src : Patient, target tgt : Patient", head: str = "") -> Json:
    """Target of the rules of one group, without its resourceType."""
    made = run(program(f"{HEAD}{head}\ngroup main({kinds}) {{ {rules} }}"), source)[0]
    made.pop("resourceType", None)
    return made


class CopyTests(TestCase):
    NAME = {"family": "Doe", "given": ["A"], "extension": [{"url": "u", "valuePeriod": {"start": "2020"}}]}

    def test_copies_of_one_source_do_not_share(self) -> None:
        rules = "src.name as n -> tgt.name = n as a, tgt.name = n, a.text = 'changed', a.given = 'B';"
        source = {"name": [self.NAME]}
        before = dumps(source)
        made = mapped(rules, source)
        self.assertEqual(made["name"], [{**self.NAME, "text": "changed", "given": ["A", "B"]}, self.NAME])
        self.assertEqual(dumps(source), before)

    def test_nothing_of_the_source_is_in_the_result(self) -> None:
        source = {"name": [self.NAME], "birthDate": "2020", "_birthDate": {"extension": [{"url": "u"}]}}
        for rules in (
            "src.name -> tgt.name; src.birthDate as d -> tgt.birthDate = d;",
            "src.name as n -> tgt.name = (n); src.birthDate -> tgt.birthDate;",
            "src.name as n -> tgt.name = n single; src.birthDate as d -> tgt.birthDate = copy(d);",
            "src.name as n -> tgt.name = n first; src.birthDate as d -> tgt.birthDate = d as x;",
        ):
            for kinds in ("source src : Patient, target tgt : Patient", "source src, target tgt"):
                made = mapped(rules, source, kinds)
                self.assertEqual(_parts(made) & _parts(source), set(), rules)
                held = made["name"][0] if isinstance(made["name"], list) else made["name"]
                self.assertEqual(held, self.NAME, rules)

    def test_a_copy_of_the_target_is_of_its_moment(self) -> None:
        rules = "src.name as n -> tgt.name as a, a.family = 'A', a.period as p, tgt.name = a, a.text = 'later';"
        self.assertEqual(
            mapped(rules, {"name": [{}, {}]})["name"][:2], [{"family": "A", "text": "later"}, {"family": "A"}]
        )


def _parts(element: Any) -> set[int]:
    """id() of each structure."""
    inner = element.values() if isinstance(element, dict) else element if isinstance(element, list) else ()
    own = {id(element)} if isinstance(element, (dict, list)) else set()
    return own.union(*map(_parts, inner))


TABLE = """conceptmap "{}" {{ prefix s = "urn:s" prefix t = "urn:t" s:male == t:m }}"""


class TableTests(TestCase):
    """`conceptmap` blocks, and ConceptMaps contained in a StructureMap."""

    def _text(self, table: str, name: str) -> str:
        rule = f"src.gender as g -> tgt.implicitRules = translate(g, '{name}', 'code');"
        return f"{HEAD}{TABLE.format(table)}\ngroup main(source src : Patient, target tgt : Patient) {{ {rule} }}"

    def test_a_block_is_found_by_its_name(self) -> None:
        for table, name in (("#sex", "#sex"), ("sex", "#sex"), ("sex", "sex"), ("#sex", "urn:test:map#sex")):
            made = run(program(self._text(table, name)), {"gender": "male"})[0]
            self.assertEqual(made.get("implicitRules"), "m", (table, name))

    def test_a_contained_concept_map_is_found_by_its_id_and_by_its_url(self) -> None:
        for name in ("#sex", "urn:other"):
            resource = to_json(parse(self._text("#sex", name)))
            resource["contained"][0]["url"] = "urn:other"
            read = from_json(resource)
            self.assertEqual(to_json(read), resource)
            made = MapSet([read]).transform("urn:test:map", {"gender": "male"}).target
            self.assertEqual(made.get("implicitRules"), "m", name)

    def test_printed_it_is_found_by_its_id(self) -> None:
        resource = to_json(parse(self._text("#sex", "#sex")))
        resource["contained"][0]["url"] = "urn:other"
        text = print_map(from_json(resource))
        self.assertEqual(print_map(parse(text)), text)
        self.assertEqual(run(program(text), {"gender": "male"})[0]["implicitRules"], "m")


def _bundle() -> Json:
    patients = [
        {"fullUrl": "urn:uuid:1", "resource": {"resourceType": "Patient", "birthDate": "2001"}},
        {"fullUrl": "http://a/Patient/p2", "resource": {"resourceType": "Patient", "id": "p2", "birthDate": "2002"}},
        {"resource": {"resourceType": "Patient", "id": "p3", "birthDate": "2003"}},
    ]
    references = ["urn:uuid:1", "http://a/Patient/p2", "Patient/p2/_history/4", "Patient/p3", "Patient/none"]
    observations: list[Json] = [{"subject": {"reference": one}} for one in references]
    for year in ("2010", "2011"):
        inside = [{"resourceType": "Patient", "id": "in", "birthDate": year}]
        observations.append({"subject": {"reference": "#in"}, "contained": inside})
    entries = [{"resource": {"resourceType": "Observation", **one}} for one in observations]
    return {"resourceType": "Bundle", "entry": [*patients, *entries]}


class ReferenceTests(TestCase):
    KINDS = "source src : Bundle, target tgt : Patient"

    def test_references_are_resolved_in_the_source(self) -> None:
        wanted = ["2001", "2002", "2002", "2003", "2010", "2011"]
        for rules in (
            "src.entry as e then { e.resource : Observation as o then { o.subject as s -> tgt.extension as x,"
            " x.url = (s.resolve().birthDate); }; };",
            "src.entry as e then { e.resource : Observation as o -> tgt.extension as x,"
            " x.url = (o.subject.resolve().birthDate); };",
        ):
            made = mapped(rules, _bundle(), self.KINDS)
            self.assertEqual([one["url"] for one in made["extension"]], wanted, rules)

    def test_a_condition_on_the_resolved_resource(self) -> None:
        rules = (
            "src.entry as e then { e.resource : Observation as o where (subject.resolve().birthDate = @2003)"
            " -> tgt.extension as x, x.url = (o.subject.reference); };"
        )
        self.assertEqual(mapped(rules, _bundle(), self.KINDS), {"extension": [{"url": "Patient/p3"}]})

    def test_contained_in_a_single_resource(self) -> None:
        source = {
            "resourceType": "Observation",
            "contained": [{"resourceType": "Patient", "id": "a", "birthDate": "2001"}],
            "subject": {"reference": "#a"},
        }
        rules = "src.subject as s -> tgt.birthDate = (s.resolve().birthDate);"
        self.assertEqual(mapped(rules, source, "source src : Observation, target tgt : Patient"), {"birthDate": "2001"})

    def test_references_to_the_source(self) -> None:
        rules = "src.entry as e then { e.resource : Patient as p -> tgt.extension as x, x.url = reference(p); };"
        made = mapped(rules, _bundle(), self.KINDS)
        self.assertEqual([one["url"] for one in made["extension"]], ["urn:uuid:1", "Patient/p2", "Patient/p3"])

    def test_without_a_bundle_it_is_type_and_id(self) -> None:
        kinds = "source src : Patient, target tgt : Observation"
        made = mapped("src -> tgt.id = 'o', tgt.status = 'final', tgt.focus = reference(tgt);", {}, kinds)
        self.assertEqual(made, {"id": "o", "status": "final", "focus": [{"reference": "Observation/o"}]})
        made = mapped("src -> tgt.focus = reference(tgt), tgt.id = 'late';", {}, kinds)
        self.assertEqual(made, {"focus": [{"reference": "Observation/late"}], "id": "late"})
        made = mapped("src -> tgt.focus = reference(tgt), tgt.status = 'final';", {}, kinds)
        self.assertEqual(made["focus"], [{"reference": f"Observation/{made['id']}"}])
        self.assertRegex(made["id"], r"^[0-9a-f-]{36}$")

    def test_to_a_contained_resource_it_is_its_fragment(self) -> None:
        rules = (
            "src -> tgt.contained = create('Organization') as org, tgt.managingOrganization = reference(org),"
            " org.name = 'A';"
            " src -> tgt.contained = create('Practitioner') as p, tgt.generalPractitioner = reference(p);"
        )
        made = mapped(rules, {})
        (organization,) = made["contained"]
        self.assertEqual(organization["name"], "A")
        self.assertEqual(made["managingOrganization"], {"reference": f"#{organization['id']}"})
        self.assertNotIn("generalPractitioner", made)  # nothing is in that resource

    def test_entries_of_a_bundle_are_found_by_their_references(self) -> None:
        rules = (
            "src -> tgt.entry as e, e.resource = create('Patient') as p, p.active = true, tgt.entry as f,"
            " f.resource = create('Observation') as o, o.subject = reference(p), tgt.entry as g, g.fullUrl = 'urn:own',"
            " g.resource = create('Device') as d, d.url = 'u', o.device = reference(d);"
        )
        text = f"{HEAD}group main(source src : Patient, target tgt : Bundle) {{ {rules} }}"
        made = MapSet([parse(text)]).transform("urn:test:map", {"resourceType": "Patient"}).target
        first, second, third = made["entry"]
        self.assertTrue(first["fullUrl"].startswith("urn:uuid:"))
        self.assertEqual(second["resource"]["subject"], {"reference": first["fullUrl"]})
        self.assertEqual((third["fullUrl"], second["resource"]["device"]), ("urn:own", {"reference": "urn:own"}))


class ValueSetTests(TestCase):
    def test_the_shipped_value_sets_are_known(self) -> None:
        rules = (
            "src.gender as g where (memberOf('http://hl7.org/fhir/ValueSet/administrative-gender'))"
            " -> tgt.gender = g; src.gender as g where ($this.memberOf('urn:unknown')) -> tgt.active = true;"
        )
        made = MapSet([parse(f"{HEAD}group main(source src : Patient, target tgt : Patient) {{ {rules} }}")])
        for gender, wanted in (("male", {"gender": "male"}), ("cat", {})):
            target = made.transform("urn:test:map", {"gender": gender}).target
            self.assertEqual(target, {"resourceType": "Patient", **wanted})


class RuntimeTypeTests(TestCase):
    """Choices whose type only the value tells, and structures of one type copied to another."""

    KINDS = "source src : Observation, target tgt : Extension"
    EACH: tuple[Json, ...] = (
        {"valueQuantity": {"value": 1, "unit": "mg"}},
        {"valueCodeableConcept": {"text": "x"}},
        {"valueString": "x"},
        {"valueBoolean": True},
        {"valueBoolean": False},
        {"valueInteger": 5},
        {"valueDateTime": "2020-01-02"},
        {"valuePeriod": {"start": "2020"}},
        {"valueString": "x", "_valueString": {"id": "a"}},
        {"_valueString": {"extension": [{"url": "u"}]}},
    )

    def test_the_type_of_the_source_is_kept(self) -> None:
        rules = (
            "src.value as v -> tgt.value = v;",
            "src.value -> tgt.value;",
            "src.value as v then { v -> tgt.value = v; };",
        )
        for rule in rules:
            for source in self.EACH:
                self.assertEqual(mapped(rule, source, self.KINDS), source, rule)
        for source in self.EACH:  # a source without a model
            self.assertEqual(mapped(rules[0], source, "source src, target tgt : Extension"), source)

    def test_a_later_type_replaces_an_earlier_one(self) -> None:
        rules = "src.component as c then { c.value as v -> tgt.value = v; };"
        source = {"component": [{"valueString": "x"}, {"valueInteger": 2}]}
        self.assertEqual(mapped(rules, source, self.KINDS), {"valueInteger": 2})

    def test_the_content_tells_the_type(self) -> None:
        kinds = "source src, target tgt : MedicationRequest"
        for value, wanted in (
            ({"reference": "Medication/1"}, {"medicationReference": {"reference": "Medication/1"}}),
            ({"text": "x"}, {"medicationCodeableConcept": {"text": "x"}}),
            ({"coding": [{"code": "x"}]}, {"medicationCodeableConcept": {"coding": [{"code": "x"}]}}),
        ):
            self.assertEqual(mapped("src.what as w -> tgt.medication = w;", {"what": value}, kinds), wanted)
        kinds = "source src, target tgt : Patient"
        for scalar, name in ((True, "deceasedBoolean"), ("2020-01-02", "deceasedDateTime")):
            self.assertEqual(mapped("src.x as x -> tgt.deceased = x;", {"x": scalar}, kinds), {name: scalar})
        for scalar, name in ((True, "multipleBirthBoolean"), (2, "multipleBirthInteger")):
            self.assertEqual(mapped("src.x as x -> tgt.multipleBirth = (x);", {"x": scalar}, kinds), {name: scalar})

    def test_a_value_of_no_clear_type_is_omitted_with_a_warning(self) -> None:
        text = f"{HEAD}group main(source src, target tgt : Extension) {{ src.x as x -> tgt.value = x; }}"
        for value in ({"value": "1"}, {"nothing": 1}):
            target, state = run(program(text), {"x": value})
            self.assertEqual((target, state.warnings), ({}, ["a value for value was omitted: its type is not clear"]))

    def test_structures_are_copied_by_the_names_of_elements(self) -> None:
        rules = "src.contact -> tgt.contact; src.name -> tgt.contact as c, c.name = x;"
        text = f"{HEAD}group main(source src : Organization, target tgt : Patient) {{ src.contact -> tgt.contact; }}"
        contact = {
            "purpose": {"text": "p"},
            "name": {"family": "A", "_family": {"id": "f"}, "given": ["B", "C"]},
            "telecom": [{"value": "1", "system": "phone"}],
            "address": {"city": "X"},
        }
        target, state = run(program(text), {"contact": [contact]})
        del contact["purpose"]
        self.assertEqual(target, {"resourceType": "Patient", "contact": [contact]}, rules)
        self.assertEqual(state.warnings, ["Patient.contact has no element purpose: it was omitted"])

    def test_values_are_converted_on_the_way(self) -> None:
        model = {
            "resourceType": "StructureDefinition", "url": "urn:m", "type": "M", "kind": "logical",
            "snapshot": {"element": [
                {"path": "M"}, {"path": "M.who", "max": "*", "type": [{"code": "BackboneElement"}]},
                {"path": "M.who.text", "max": "1", "type": [{"code": "string"}]},
                {"path": "M.who.family", "max": "*", "type": [{"code": "string"}]},
                {"path": "M.who.period", "max": "1", "type": [{"code": "Period"}]},
            ]},
        }  # fmt: skip
        main = "group main(source src : M, target tgt : Patient) { src.who -> tgt.name; }"
        text = f'{HEAD}uses "urn:m" alias M as source\n{main}'
        source = {"who": [{"text": "t", "family": ["A", "B"], "period": {"start": "20200102"}}]}
        target, _ = run(program(text, logical=[model]), source)
        self.assertEqual(target["name"], [{"text": "t", "family": "A", "period": {"start": "2020-01-02"}}])

    def test_quantities_of_one_kind_and_another(self) -> None:
        kinds = "source src : Observation, target tgt : Condition"
        rules = "src.value : Quantity as v -> tgt.onset = create('Age') as a; src.value : Quantity -> tgt.abatement;"
        source = {"valueQuantity": {"value": 5, "code": "a"}}
        self.assertEqual(mapped(rules, source, kinds), {"abatementAge": {"value": 5, "code": "a"}})
