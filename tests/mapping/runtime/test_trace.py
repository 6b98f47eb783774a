"""The trace of a run: rules, sources and products; no trace by default."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.hl7.message import Message
from ipf.mapping.runtime.trace import MADE, Trace
from tests.corpus import samples
from tests.mapping.support import HEAD, KEY, message, patient_program, program
from tests.traffic.messages import adt

PID = "PID|1||A1^5^M11^AUTH^MR~~B2^^^OTHER^SS||DOE^JOHN||19800102|M"

# rules on `pid` and `tgt`: (rule, sources, [(path, value)])
CASES: list[tuple[str, list[tuple[str, tuple[str, ...], list[tuple[str, Any]]]]]] = [
    (
        "pid.PID_7 as d -> tgt.birthDate = d 'birth';".replace("'", '"'),
        [("birth", ("PID-7[1]",), [("Patient.birthDate", "1980-01-02")])],
    ),
    (
        'pid.PID_3 as c -> tgt.identifier as i then { c.CX_1 as v -> i.value = v "value"; } "identifier";',
        [
            ("identifier", ("PID-3[1]",), [("Patient.identifier[0]", MADE)]),
            ("value", ("PID-3[1].1",), [("Patient.identifier[0].value", "A1")]),
            ("identifier", ("PID-3[3]",), [("Patient.identifier[1]", MADE)]),
            ("value", ("PID-3[3].1",), [("Patient.identifier[1].value", "B2")]),
        ],
    ),
    (
        "pid.PID_5 as n, n.XPN_2 as g -> tgt.name as h, h.given = g, h.text = 'x' \"n\";",
        [
            (
                "n",
                ("PID-5[1]", "PID-5[1].2"),
                [("Patient.name[0]", MADE), ("Patient.name[0].given[0]", "JOHN"), ("Patient.name[0].text", "x")],
            )
        ],
    ),
    (  # what is overwritten or pruned is not shown
        'pid -> tgt.birthDate = "2000"; pid.PID_7 as d -> tgt.birthDate = d; pid -> tgt.contact as c "none";',
        [
            ("pid", ("PID",), []),
            ("PID_7", ("PID-7[1]",), [("Patient.birthDate", "1980-01-02")]),
            ("none", ("PID",), []),
        ],
    ),
    (
        "pid.PID_9 default 'M' as x -> tgt.language = x;",
        [("PID_9", (), [("Patient.language", "M")])],
    ),
    (
        "pid.PID_8 as s -> tgt.gender = 'male' as g, g.extension as e, e.url = 'urn:e';",
        [
            (
                "PID_8",
                ("PID-8[1]",),
                [
                    ("Patient.gender.extension[0]", MADE),
                    ("Patient.gender.extension[0].url", "urn:e"),
                    ("Patient.gender", "male"),
                    ("Patient.gender", {"extension": [{"url": "urn:e"}]}),
                ],
            )
        ],
    ),
]


class TraceTests(TestCase):
    def test_steps(self) -> None:
        for rules, wanted in CASES:
            target, state = patient_program(rules).run(message(PID), KEY, trace=True)
            trace = state.trace
            assert trace is not None
            trace.finish(target, {})
            found = [
                (one.rule, one.sources, [(made.path, made.value) for made in one.produced]) for one in trace.steps[1:]
            ]
            self.assertEqual(found, wanted, rules)

    def test_json_sources(self) -> None:
        text = (
            HEAD
            + """group main(source src : Observation, target tgt : Patient) {
  src.component as c -> tgt.name as n then { c.value as v -> n.text = v; };
}"""
        )
        source = {"resourceType": "Observation", "component": [{"valueString": "a"}, {"valueString": "b"}]}
        target, state = program(text).run(source, KEY, trace=True)
        assert state.trace is not None
        state.trace.finish(target, {})
        steps = [one.as_json() for one in state.trace.steps]
        self.assertEqual(steps[3]["sources"], ["Observation.component[1].valueString"])
        place = {"entry": None, "resourceType": "Patient", "reference": None}
        self.assertEqual(steps[3]["produced"], [{**place, "path": "Patient.name[1].text", "value": "b"}])
        self.assertEqual(steps[2]["produced"], [{**place, "path": "Patient.name[1]"}])
        self.assertEqual((steps[2]["map"], steps[2]["line"], steps[2]["column"]), ("urn:test:map", 3, 3))

    def test_translations(self) -> None:
        text = """conceptmap "#sex" { prefix s = "urn:s" prefix t = "urn:t" s:M == t:male }
group main(source src : ADT_A01, target tgt : Patient) {
  src.PID as pid then { pid.PID_8 as s -> tgt.gender = translate(s, '#sex', 'code'); };
}"""
        for code, result in (("M", "male"), ("X", None)):
            _, state = program(HEAD + text).run(message(f"PID||||||||{code}"), KEY, trace=True)
            steps = state.steps or []
            self.assertEqual(
                [one.as_json() for one in steps[1].translations], [{"table": "#sex", "code": code, "result": result}]
            )

    def test_a_failure_names_its_rule(self) -> None:
        compiled = patient_program("pid.PID_3 as x -> tgt.name as n, n.text = (x.CX_1.toInteger() + 'a') \"sex\";")
        problem = self.assertRaises(Problem, compiled.run, message("PID|1||17"), KEY, trace=True)
        self.assertIn("main.rule 'sex'", str(problem.place))

    def test_a_message_through_the_maps_of_the_project(self) -> None:
        library = samples.library()
        source = Message.parse(adt("C1", "P1").strip(b"\x0b\x1c\r"))
        plain, traced = library.run(source), library.run(source, trace=True)
        self.assertIsNone(plain.steps)
        self.assertEqual(str(plain.bundle), str(traced.bundle))
        entries = traced.bundle["entry"]
        made = [(step, one) for step in traced.steps or () for one in step.produced]
        for step, one in made:
            self.assertTrue(step.at.file.endswith(".fml"), step)
            if one.entry is not None:
                self.assertEqual(entries[one.entry]["fullUrl"], one.reference)
                self.assertEqual(entries[one.entry]["resource"]["resourceType"], one.resource_type)
        by_path = {one.path: step.sources for step, one in made}
        self.assertEqual(by_path["Patient.birthDate"], ("PID-7[1]",))
        self.assertEqual(by_path["Patient.identifier[0].value"], ("PID-3[1].1",))

    def test_the_cost_grows_with_the_message_and_no_faster(self) -> None:
        compiled = patient_program("pid.PID_3 as c -> tgt.identifier as i then { c.CX_1 as v -> i.value = v; };")
        counts = []
        for size in (100, 1000):
            _, state = compiled.run(message("PID|1||" + "~".join(["1^^^A^MR"] * size)), KEY, trace=True)
            counts.append(len(state.steps or ()))
        self.assertEqual(counts, [201, 2001])

    def test_an_empty_trace(self) -> None:
        trace = Trace()
        trace.finish({"resourceType": "Patient"}, {})
        self.assertEqual(trace.steps, [])


class ReferenceTests(TestCase):
    def test_all_references_are_recorded(self) -> None:
        result = samples.library().run(Message.parse(adt("C1", "P1").strip(b"\x0b\x1c\r")))
        urls = {one["fullUrl"] for one in result.bundle["entry"]}
        found = {(id(holder), name) for holder, name in _references(result.bundle["entry"], urls)}
        known = {(id(holder), name) for holder, name, _ in result.made.references or ()}
        self.assertGreater(len(found), 10)
        self.assertEqual(found - known, set())


def _references(value: Any, urls: set[str]) -> Any:
    """Every (object, name) below `value` whose text is one of the urls, without the fullUrls themselves."""
    for name, one in value.items() if type(value) is dict else enumerate(value):
        if type(one) in (dict, list):
            yield from _references(one, urls)
        elif one in urls and name != "fullUrl":
            yield value, name
