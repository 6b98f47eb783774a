"""The search parameters in the CapabilityStatement agree with the parser."""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from ipf.errors import Problem
from ipf.fhir.capability import capability_statement
from ipf.fhir.model.definitions import definitions
from ipf.fhir.search.language.query import parse_query
from ipf.ports import Json
from ipf.rest.router import ROUTES

MODIFIERS = ("missing", "exact", "contains", "text", "not", "in", "not-in", "above", "below", "of-type", "identifier",
             "Patient", "code-text", "text-advanced", "nonsense")  # fmt: skip
SAMPLES = {
    "string": ("Patient", "name", "x"),
    "token": ("Patient", "identifier", "a|b"),
    "reference": ("Account", "subject", "1"),
    "uri": ("ValueSet", "url", "http://x/y"),
    "date": ("Patient", "birthdate", "2024"),
    "number": ("RiskAssessment", "probability", "0.5"),
    "quantity": ("Observation", "value-quantity", "5"),
}


def statement() -> Json:
    """The `rest` of the statement of all routes."""
    routes = [(shape, method) for shape in ROUTES for method in ROUTES[shape]]
    rest: Json = capability_statement(definitions(), routes, base_url="http://x", version="1")["rest"][0]
    return rest


def is_taken(resource_type: str, name: str, value: str) -> bool:
    """Whether the parser accepts a parameter."""
    try:
        parse_query(resource_type, [(name, value)])
    except Problem:
        return False
    return True


class SearchStatementTests(SynchronousTestCase):
    def test_modifiers(self) -> None:
        """The parser accepts exactly the listed modifiers of each parameter type."""
        sentence = re.search(r"Modifiers: (.*?)\.", statement()["documentation"])
        assert sentence is not None
        said = {part.split()[0]: set(re.findall(r"`:(\[?[a-z-]+\]?)`", part)) for part in sentence[1].split(";")}
        everywhere = said.pop("`:missing`")
        self.assertEqual(everywhere, {"missing"})
        for kind, (resource_type, name, value) in SAMPLES.items():
            expected = {"Patient" if one == "[type]" else one for one in said.get(kind, set())}
            for modifier in MODIFIERS:
                sent = "true" if modifier == "missing" else "a|b|c" if modifier == "of-type" else value
                taken = is_taken(resource_type, f"{name}:{modifier}", sent)
                self.assertEqual(taken, modifier in expected | everywhere, (kind, modifier))

    def test_refused_parameters(self) -> None:
        """Each parameter that is listed as refused is refused, and not listed as supported."""
        rest = statement()
        for name in ("_query",):
            self.assertIn(f"`{name}`", rest["documentation"])
            self.assertFalse(is_taken("Location", name, "1|2|3"), name)

    def test_listed_parameters_are_supported(self) -> None:
        """The parser accepts every listed parameter."""
        for one in statement()["resource"]:
            for param in one["searchParam"]:
                if param["name"] not in ("_list", "_text", "_content", "_filter"):
                    self.assertTrue(is_taken(one["type"], f"{param['name']}:missing", "true")
                                    or param["name"] in ("_id", "_lastUpdated"), (one["type"], param))  # fmt: skip
