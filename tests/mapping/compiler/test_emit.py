"""Texts of a map in the generated code: they are literals and constants, never statements."""

from __future__ import annotations

import builtins
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.mapping.compiler.compile import Compiler, Program
from ipf.mapping.compiler.groups import Environment
from ipf.mapping.language.structuremap import from_json
from tests.mapping.support import HEAD, KEY, program, run

_CODE = "setattr(__import__('builtins'), 'escaped_from_a_literal', 1)"
HOSTILE = (
    f"'] = 1; {_CODE} #",
    f'"] = 1; {_CODE} #',
    f"'''\"\"\"\n{_CODE}\n    {_CODE}\n",
    f"\\'; {_CODE}; '\\",
    f"{{{_CODE}}}",
    f"\x001\x00\x00f\x00; {_CODE}",
    f"\r\u2028\x0c{_CODE}",
    f"%s{{0}}\\x27{_CODE}" + "x" * 300,
)


def _structure_map(text: str) -> dict[str, Any]:
    """A StructureMap with the text in every name and literal."""

    def source(context: str, **more: Any) -> list[dict[str, Any]]:
        return [{"context": context, **more}]

    def target(**more: Any) -> dict[str, Any]:
        return {"context": "tgt", "contextType": "variable", **more}

    literal, quoted = [{"valueString": text}], text.replace("\\", "\\\\").replace("'", "\\'")
    copy = {"transform": "copy", "parameter": [{"valueId": text}]}
    rules = [
        {"name": text, "source": source("src"), "target": [target(element=text, transform="copy", parameter=literal)]},
        {"name": text, "source": source("src", element=text, variable=text), "target": [target(element="b", **copy)]},
        {
            "name": text,
            "source": source("src", condition=f"a = '{quoted}' or a.startsWith('{quoted}')", logMessage=f"'{quoted}'"),
            "target": [target(element="c", transform="evaluate", parameter=[{"valueString": f"'{quoted}' & src.a"}])],
        },
        {"name": text, "source": source("src", defaultValueString=text, element="none", variable="d"), "target": []},
        {"name": text, "source": source("src"), "target": [target(element=text + "2", variable=text + "2")]},
        {"name": text, "source": source("src"), "dependent": [{"name": text, "variable": ["src", "tgt"]}]},
    ]
    inputs = [{"name": name, "mode": mode} for name, mode in (("src", "source"), ("tgt", "target"))]
    groups = [
        {"name": "main", "typeMode": "none", "input": inputs, "rule": rules},
        {"name": text, "typeMode": "none", "input": inputs, "rule": rules[:1]},
    ]
    return {"resourceType": "StructureMap", "url": text, "name": text, "group": groups}


class LargeGroupTests(TestCase):
    """Groups with many variables: the time and memory to compile them are linear."""

    def test_variables_in_a_frame(self) -> None:
        """More variables than a function has locals; nested rules, conditions and calls see the same ones."""
        copied = "v{0}.c as w{0} -> tgt.x{0} = w{0}, tgt.y{0} = evaluate(v{0}, c);"
        rule = f"  src.a as v{{0}} where (v{{0}}.b = 1) then {{{{ {copied} }}}};"
        text = "\n".join(rule.format(number) for number in range(300))
        made = program(f"{HEAD}group main(source src, target tgt) {{\n{text}\n}}")
        target, _ = run(made, {"a": {"b": 1, "c": "z"}})
        names = [f"{letter}{number}" for number in range(300) for letter in "xy"]
        self.assertEqual({name: target[name] for name in names}, dict.fromkeys(names, "z"))

    def test_a_group_has_a_limit(self) -> None:
        text = f"{HEAD}group main(source src, target tgt) {{\n{'  src.a -> tgt.b; ' * 1001}\n}}"
        self.assertIn("more than 2000 rules, sources and targets", str(self.assertRaises(Problem, program, text)))


class LiteralTests(TestCase):
    def test_no_text_of_a_map_runs_as_code(self) -> None:
        compiled = 0
        for text in HOSTILE:
            try:
                content = from_json(_structure_map(text), text)
                program = Program(Compiler([content], Environment()), content)
            except Problem:  # refused at compile time
                continue
            compiled += 1
            for trace in (False, True):
                made, run = program.run({"a": text, text: text}, KEY, trace=trace)
                self.assertEqual((made[text], made["b"], made["c"]), ([text, text], text, text + text), text)
                self.assertEqual(run.logs, [text])
        self.assertFalse(hasattr(builtins, "escaped_from_a_literal"))
        self.assertGreater(compiled, 4)
