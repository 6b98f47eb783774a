"""Compilation of a map from a stranger is bounded: in its text, its groups, their nesting and their variants."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.mapping.compiler import compile as compiling
from ipf.mapping.compiler import groups
from ipf.mapping.language import lexer
from ipf.mapping.language.lexer import FmlError
from tests.mapping.support import HEAD, V2, program

PARAMETERS = "source p, target t : Patient"


def mistake(text: str) -> str:
    """The error of a map."""
    try:
        program(text)
    except FmlError as error:
        return str(error)
    return ""


class LimitTests(TestCase):
    def test_a_long_chain_of_groups(self) -> None:
        text = HEAD + V2 + "group main(source src : ADT_A01, target t : Patient) { src.PID as p then g0(p, t) 'go'; }\n"
        chain = "".join(f"group g{n}({PARAMETERS}) {{ p then g{n + 1}(p, t) 'next'; }}\n" for n in range(300))
        found = mistake(text + chain + f"group g300({PARAMETERS}) {{ p.PID_5 as v -> t.id = v; }}")
        self.assertIn("the budget of 60 groups that call one another in a row", found)
        self.assertIn("map0.fml:", found)

    def test_variants_of_groups(self) -> None:
        """Each group calls the next one with its arguments in every order, so that it is compiled for all of them."""
        names = ("Patient", "Observation", "Encounter", "Practitioner", "Location", "Coverage", "Account")
        made = "".join(f"src -> tgt.e{n} = create('{name}') as a{n} then {{ " for n, name in enumerate(names))
        arguments = [f"a{n}" for n in range(len(names))]
        rules = f"{made} src then g(src, {', '.join(arguments)}) 'go'; {'}' * len(names)}"
        turned, swapped = arguments[1:] + arguments[:1], [arguments[1], arguments[0], *arguments[2:]]
        parameters = ", ".join(["source s", *(f"target {one}" for one in arguments)])
        calls = f"s then g(s, {', '.join(turned)}), g(s, {', '.join(swapped)}) 'orders';"
        text = HEAD + f"group main(source src, target tgt) {{ {rules} }}\n"
        text += f"group g({parameters}) {{ {calls} }}"
        self.assertIn("budget", mistake(text))

    def test_many_parts(self) -> None:
        self.patch(compiling, "MOST_PARTS", 50)
        text = HEAD + "group main(source src, target tgt) { src then g0(src, tgt) 'go'; }\n"
        rules = " ".join(f"p.a{n} as v -> t.b{n} = v;" for n in range(30))
        self.assertIn("budget of 50 compiled rules", mistake(f"{text}group g0(source p, target t) {{ {rules} }}"))

    def test_many_groups(self) -> None:
        self.patch(groups, "MAX_GROUPS", 3)
        text = "".join(f"group g{n}(source p, target t) {{ p.a -> t.b; }}\n" for n in range(4))
        self.assertIn("more than 3 groups", mistake(HEAD + text))

    def test_a_long_text(self) -> None:
        self.patch(lexer, "MAX_TEXT", 100)
        self.assertIn("more than 100 characters", mistake(HEAD + "//" + "x" * 100))
