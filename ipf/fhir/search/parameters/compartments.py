"""Compartments: which search parameters say that a resource belongs to a Patient, an Encounter, a Practitioner ...

The tables come from `fhir/r4/compartments.json`, made from HL7's package (see `fhir/r4/generate_compartments.py`).

Source: https://hl7.org/fhir/R4/compartmentdefinition.html
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import orjson

from ipf.config.paths import folder
from ipf.fhir.search.language.terms import TermReader, Unsupported
from ipf.fhir.search.values.parameter import any_of
from ipf.ports.queries.predicates import IdIn, Test

_ITSELF = "{def}"


@lru_cache(maxsize=1)
def compartments() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Compartment -> type of resource -> codes of the parameters that put it in; read at the first call."""
    text = orjson.loads((folder("fhir") / "r4" / "compartments.json").read_bytes())
    return {
        name: {resource_type: tuple(codes.split()) for resource_type, codes in rows.items()}
        for name, rows in text["compartments"].items()
    }


def membership(compartment: str, id: str, resource_type: str) -> Test | None:
    """The test that a resource of this type is in the compartment of `compartment`/`id`; None when none can be."""
    if resource_type == compartment:
        own: list[Test] = [IdIn((id,))]
    else:
        own = []
    for code in compartments().get(compartment, {}).get(resource_type, ()):
        if code == _ITSELF:
            continue
        try:
            own.append(TermReader(None, code).read(resource_type, code, f"{compartment}/{id}"))
        except Unsupported:  # a parameter of the compartment's definition that R4 does not define
            continue
    return any_of(own) if own else None
