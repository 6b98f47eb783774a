"""Elements that the type of a source does not have: an error with its place, in sources and in FHIRPath."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.definitions import definitions
from ipf.mapping.language.lexer import FmlError
from tests.mapping.support import HEAD, program

USES = """uses "http://hl7.org/fhir/StructureDefinition/{0}" alias A as source
uses "http://hl7.org/fhir/StructureDefinition/Basic" alias Basic as target
group main(source src : A, target tgt : Basic) {{
{1}
}}"""

# rules of a map from a Patient; the column; what the error says
REFUSED = [
    ("src.gendre as g -> tgt.created = g;", 1, "Patient has no element 'gendre'"),
    ("src.name as n then { n.familly as f -> tgt.created = f; };", 22, "HumanName has no element 'familly'"),
    ("src.name.familly as f -> tgt.created = f;", 1, "HumanName has no element 'familly'"),
    ("src.name first as n then { n.familly as f; };", 28, "HumanName has no element 'familly'"),
    ("src.contact as c then { c.nme as n; };", 25, "Patient.contact has no element 'nme'"),
    ("src.gender as g then { g.vale as v; };", 24, "code has no element 'vale'"),
    ("src as p then { p.gendre as g; };", 17, "Patient has no element 'gendre'"),
    ("src.gendre -> tgt.created;", 1, "Patient has no element 'gendre'"),
    ("src.telecom as t where (usee = 'home');", 1, "ContactPoint has no element 'usee'"),
    ("src.telecom as t where (t.usee = 'home');", 1, "ContactPoint has no element 'usee'"),
    ("src.telecom as t where ($this.usee = 'home');", 1, "ContactPoint has no element 'usee'"),
    ("src.telecom as t where (src.gendre = 'home');", 1, "Patient has no element 'gendre'"),
    ("src where (name.where(usee = 'x').exists());", 1, "HumanName has no element 'usee'"),
    ("src where (name.exists(familly = 'x'));", 1, "HumanName has no element 'familly'"),
    ("src where (name.first().familly.exists());", 1, "HumanName has no element 'familly'"),
    ("src where (name[0].familly.exists());", 1, "HumanName has no element 'familly'"),
    ("src where ((name | contact.name).familly.exists());", 1, "HumanName has no element 'familly'"),
    ("src where (Patient.gendre = 'x');", 1, "Patient has no element 'gendre'"),
    ("src where (iif(active, gendre, gender) = 'x');", 1, "Patient has no element 'gendre'"),
    ("src where (contained.ofType(Patient).gendre = 'x');", 1, "Patient has no element 'gendre'"),
    ("src where ((contained.first() as Patient).gendre = 'x');", 1, "Patient has no element 'gendre'"),
    ("src where (extension('urn:x').valeu.exists());", 1, "Extension has no element 'valeu'"),
    ("src where (name.select(given.first() & familly).exists());", 1, "HumanName has no element 'familly'"),
    ("src.telecom as t check (usee = 'home');", 1, "ContactPoint has no element 'usee'"),
    ("src.telecom as t log (usee);", 1, "ContactPoint has no element 'usee'"),
    ("src -> tgt.created = (src.birthdate);", 8, "Patient has no element 'birthdate'"),
    ("src -> tgt.created = src.birthdate;", 8, "Patient has no element 'birthdate'"),
    ("src -> tgt.created = evaluate(src, birthdate);", 8, "Patient has no element 'birthdate'"),
    ("src -> tgt.author as a then { src where (%a.referense.exists()); };", 31, "Reference has no element 'referense'"),
    ("src then other(src, tgt);", 45, "Patient has no element 'gendre'"),
    ("src.deceased : dateTime as d then { d.vlaue as v; };", 37, "dateTime has no element 'vlaue'"),
    ("src.deceased as d where (src.deceased.vlaue = 'x');", 1, "boolean or dateTime has no element 'vlaue'"),
]
OTHER = "group other(source a, target t : Basic) { a.gendre as g -> t.created = g; }"

# what may come, or is not known
ACCEPTED = [
    "src.deceased as d then { d.anything as a; };",
    "src.deceasedDateTime as d -> tgt.created = d;",
    "src.contained as c then { c.anything as a; };",
    "src.contained as c where (anything.exists());",
    "src.extension as e then { e.value as v then { v.anything as a; }; };",
    "src.extension as e where (value.anything.exists());",
    "src.extension as e where (value.coding.code = 'x');",
    "src.gender as g then { g.extension as e; g.id as i; g.value as v; };",
    "src.gender.value as g -> tgt.created = g;",
    "src where (gender.extension('urn:x').exists() and gender.value = 'male');",
    "src where (children().anything.exists() and descendants().anything.exists());",
    "src where (generalPractitioner.resolve().anything.exists());",
    "src where (multipleBirth.ofType(integer) > 1 and (deceased as boolean));",
    "src where (Patient.name.given.exists() and Observation.value.exists().not());",
    "src where (name.repeat($this).exists() and id.exists() and meta.lastUpdated.exists());",
    "src where (name.given.aggregate($total + $this, '').exists());",
    "src where (resourceType = 'Patient' and %resource.anything.empty());",
    "src.resourceType as r;",
    "src.name as n where (use = 'official' and period.start.exists() and text.empty());",
    "src.link as l then { l.other as o then { o.identifier.assigner.display as d; }; };",
    "src.text.div as d;",
    "src.name default 'x' as n where (anything.exists());",
    "src.contained as c then free(c, tgt);",
]
FREE = "group free(source a, target t : Basic) { a.anything as g where (anything.exists()) -> t.created = g; }"

MODEL: dict[str, Any] = {
    "resourceType": "StructureDefinition",
    "url": "urn:model:visit",
    "kind": "logical",
    "type": "Visit",
    "differential": {
        "element": [
            {"path": "Visit"},
            {"path": "Visit.person", "max": "*", "type": [{"code": "BackboneElement"}]},
            {"path": "Visit.person.name", "max": "1", "type": [{"code": "HumanName"}]},
            {"path": "Visit.value[x]", "max": "1", "type": [{"code": "string"}, {"code": "Quantity"}]},
            {"path": "Visit.other", "max": "1", "type": [{"code": "http://example.org/Unknown"}]},
        ]
    },
}
LOGICAL_REFUSED = [
    ("src.persn as p;", 1, "Visit has no element 'persn'"),
    ("src.person as p then { p.nme as n; };", 24, "Visit.person has no element 'nme'"),
    ("src.person.name.familly as p;", 1, "HumanName has no element 'familly'"),
    ("src.person as p where (nme.exists());", 1, "Visit.person has no element 'nme'"),
    ("src where (person.name.familly.exists());", 1, "HumanName has no element 'familly'"),
    ("src.valueDate as v;", 1, "Visit has no element 'valueDate'"),
]
LOGICAL_ACCEPTED = [
    "src.person as p then { p.name as n where (family.exists()); p.id as i; p.extension as e; };",
    "src.value as v then { v.anything as a; };",
    "src.valueQuantity as v then { v.unit as u; };",
    "src.other as o then { o.anything as a; };",
]
R4_BASE = {
    **MODEL,
    "type": "Patient",
    "baseDefinition": "http://hl7.org/fhir/StructureDefinition/Patient",
    "differential": {"element": [{"path": "Patient"}, {"path": "Patient.name", "max": "1"}]},
}


def _program(rules: str, kind: str = "Patient") -> object:
    return program(f"{HEAD}{USES.format(kind, rules)} {OTHER if 'other(' in rules else ''} {FREE}")


def _logical(rules: str, model: dict[str, Any]) -> object:
    text = USES.format("X", rules).replace("http://hl7.org/fhir/StructureDefinition/X", "urn:model:visit")
    return program(HEAD + text, logical=[model])


class ElementTests(TestCase):
    def test_elements_that_a_type_does_not_have(self) -> None:
        for rules, column, wanted in REFUSED:
            error = self.assertRaises(FmlError, _program, rules)
            self.assertIn(wanted, error.text, rules)
            line = 6 if "other(" in rules else 5
            self.assertEqual(str(error.place), f"map0.fml:{line}:{column}", rules)

    def test_elements_that_may_be_there(self) -> None:
        for rules in ACCEPTED:
            _program(rules)

    def test_logical_models(self) -> None:
        for rules, column, wanted in LOGICAL_REFUSED:
            error = self.assertRaises(FmlError, _logical, rules, MODEL)
            self.assertIn(wanted, error.text, rules)
            self.assertEqual(str(error.place), f"map0.fml:5:{column}", rules)
        for rules in LOGICAL_ACCEPTED:
            _logical(rules, MODEL)

    def test_a_model_that_extends_another(self) -> None:
        """A type of R4 has its elements; with a base that is not there, nothing is known to be wrong."""
        _logical("src.name as n then { n.family as f; }; src.deceasedBoolean as d;", R4_BASE)
        error = self.assertRaises(FmlError, _logical, "src.nme as n;", R4_BASE)
        self.assertIn("Patient has no element 'nme'", error.text)
        _logical("src.nme as n;", {**R4_BASE, "baseDefinition": "urn:model:absent"})

    def test_every_element_of_every_type(self) -> None:
        """Each element is accepted, and each of its misspellings refused, in a source and in a condition."""
        tables = definitions()
        for kind in sorted(tables.resource_types - tables.later_types)[::20]:
            members = tables.members(kind)
            _program("\n".join(f"src.`{name}` as x where (src.`{name}`.exists());" for name in members), kind)
            for name in members:
                for wrong in (name[:-1], name + "s", name.swapcase(), name[1:] + name[0]):
                    if tables.element(kind, wrong) is None and wrong:
                        for rules in (f"src.`{wrong}` as x;", f"src where (`{wrong}`.exists());"):
                            error = self.assertRaises(FmlError, _program, rules, kind)
                            self.assertIn(f"{kind} has no element '{wrong}'", error.text)
