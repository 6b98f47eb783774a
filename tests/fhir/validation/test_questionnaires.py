"""QuestionnaireResponses against their Questionnaires."""

from __future__ import annotations

from base64 import b64encode
from decimal import Decimal
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.validation.findings import Finding
from ipf.fhir.validation.validator import Validator

Json = dict[str, Any]
EXTENSION = "http://hl7.org/fhir/StructureDefinition/"
URL = "http://x.test/Questionnaire/q"


def question(link_id: str, type: str, *items: Json, **more: Any) -> Json:
    """An item of a Questionnaire; extensions as `ext={"minLength": ("Integer", 3)}`."""
    extensions = [
        {"url": EXTENSION + name, f"value{kind}": value} for name, (kind, value) in more.pop("ext", {}).items()
    ]
    found = {"linkId": link_id, "type": type, **more}
    return found | ({"item": list(items)} if items else {}) | ({"extension": extensions} if extensions else {})


def answer(link_id: str, *values: Json) -> Json:
    """An item of a response with answers."""
    return {"linkId": link_id, "answer": list(values)}


def group(link_id: str, *items: Json) -> Json:
    """An item of a response with items."""
    return {"linkId": link_id, "item": list(items)} if items else {"linkId": link_id}


def findings(questions: list[Json], items: list[Json], status: str = "completed") -> list[Finding]:
    """What the answers give."""
    form = {"resourceType": "Questionnaire", "url": URL, "status": "active", "item": questions}
    validator = Validator(questionnaire=lambda url: form if url == URL else None)
    response: Json = {"resourceType": "QuestionnaireResponse", "questionnaire": URL, "status": status}
    found = validator.validate(response | ({"item": items} if items else {}))
    return [one for one in found if not one.text.startswith("dom-6")]


YES = {"valueBoolean": True}
TEXT = {"valueString": "abc"}
CODING = {"system": "http://x.test/cs", "code": "a", "display": "Alpha"}
COLOURS = [{"valueCoding": CODING}, {"valueCoding": {"system": "http://x.test/cs", "code": "blue", "display": "Blue"}}]
FORM = [
    question("yes", "boolean", required=True),
    question("why", "string", maxLength=5, enableWhen=[{"question": "yes", "operator": "=", "answerBoolean": True}]),
    question("group", "group", question("n", "integer"), question("d", "decimal"), repeats=True),
    question("many", "string", repeats=True),
    question("note", "display"),
    question("nested", "boolean", question("detail", "string")),
]


class StructureTests(TestCase):
    def check(self, rows: list[tuple[list[Json], str, str]], status: str = "completed") -> None:
        """Rows of items, the text that one error contains ("" for none), and where it is."""
        for items, text, place in rows:
            found = [one for one in findings(FORM, items, status) if one.severity == "error"]
            if not text:
                self.assertEqual(found, [], items)
            else:
                self.assertEqual([one.location for one in found], [f"QuestionnaireResponse{place}"], found)
                self.assertIn(text, found[0].words)

    def test_items(self) -> None:
        yes = answer("yes", YES)
        self.check(
            [
                ([yes], "", ""),
                ([yes, answer("why", TEXT)], "", ""),
                ([], "an answer to 'yes' is required", ""),
                ([group("yes")], "an answer to 'yes' is required", ".item[0]"),
                ([yes, answer("whi", TEXT)], "has no item 'whi'; did you mean 'why'?", ".item[1]"),
                ([yes, answer("n", {"valueInteger": 1})], "stands in the wrong place", ".item[1]"),
                ([answer("many", TEXT), yes], "not in the order", ".item[1]"),
                ([yes, yes], "occurs 2 times; it does not repeat", ".item[1]"),
                ([yes, answer("many", TEXT), answer("many", TEXT)], "its answers stand in one item", ".item[2]"),
                ([yes, answer("many", TEXT, TEXT)], "", ""),
                ([yes, answer("why", TEXT, TEXT)], "has 2 answers, at most 1", ".item[1]"),
                ([yes, group("group", answer("n", {"valueInteger": 1})), group("group")], "", ""),
                ([yes, answer("group", TEXT)], "a group, which has no answers", ".item[1].answer"),
                ([yes, answer("note", TEXT)], "a display, which has no answers", ".item[1].answer"),
                ([yes, group("note")], "", ""),
                ([yes, group("nested", answer("detail", TEXT))], "belong into its answer", ".item[1].item"),
                ([yes, answer("nested", {**YES, "item": [answer("detail", TEXT)]})], "", ""),
                (
                    [yes, answer("nested", {**YES, "item": [answer("yes", YES)]})],
                    "wrong place",
                    ".item[1].answer[0].item[0]",
                ),
            ]
        )

    def test_what_is_missing_counts_in_a_finished_response(self) -> None:
        for status, count in (("completed", 1), ("amended", 1), ("in-progress", 0), ("stopped", 0)):
            self.assertEqual(len(findings(FORM, [], status)), count, status)

    def test_types_of_answers(self) -> None:
        yes = answer("yes", YES)
        within = ".item[1].item[0].answer[0].value.ofType"
        self.check(
            [
                (
                    [answer("yes", TEXT)],
                    "is valueString, expected is valueBoolean",
                    ".item[0].answer[0].value.ofType(string)",
                ),
                ([yes, group("group", answer("d", {"valueDecimal": 1}))], "", ""),
                (
                    [yes, group("group", answer("d", {"valueInteger": 1}))],
                    "did you mean 'valueDecimal'?",
                    f"{within}(integer)",
                ),
                (
                    [yes, answer("why", {"valueString": "longer"})],
                    "at most 5 characters",
                    ".item[1].answer[0].value.ofType(string)",
                ),
                (
                    [answer("yes", {"_valueBoolean": {"extension": [{"url": "http://x.test", "valueCode": "x"}]}})],
                    "",
                    "",
                ),
            ]
        )

    def test_unknown_and_contained_questionnaires(self) -> None:
        form = {"resourceType": "Questionnaire", "id": "q", "status": "active", "item": [question("a", "string")]}
        response = {"resourceType": "QuestionnaireResponse", "status": "completed", "item": [answer("b", TEXT)]}
        unknown = Validator().validate(response | {"questionnaire": URL})
        self.assertIn(("warning", "not-found"), [(one.severity, one.code) for one in unknown])
        found = Validator().validate(response | {"contained": [form], "questionnaire": "#q"})
        self.assertIn("QuestionnaireResponse.item[0]", [one.location for one in found])

    def test_any_json_is_answered(self) -> None:
        for wrong in (
            1,
            [],
            [1],
            [{"linkId": 1}],
            [{"linkId": "yes", "answer": [1, {"valueBoolean": {}}]}],
            [[{}]],
            "x",
        ):
            for form in (wrong, FORM):
                for items in (wrong, [answer("yes", YES)]):
                    findings(form, items)  # type: ignore[arg-type]


class EnablingTests(TestCase):
    def enabled(self, conditions: list[Json], items: list[Json], behavior: str = "all") -> bool | None:
        """Whether an item below these conditions is enabled: with an answer it is valid, without one it is missing."""
        form = [
            question("b", "boolean"),
            question("n", "integer", repeats=True),
            question("q", "quantity"),
            question("c", "choice", answerOption=COLOURS),
            question("d", "date"),
            question("x", "string", required=True, enableWhen=conditions, enableBehavior=behavior),
        ]
        present = {one.code for one in findings(form, [*items, answer("x", TEXT)])}
        absent = {one.code for one in findings(form, items)}
        self.assertLessEqual(present, {"business-rule"})
        return None if not present | absent else "business-rule" not in present

    def test_conditions(self) -> None:
        def on(link_id: str, operator: str, **wanted: Any) -> list[Json]:
            return [{"question": link_id, "operator": operator, **wanted}]

        kg = {"system": "http://unitsofmeasure.org", "unit": "kg", "code": "kg", "value": 2}
        grams = {"system": "http://unitsofmeasure.org", "unit": "g", "code": "g", "value": 1999}
        five = [answer("n", {"valueInteger": 5}, {"valueInteger": 7})]
        for conditions, items, expected in (
            (on("b", "=", answerBoolean=True), [answer("b", YES)], True),
            (on("b", "=", answerBoolean=False), [answer("b", YES)], False),
            (on("b", "=", answerBoolean=True), [], False),
            (on("b", "exists", answerBoolean=True), [], False),
            (on("b", "exists", answerBoolean=False), [], True),
            (on("b", "exists", answerBoolean=True), [answer("b", YES)], True),
            (on("b", "!=", answerBoolean=True), [], None),
            (on("n", "!=", answerInteger=5), five, False),
            (on("n", "!=", answerInteger=6), five, True),
            (on("n", ">", answerInteger=6), five, True),
            (on("n", ">=", answerInteger=7), five, True),
            (on("n", ">", answerInteger=7), five, False),
            (on("n", "<", answerDecimal=6), five, True),
            (on("q", "<", answerQuantity=kg), [answer("q", {"valueQuantity": grams})], True),
            (on("q", ">", answerQuantity=kg), [answer("q", {"valueQuantity": grams})], False),
            (on("c", "=", answerCoding=CODING), [answer("c", {"valueCoding": CODING})], True),
            (on("c", "=", answerCoding={"code": "a"}), [answer("c", {"valueCoding": CODING})], False),
            (on("d", "<=", answerDate="2024-01-01"), [answer("d", {"valueDate": "2023-12-31"})], True),
        ):
            self.assertIs(self.enabled(conditions, items), expected, (conditions, items))
        both = on("b", "=", answerBoolean=True) + on("n", "=", answerInteger=5)
        self.assertIs(self.enabled(both, [answer("b", YES)], "all"), False)
        self.assertIs(self.enabled(both, [answer("b", YES)], "any"), True)

    def test_each_repetition_has_its_own_answers(self) -> None:
        when = [{"question": "b", "operator": "=", "answerBoolean": True}]
        form = [
            question("g", "group", question("b", "boolean"), question("x", "string", enableWhen=when), repeats=True)
        ]
        no = answer("b", {"valueBoolean": False})
        items = [group("g", answer("b", YES), answer("x", TEXT)), group("g", no, answer("x", TEXT))]
        self.assertEqual([one.location for one in findings(form, items)], ["QuestionnaireResponse.item[1].item[1]"])


class ValueTests(TestCase):
    def errors(self, item: Json, *values: Json) -> list[str]:
        """The texts of the findings about answers to one question."""
        return [one.words for one in findings([item], [answer(item["linkId"], *values)])]

    def test_options(self) -> None:
        choice = question("c", "choice", answerOption=COLOURS)
        own = "http://x.test/cs"
        self.assertEqual(self.errors(choice, {"valueCoding": {"system": own, "code": "blue"}}), [])
        wrong = self.errors(choice, {"valueCoding": {"system": own, "code": "blu"}})[0]
        self.assertTrue(wrong.endswith("is no option of 'c'; did you mean 'blue'?"), wrong)
        other = self.errors(choice, {"valueCoding": {"system": "http://y.test/cs", "code": "blue"}})[0]
        self.assertTrue(other.endswith("did you mean 'http://x.test/cs|blue'?"), other)
        self.assertIn("is valueString, expected is valueCoding", self.errors(choice, TEXT)[0])
        free = question("c", "open-choice", answerOption=COLOURS)
        self.assertEqual(self.errors(free, TEXT), [])
        self.assertIn("no option", self.errors(free, {"valueCoding": {"system": own, "code": "x"}})[0])
        numbers = question("c", "choice", answerOption=[{"valueInteger": 1}, {"valueInteger": 2}])
        self.assertEqual(self.errors(numbers, {"valueInteger": 2}), [])
        self.assertIn("no option", self.errors(numbers, {"valueInteger": 3})[0])

    def test_very_many_options_and_answers(self) -> None:
        """Each answer is one look-up: this took three minutes when it compared all options."""
        many = [{"valueCoding": {"system": "s:x", "code": f"c{number}"}} for number in range(20_000)]
        wrong = [{"valueCoding": {"system": "s:x", "code": f"z{number}"}} for number in range(5_000)]
        self.assertGreater(len(self.errors(question("c", "choice", repeats=True, answerOption=many), *wrong)), 200)

    def test_value_sets(self) -> None:
        gender = question("c", "choice", answerValueSet="http://hl7.org/fhir/ValueSet/administrative-gender")
        system = "http://hl7.org/fhir/administrative-gender"
        self.assertEqual(self.errors(gender, {"valueCoding": {"system": system, "code": "male"}}), [])
        found = self.errors(gender, {"valueCoding": {"system": system, "code": "mal"}})
        self.assertTrue(any("is no answer to 'c'" in one and "'male'?" in one for one in found), found)
        unknown = question("c", "choice", answerValueSet="http://x.test/vs")
        self.assertIn("not completely loaded", self.errors(unknown, {"valueCoding": CODING})[0])

    def test_limits(self) -> None:
        for item, good, bad, text in (
            (question("s", "string", ext={"minLength": ("Integer", 3)}), "abc", "ab", "at least 3 characters"),
            (question("s", "text", ext={"regex": ("String", "[a-z]+")}), "abc", "ab1", "must match [a-z]+"),
            (question("s", "string", maxLength=3), "abc", "abcd", "at most 3 characters"),
        ):
            self.assertEqual(self.errors(item, {"valueString": good}), [])
            self.assertIn(text, self.errors(item, {"valueString": bad})[0])
        number = question(
            "n",
            "decimal",
            ext={"minValue": ("Decimal", 1), "maxValue": ("Decimal", 5), "maxDecimalPlaces": ("Integer", 1)},
        )
        self.assertEqual(self.errors(number, {"valueDecimal": 1.5}), [])
        self.assertIn("at least '1'", self.errors(number, {"valueDecimal": 0.5})[0])
        self.assertIn("at most '5'", self.errors(number, {"valueDecimal": 6})[0])
        self.assertIn("at most 1 decimal places", self.errors(number, {"valueDecimal": 1.55})[0])
        day = question("d", "date", ext={"maxValue": ("Date", "2024-12-31")})
        self.assertIn("at most", self.errors(day, {"valueDate": "2025-01-01"})[0])
        repeated = question("s", "string", repeats=True, ext={"questionnaire-maxOccurs": ("Integer", 2)})
        self.assertEqual(self.errors(repeated, TEXT, TEXT), [])
        self.assertIn("at most 2", self.errors(repeated, TEXT, TEXT, TEXT)[0])

    def test_references_units_and_attachments(self) -> None:
        who = question("r", "reference", ext={"questionnaire-referenceResource": ("Code", "Patient")})
        self.assertEqual(self.errors(who, {"valueReference": {"reference": "Patient/1"}}), [])
        self.assertIn("to Patient", self.errors(who, {"valueReference": {"reference": "Group/1"}})[0])
        unit = {"system": "http://unitsofmeasure.org", "code": "kg"}
        weight = question("q", "quantity", ext={"questionnaire-unitOption": ("Coding", unit)})
        self.assertEqual(self.errors(weight, {"valueQuantity": {**unit, "value": 1, "unit": "kg"}}), [])
        self.assertIn("'kg'?", self.errors(weight, {"valueQuantity": {**unit, "code": "kgs", "value": 1}})[-1])

    def test_unit_value_sets(self) -> None:
        """The unit of a quantity is a code of the value set."""
        codes = "http://hl7.org/fhir/ValueSet/age-units"
        age = question("q", "quantity", ext={"questionnaire-unitValueSet": ("Canonical", codes)})
        for code, is_valid in (("a", True), ("mo", True), ("kg", False)):
            value = {"value": 1, "unit": code, "system": "http://unitsofmeasure.org", "code": code}
            found = self.errors(age, {"valueQuantity": value})
            self.assertEqual(not found, is_valid, (code, found))
        self.assertIn("needs a code", self.errors(age, {"valueQuantity": {"value": 1, "unit": "years"}})[0])

    def test_limits_of_quantities_in_other_units(self) -> None:
        limit = {"value": 2, "system": "http://unitsofmeasure.org", "code": "kg"}
        weight = question("q", "quantity", ext={"maxValue": ("Quantity", limit)})
        for value, code, is_valid in ((2, "kg", True), (2000, "g", True), (2001, "g", False), (3, "m", True)):
            given = {"value": value, "unit": code, "system": "http://unitsofmeasure.org", "code": code}
            self.assertEqual(not self.errors(weight, {"valueQuantity": given}), is_valid, (value, code))

    def test_sizes_of_attachments(self) -> None:
        """The data count, whatever `size` says."""
        upload = question("a", "attachment", ext={"maxSize": ("Decimal", Decimal("0.001"))})  # 1,048 bytes
        for length, is_valid in ((1048, True), (1049, False), (4000, False)):
            data = b64encode(b"x" * length).decode()
            for attachment in ({"data": data}, {"size": length, "url": "http://x.test/a"}):
                found = [
                    one for one in self.errors(upload, {"valueAttachment": attachment}) if "at most 0.001 MB" in one
                ]
                self.assertEqual(not found, is_valid, (length, attachment))

    def test_exclusive_options(self) -> None:
        """`None of these` is the only answer."""
        alone = {"url": EXTENSION + "questionnaire-optionExclusive", "valueBoolean": True}
        options = [*COLOURS, {"valueCoding": {"system": "http://x.test/cs", "code": "none"}, "extension": [alone]}]
        colours = question("c", "choice", repeats=True, answerOption=options)
        a, blue, none = ({"valueCoding": {"system": "http://x.test/cs", "code": one}} for one in ("a", "blue", "none"))
        for values, is_valid in (((a, blue), True), ((none,), True), ((a, none), False), ((none, a, blue), False)):
            found = self.errors(colours, *values)
            self.assertEqual(not found, is_valid, found)
            self.assertTrue(all("excludes the other answers" in one for one in found), found)

    def test_read_only(self) -> None:
        fixed = question("s", "string", readOnly=True, initial=[TEXT])
        self.assertEqual(self.errors(fixed, TEXT), [])
        self.assertIn("read-only", self.errors(fixed, {"valueString": "other"})[0])
