"""FHIRPath: one language for search parameters, invariants, map conditions and subscription filters.

`compile(text).evaluate(resource)` is the usual way in; `parser.parse` gives the tree, `parser.parse_prefix` reads an
expression inside another language.
"""

from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.evaluation.context import Host
from ipf.fhir.fhirpath.expression import Expression, compile
from ipf.fhir.fhirpath.items.nodes import FhirNode
from ipf.fhir.fhirpath.language.parser import parse, parse_prefix

__all__ = ["Expression", "FhirNode", "FhirPathError", "Host", "compile", "parse", "parse_prefix"]
