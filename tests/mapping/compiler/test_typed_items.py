"""What a map sees of FHIR items: the value of a primitive, the type of a variable, codings; and copies of items."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.definitions import definitions
from ipf.fhir.structure.check import structure_issues
from ipf.mapping.runtime.run import Unmapped
from ipf.ports import Json
from tests.mapping.support import HEAD, program, run

TABLE = {
    "resourceType": "ConceptMap",
    "url": "urn:sex",
    "group": [
        {
            "source": "urn:s",
            "target": "urn:t",
            "element": [
                {"code": "male", "target": [{"code": "other", "display": "Other", "equivalence": "equal"}]},
                {"code": "none", "target": [{"equivalence": "unmatched"}]},
            ],
        },
        {"source": "urn:u", "element": [{"code": "male", "target": [{"code": "unknown", "equivalence": "equal"}]}]},
    ],
}
PATIENT = {
    "resourceType": "Patient",
    "active": True,
    "gender": "male",
    "birthDate": "2001",
    "_birthDate": {"extension": [{"url": "u", "valueString": "x"}]},
    "name": [{"family": "F", "given": ["a", "b"], "period": {"start": "2001"}}],
    "deceasedDateTime": "2020",
    "multipleBirthInteger": 2,
    "contact": [{"gender": "female"}],
    "_language": {"extension": [{"url": "u", "valueString": "x"}]},
}


def mapped(rules: str, source: Json, *, target: str = "Basic", typed: bool = True) -> tuple[Json, Any]:
    """The result of rules from a resource, with its type or without, and the state of the run."""
    kind = source["resourceType"]
    uses = f'uses "http://hl7.org/fhir/StructureDefinition/{kind}" alias {kind} as source\n' if typed else ""
    source_type = f" : {kind}" if typed else ""
    text = f"{HEAD}{uses}group main(source src{source_type}, target tgt : {target}) {{\n{rules}\n}}"
    return run(program(text, tables=[TABLE]), source)


# conditions on a Patient that hold
HOLD = [
    "src where (gender.value = 'male')",
    "src where (birthDate.value = @2001)",
    "src where (name.given.where(value = 'b').exists())",
    "src where (name.given.value.count() = 2)",
    "src where (deceased.value = @2020)",
    "src where (language.value.empty() and language.exists())",
    "src.gender as g where (value = 'male')",
    "src.gender as g where ($this.value = 'male')",
    "src.gender as g where (g.value = 'male')",
    "src.gender.value as g where ($this = 'male')",
    "src.active as a where (value)",
    "src.gender as g then { src where (%g.value = 'male')",
    "src where (%src is Patient and src is Patient)",
    "src where (%src.ofType(Patient).exists())",
    "src.name as n where (%n is HumanName)",
    "src.name as n then { src where (%n is HumanName)",
    "src.name as n then { src where (%n.ofType(HumanName).exists())",
    "src.name as n then { src where ((%n is Address).not())",
    "src.contact as c then { src where (%c is BackboneElement)",
    "src.gender as g then { src where (%g is code)",
    "src.birthDate as d then { src where (%d is date and %d < @2010)",
    "src.birthDate as d then { src where (%d.extension('u').value = 'x')",
    "src.deceased as d where ($this is dateTime)",
    "src.deceased as d where (%d is dateTime and d < @2021)",
    "src.deceased as d then { src where (%d is dateTime and (%d is boolean).not())",
    "src.deceased as d then { src where (%d.ofType(dateTime).exists())",
    "src.multipleBirth as m then { src where (%m is integer)",
    "src.name as n, src.deceased as d where (%n is HumanName and %d is dateTime)",
]

# rules from an Observation to one; what is found
CODE = {"coding": [{"system": "urn:other", "code": "male"}, {"system": "urn:s", "code": "male"}], "text": "T"}
TRANSLATED: list[tuple[str, str, str, Any]] = [
    ("code", "code", "CodeableConcept", {"coding": [{"system": "urn:t", "code": "other", "display": "Other"}]}),
    ("code.coding", "code.coding", "Coding", [{"system": "urn:t", "code": "other", "display": "Other"}]),
    ("value", "language", "code", "other"),
    ("code", "implicitRules", "system", "urn:t"),
    ("code", "language", "display", "Other"),
]


class TypedItemTests(TestCase):
    def test_conditions_that_hold(self) -> None:
        for condition in HOLD:
            end = " };" if "{" in condition else ""
            for typed in (True, False):
                made, _ = mapped(f"{condition} -> tgt.language = 'x';{end}", PATIENT, typed=typed)
                self.assertEqual(made.get("language"), "x", (condition, typed))

    def test_the_value_of_every_primitive_type(self) -> None:
        """In a source, an expression, a condition on the item and one on a variable."""
        tables = definitions()
        samples: dict[str, Any] = {"boolean": True, "decimal": 1, "integer": 1, "positiveInt": 1, "unsignedInt": 1}
        samples |= {"date": "2001", "dateTime": "2001", "instant": "2001-01-01T00:00:00Z", "time": "10:00:00"}
        for kind in sorted(set(tables.element("Extension", "value").types) & tables.primitive_types):  # type: ignore[union-attr]
            value = samples.get(kind, "abc")
            key = f"value{kind[:1].upper()}{kind[1:]}"
            source = {"resourceType": "Basic", "extension": [{"url": "u", key: value}]}
            for rule in (
                f"src.extension as e then {{ e.value : {kind} as v where (value.exists())",
                f"src.extension as e then {{ e.value as v where (value.exists() and $this is {kind})",
                f"src.extension as e then {{ e.value as v then {{ src where (%v.value.exists() and %v is {kind})",
                f"src where (extension.value.ofType({kind}).value.exists())",
            ):
                end = " };" * rule.count("{")
                made, _ = mapped(f"{rule} -> tgt.language = 'x';{end}", source)
                self.assertEqual(made.get("language"), "x", (kind, rule))
            made, _ = mapped("src.extension as e -> tgt.extension as t then { e.value as v -> t.value = v; };", source)
            self.assertEqual(made["extension"], [{key: value}])

    def test_values_in_targets(self) -> None:
        for rule in ("src.birthDate.value as d -> tgt.created = d;", "src -> tgt.created = (src.birthDate.value);"):
            self.assertEqual(mapped(rule, PATIENT)[0], {"resourceType": "Basic", "created": "2001"})

    def test_codings_are_translated(self) -> None:
        source = {"resourceType": "Observation", "code": CODE, "valueCodeableConcept": CODE}
        for element, to, wanted, found in TRANSLATED:
            target, _, inner = to.partition(".")
            rule = f"src.{element} as c -> tgt.{to} = translate(c, 'urn:sex', '{wanted}');"
            if inner:
                rule = f"src.{element} as c -> tgt.{target} as k, k.{inner} = translate(c, 'urn:sex', '{wanted}');"
            for typed in (True, False):
                made, _ = mapped(rule, source, target="Observation", typed=typed)
                made = made[target][inner] if inner else made[target]
                self.assertEqual(made, found, (rule, typed))

    def test_a_trace_names_the_code(self) -> None:
        rule = "src.code as c -> tgt.language = translate(c, 'urn:sex', 'code');"
        text = f"{HEAD}group main(source src : Observation, target tgt : Basic) {{ {rule} }}"
        source = {"resourceType": "Observation", "code": {"coding": [{"system": "urn:s", "code": "male"}]}}
        _, state = run(program(text, tables=[TABLE]), source, trace=True)
        found = [(one.code, one.result) for step in state.steps or () for one in step.translations]
        self.assertEqual(found, [("male", "other")])

    def test_codings_without_a_row(self) -> None:
        """The system of a coding decides; one that no group is for is an unmapped code, one of no match is none."""
        rule = "src.code as c -> tgt.language = translate(c, 'urn:sex', 'code');"
        for coding, found, unmapped in (
            ({"system": "urn:u", "code": "male"}, "unknown", []),
            ({"code": "male"}, "other", []),
            ({"system": "urn:w", "code": "male"}, None, [Unmapped("urn:sex", "male")]),
            ({"system": "urn:s", "code": "zz"}, None, [Unmapped("urn:sex", "zz")]),
            ({"system": "urn:s", "code": "none"}, None, []),
            ({"display": "male"}, None, []),
        ):
            source = {"resourceType": "Observation", "code": {"coding": [coding]}}
            made, state = mapped(rule, source)
            self.assertEqual((made.get("language"), state.unmapped), (found, unmapped), coding)


CONTAINED = {
    "resourceType": "Patient",
    "contained": [{"resourceType": "Patient", "gender": "male", "maritalStatus": {"text": "a"}, "birthDate": "1999"}],
    "extension": [{"url": "u", "valueQuantity": {"value": 1, "unit": "kg", "code": "kg"}}],
}
# rules from CONTAINED to a Patient; what is in `contained` or the value of the extension
SINGLE: list[tuple[str, str, Any]] = [
    ("c.gender = 'other'", "gender", "other"),
    ("c.gender = 'other', c.gender = 'female'", "gender", "female"),
    ("c.active = true, c.active = false", "active", False),
    ("c.maritalStatus as m, m.text = 'b'", "maritalStatus", {"text": "b"}),
    ("c.birthDate = '2000'", "birthDate", "2000"),
    ("c.name as n, n.family = 'F'", "name", [{"family": "F"}]),
    ("c.name as n, n.family = 'F', c.name as k, k.family = 'G'", "name", [{"family": "F"}, {"family": "G"}]),
    ("v.unit = 'g'", "unit", "g"),
    ("v.code = 'g', v.code = 'h'", "code", "h"),
    ("v.system = 'urn:a', v.system = 'urn:b'", "system", "urn:b"),
]


class CopyTests(TestCase):
    def test_a_single_element_of_a_copy_stays_single(self) -> None:
        for targets, name, wanted in SINGLE:
            rule = f"src.contained as s -> tgt.contained = s as c, {targets};"
            if targets.startswith("v"):
                rule = (
                    f"src.extension as x -> tgt.extension as e then {{ x.value as s -> e.value = s as v, {targets}; }};"
                )
            for typed in (True, False):
                made, _ = mapped(rule, CONTAINED, target="Patient", typed=typed)
                found = made["contained"][0] if "contained" in made else made["extension"][0]["valueQuantity"]
                self.assertEqual(found[name], wanted, (rule, typed))

    def test_a_copy_in_a_model_that_is_not_known(self) -> None:
        """What the copy has stays single or a list; what comes new is a list from the second value on."""
        uses = 'uses "urn:x:a" alias A as source\nuses "urn:x:b" alias B as target\n'
        rules = "src.a as a -> tgt.a = a as t, t.b = 'y', t.l = '2', t.s as s, s.k = 'w', t.z = '1', t.z = '2';"
        compiled = program(f"{HEAD}{uses}group main(source src : A, target tgt : B) {{ {rules} }}")
        made, _ = run(compiled, {"a": {"b": "x", "l": ["1"], "s": {"k": "v", "n": "o"}}})
        wanted = {"b": "y", "l": ["1", "2"], "s": {"k": "w", "n": "o"}, "z": ["1", "2"]}
        self.assertEqual(made, {"a": wanted})


OBSERVED = {
    "resourceType": "Patient",
    "active": True,
    "contained": [
        {
            "resourceType": "Observation",
            "status": "final",
            "code": {"text": "a"},
            "valueQuantity": {"value": 1, "unit": "kg"},
            "effectiveDateTime": "2020",
        }
    ],
    "name": [{"family": "F"}],
}
KILOGRAM = {"value": 1, "unit": "kg"}
# targets in a copy of the Observation of OBSERVED; what its elements are then (None: absent)
CHOSEN: list[tuple[str, Json]] = [
    ("c.value = 'x'", {"valueString": "x", "valueQuantity": None}),
    ("c.value = true", {"valueBoolean": True, "valueQuantity": None}),
    ("c.value = 5", {"valueInteger": 5, "valueQuantity": None}),
    ("c.value = 'x', c.value = true", {"valueBoolean": True, "valueString": None, "valueQuantity": None}),
    ("c.value = cc('urn:a', 'b')", {"valueCodeableConcept": {"coding": [{"system": "urn:a", "code": "b"}]}}),
    ("c.value = create('Period') as p, p.start = '2020'", {"valuePeriod": {"start": "2020"}, "valueQuantity": None}),
    ("c.value = create('Quantity') as q, q.unit = 'g'", {"valueQuantity": {"value": 1, "unit": "g"}}),
    ("c.value as q, q.unit = 'g'", {"valueQuantity": {"value": 1, "unit": "g"}}),
    ("c.effective = '2021-01-01'", {"effectiveDateTime": "2021-01-01", "valueQuantity": KILOGRAM}),
    (
        "c.effective = create('Period') as p, p.end = '2021'",
        {"effectivePeriod": {"end": "2021"}, "effectiveDateTime": None},
    ),
    ("c.value = (%src.active)", {"valueBoolean": True, "valueQuantity": None}),
    ("c.value = (2.5)", {"valueQuantity": KILOGRAM, "valueDecimal": None}),  # an Observation has no decimal: omitted
    ("c.value = (%src.name.first())", {"valueQuantity": KILOGRAM}),
    (
        "c.component as k, k.value = 'x', k.code as d, d.text = 'y'",
        {"component": [{"valueString": "x", "code": {"text": "y"}}]},
    ),
    ("c.note as n, n.text = 'a', n.author = 'b'", {"note": [{"text": "a", "authorString": "b"}]}),
    ("c.code as d, d.coding as g, g.code = 'y'", {"code": {"text": "a", "coding": [{"code": "y"}]}}),
    (
        "c.identifier as i, i.value = 'a', c.identifier as j, j.value = 'b'",
        {"identifier": [{"value": "a"}, {"value": "b"}]},
    ),
]


class ChoiceInCopyTests(TestCase):
    """A choice that is set by its plain name in a copy of a resource whose type the map does not know."""

    def copied(self, targets: str, *, typed: bool, source: Json = OBSERVED) -> Json:
        rule = f"src.contained as s -> tgt.contained = s as c, {targets};"
        made, _ = mapped(rule, source, target="Patient", typed=typed)
        contained = [{**one, "id": "a"} for one in made["contained"]]
        self.assertEqual(structure_issues({**made, "contained": contained}), (), targets)
        found: Json = made["contained"][0]
        return found

    def test_table(self) -> None:
        for targets, expected in CHOSEN:
            for typed in (True, False):
                found = self.copied(targets, typed=typed)
                self.assertEqual({name: found.get(name) for name in expected}, expected, (targets, typed))
                self.assertNotIn("value", found)

    def test_references(self) -> None:
        """A Reference has its form, in a list too; list mode single goes on with the first one."""
        for targets, name in (("c.subject = reference(c)", "subject"), ("c.performer = reference(c)", "performer")):
            found = self.copied(targets, typed=False)[name]
            one = found[0] if isinstance(found, list) else found
            self.assertEqual((isinstance(found, list), list(one)), (name == "performer", ["reference"]), targets)

    def test_every_choice_of_every_type(self) -> None:
        """With a structure of each of its types: that one is in the copy, under its JSON name."""
        tables, tried = definitions(), 0
        for resource_type in sorted(tables.resource_types):
            for element in tables.members(resource_type).values():
                for kind in element.types if element.choice else ():
                    if kind in tables.primitive_types or kind in ("Reference", "SampledData"):
                        continue
                    source = {"resourceType": "Patient", "contained": [{"resourceType": resource_type}]}
                    rule = (
                        f"src.contained as s -> tgt.contained = s as c, c.{element.name} = create('{kind}') as x,"
                        " x.extension as e, e.url = 'urn:a', e.value = 'b';"
                    )
                    made, _ = mapped(rule, source, target="Patient", typed=False)
                    names = [name for name in made["contained"][0] if name.startswith(element.name)]
                    self.assertEqual(names, [element.json_name(kind)], (resource_type, element.name, kind))
                    tried += 1
        self.assertGreater(tried, 70)


REFERENCES = """src -> tgt.entry as e, e.resource = create('Practitioner') as p{more} then {{
  src -> tgt.entry as f, f.resource = create('CarePlan') as d, d.status = 'draft', d.intent = 'plan', {rules}; }};"""


class ReferenceInListTests(TestCase):
    def care_plan(self, rules: str, more: str = ", p.active = true") -> Json:
        """The CarePlan of a Bundle, with references to the Practitioner before it."""
        made, _ = mapped(REFERENCES.format(rules=rules, more=more), PATIENT, target="Bundle")
        plan: Json = made["entry"][-1]["resource"]
        return plan

    def test_references_in_a_list_of_texts(self) -> None:
        for rules, count in (
            ("d.instantiatesUri = reference(p)", 1),
            ("d.instantiatesUri = 'urn:a', d.instantiatesUri = reference(p)", 2),
            ("d.instantiatesUri = reference(p), d.instantiatesUri = 'urn:a'", 2),
        ):
            found = self.care_plan(rules)["instantiatesUri"]
            self.assertEqual((type(found), len(found)), (list, count), rules)
            plan = self.care_plan(rules, more="")  # the Practitioner is empty, so it is removed
            self.assertEqual(plan.get("instantiatesUri"), ["urn:a"] if count > 1 else None, rules)

    def test_first_item(self) -> None:
        """`single` (R5) and `collate` (R4) go on with the first item, which then refers to another resource."""
        first, second = "d.contributor = reference(p)", "d.contributor = reference(d)"
        for mode in ("single", "collate"):
            for rules, more, expected in (
                (f"{first}, {second} {mode}", ", p.active = true", {}),
                (f"{second} {mode}, d.contributor as k {mode}, k.display = 'x'", ", p.active = true", {"display": "x"}),
                (f"{first}, {second} {mode}", "", {}),  # the Practitioner is empty, and no longer referred to
            ):
                made, state = mapped(REFERENCES.format(rules=rules, more=more), PATIENT, target="Bundle")
                plan = made["entry"][-1]["resource"]
                self.assertEqual(plan["contributor"], [{"reference": state.urns[id(plan)], **expected}], rules)
            rules = f"d.instantiatesUri = 'urn:a', d.instantiatesUri = 'urn:b', d.instantiatesUri = reference(p) {mode}"
            texts = self.care_plan(rules)["instantiatesUri"]
            self.assertEqual((len(texts), texts[0].startswith("urn:uuid:"), texts[1]), (2, True, "urn:b"), mode)

    def test_list_modes(self) -> None:
        plan = self.care_plan("d.contributor = reference(p), d.contributor = reference(d) first")
        first, second = (one["reference"] for one in plan["contributor"])
        self.assertGreater(first, second)
        rules = "d.instantiatesUri = 'urn:a', {0} first, {0} last, d.instantiatesUri = 'urn:b'"
        plan = self.care_plan(rules.format("d.instantiatesUri = reference(p)"))
        name = plan["instantiatesUri"][0]
        self.assertEqual(plan["instantiatesUri"], [name, "urn:a", "urn:b", name])

    def test_final_names_of_contained_resources(self) -> None:
        rules = (
            "src -> tgt.contained = create('Practitioner') as p, p.active = true, tgt.instantiatesUri = 'urn:a',"
            " tgt.instantiatesUri = reference(p), p.id = 'q', tgt.instantiatesUri = reference(p);"
        )
        made, _ = mapped(rules, PATIENT, target="CarePlan")
        self.assertEqual(made["instantiatesUri"], ["urn:a", "#q", "#q"])
