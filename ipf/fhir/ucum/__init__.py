"""UCUM, the Unified Code for Units of Measure: validity, conversion, canonical form, names, proposals.

    parse("mm[Hg]")                    the syntax tree; UnitError with place and rule for anything else
    measure("mm[Hg]")                  factor, dimensions, function of a special unit; None when it has none
    convert(Decimal(37), "Cel", "[degF]")
    canonical_form("mm[Hg]")           "133322 g.m-1.s-2"
    name("mg/dL"), symbol("mg/dL")     "milligram per deciliter", "mg/dL"
    proposal("mmHg")                   "mm[Hg]"

The table is `fhir/ucum/ucum-essence.xml`, UCUM's own file, read at the first use.  Factors are exact fractions.
The library for UCUM (ucumvert 0.3 with lark and pint) takes 0.57 s and 25 MB to load and 0.7 ms to parse a unit.
Source: https://ucum.org/ucum
"""

from __future__ import annotations

from ipf.fhir.ucum.measure import Dimensions, Measure, canonical_form, convert, measure
from ipf.fhir.ucum.names import name, symbol
from ipf.fhir.ucum.parser import UnitError, is_unit, parse
from ipf.fhir.ucum.proposals import proposal, refusal

SYSTEM = "http://unitsofmeasure.org"

__all__ = [
    "SYSTEM",
    "Dimensions",
    "Measure",
    "UnitError",
    "canonical_form",
    "convert",
    "is_unit",
    "measure",
    "name",
    "parse",
    "proposal",
    "refusal",
    "symbol",
]
