"""Memoized groups with shared targets: a replay has the same effect as a run."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.hl7.message import Message
from ipf.mapping.bundle.transaction import complete
from ipf.mapping.compiler.compile import Compiler, Program
from ipf.mapping.compiler.groups import Environment
from ipf.mapping.language.grammar import parse
from tests.mapping.support import HEAD, V2

MAP = (
    HEAD
    + V2
    + """group main(source src : ADT_A01, target bundle : Bundle) {
  src.PID as pid -> bundle.entry as e, e.resource = create('Patient') as patient, patient.identifier as id,
    id.value = (pid.PID_3) then {
    pid -> bundle.entry as f, f.resource = create('Encounter') as visit, visit.status = 'planned' then {
      %s
      pid then Visit(pid, visit, patient, bundle);
      pid then After(pid, visit);
    };
  };
}
group After(source pid : PID, target visit : Encounter) {
  pid.PID_30 as x -> visit.period as p, p.end = x;
}
group Visit(source pid : PID, target visit : Encounter, target patient : Patient, target bundle : Bundle) {
  pid.PID_4 as x -> visit.priority = cc(x);
  pid.PID_8 as x -> visit.type as t, t.text = x;
  pid.PID_6 as x -> visit.period as p, p.start = x;
  %s
}"""
)

MEMOIZED = {
    "lists grow": ("pid -> visit.type = cc('before');", "pid -> visit.type = cc('after');"),
    "a list that is only sometimes there": (
        "pid.PID_2 -> visit.type = cc('before');",
        "pid -> visit.serviceType = cc('s'), visit.type = cc('after');",
    ),
    "a new entry, referred to": (
        "",
        "pid.PID_5 as x -> bundle.entry as e, e.resource = create('Practitioner') as doctor, doctor.identifier as id,"
        " id.value = x, visit.participant as p, p.individual = reference(doctor);",
    ),
    "references to what was there": (
        "",
        "pid.PID_5 as x -> bundle.entry as e, e.resource = create('Flag') as flag, flag.subject = reference(patient),"
        " flag.encounter = reference(visit), flag.code = cc(x), visit.subject = reference(patient);",
    ),
    "what stays empty": (
        "",
        "pid -> visit.hospitalization as h, visit.location as l, l.location as r; pid -> patient.contact as c;",
    ),
    "an entry that stays empty": ("", "pid -> bundle.entry as e, e.resource = create('Flag') as flag;"),
    "text in several targets": (
        "",
        "pid.PID_5 as x -> patient.name as n, n.family = x, visit.length as l, l.unit = x;",
    ),
}
NOT_MEMOIZED = {
    "what it adds to is there already": (
        "pid -> visit.period as p, p.start = '2020';",
        "pid -> visit.length as l, l.unit = 'd';",
    ),
    "one of a choice": (
        "pid -> patient.deceased = true;",
        "pid.PID_5 as x -> patient.deceased = cast('2020', 'dateTime');",
    ),
    "a reference to what stays empty": (
        "",
        "pid -> bundle.entry as e, e.resource = create('Flag') as flag, visit.appointment = reference(flag);",
    ),
    "a name for a target": ("", "pid -> visit as again, again.length as l, l.unit = 'd';"),
    "a decimal": ("", "pid -> visit.length as l, l.value = 1.5;"),
}
ALWAYS_THERE = "PID|1|%s|P%d|4|Kari|2020|1970|F"


def message(number: int) -> Message:
    """An ADT^A01 with its own patient; the rest is constant."""
    pid = ALWAYS_THERE % ("two" if number % 3 == 0 else "", number)
    pid += "|" * 22 + ("2021" if number % 2 else "")
    return Message.parse(f"MSH|^~\\&|S|F|R|F|20200101||ADT^A01|{number}|P|2.5\r{pid}".encode())


def compiled(before: str, rules: str) -> tuple[Program, Compiler]:
    """The map, compiled with its own cache."""
    content = parse(MAP % (before, rules), "map.fml")
    compiler = Compiler([content], Environment())
    return Program(compiler, content), compiler


def results(program: Program, number: int, *, trace: bool) -> tuple[str, Any, Any]:
    """The result of a run with the order of names, the text of each reference, and warnings."""
    bundle, run = program.run(message(number), b"k%d" % number, trace=trace)
    references = sorted(holder[name] for holder, name, _ in complete(bundle, run).references or ())
    return str(bundle), references, run.warnings


class SharedTests(TestCase):
    def check(self, before: str, rules: str) -> int:
        """Compare cached and uncached results; returns the number of cached results."""
        program, compiler = compiled(before, rules)
        for number in range(18):
            uncached_result = results(program, number, trace=True)  # which has no memory
            self.assertEqual(results(program, number, trace=False), uncached_result, rules)
        return len(compiler.results)

    def test_memoized_groups(self) -> None:
        for name, (before, rules) in MEMOIZED.items():
            with self.subTest(name):
                self.assertGreater(self.check(before, rules), 0, name)

    def test_groups_that_are_not_memoized(self) -> None:
        for name, (before, rules) in NOT_MEMOIZED.items():
            with self.subTest(name):
                self.assertEqual(self.check(before, rules), 0, name)

    def test_no_object_belongs_to_two_messages(self) -> None:
        program, compiler = compiled(*MEMOIZED["a new entry, referred to"])
        texts = []
        for number in [4] * 9:
            bundle, _ = program.run(message(number), b"k")
            texts.append(str(bundle))
            spoil(bundle)
        self.assertEqual(len(set(texts)), 1)


def spoil(value: Any) -> None:
    """Change every object and list."""
    for one in list(value.values()) if type(value) is dict else list(value) if type(value) is list else ():
        spoil(one)
    if type(value) is dict:
        value["spoilt"] = "spoilt"
    elif type(value) is list:
        value.append("spoilt")
