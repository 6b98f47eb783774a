"""`_include` and `_revinclude` in, what is to be added to a page out.

Source: https://hl7.org/fhir/R4/search.html#revinclude
"""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.fhir.index.sources import sources
from ipf.fhir.model.definitions import definitions
from ipf.ports.queries.search import Include

ALL = "*"
_ITERATE = frozenset({"iterate", "recurse"})


class UnknownInclude(Problem):
    """A type or parameter that is not known: strict parsing refuses it, lenient parsing leaves it out."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(Category.NOT_SUPPORTED, text, code)


def read_include(name: str, value: str, resource_type: str) -> Include:
    """`_include[:iterate]=Type:parameter[:Target]` or `*`.  Problem VALUE or NOT_SUPPORTED names the parameter."""
    code, _, modifier = name.partition(":")
    if modifier and modifier not in _ITERATE:
        raise Problem(Category.NOT_SUPPORTED, f"search parameter {name[:80]}: the modifier is not supported", name[:80])
    reverse, iterate = code == "_revinclude", bool(modifier)
    if value == ALL:
        return Include("" if iterate or reverse else resource_type, ALL, "", reverse, iterate)
    parts = value.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise Problem(Category.VALUE, f"search parameter {code}: write Type:parameter or Type:parameter:Target", code)
    source, parameter, *target = parts
    known = definitions()
    for one in (source, *target):
        if one not in known.resource_types:
            raise UnknownInclude(f"{code}: {one[:60]} is not a resource type of R4", code)
    definition = known.search_parameters(source).get(parameter)
    if parameter != ALL and (definition is None or definition.type != "reference" or parameter not in sources(source)):
        raise UnknownInclude(f"{code}: {parameter[:60]} is no reference parameter of {source}", code)
    return Include(source, parameter, target[0] if target else "", reverse, iterate)


def reference_codes(resource_type: str, code: str) -> tuple[tuple[str, str], ...]:
    """(code in the index, type that the reference must have or "") of a reference parameter, or of all."""
    found = sources(resource_type)
    names = [code]
    if code == ALL:
        parameters = definitions().search_parameters(resource_type)
        names = [one for one in found if parameters[one].type == "reference"]
    pairs = [(one, found[name].refers_to) for name in names if name in found for one in found[name].codes]
    return tuple(dict.fromkeys(pairs))
