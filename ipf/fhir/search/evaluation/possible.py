"""Whether a search can ever match: values that the element behind a parameter cannot have.

An element of type boolean is true or false, and one of type code with a required binding has a code of its value set:
everything that is stored was checked for that (`ipf.fhir.structure`).  `gender=mann` therefore matches nothing, ever,
and `gender:not=mann` everything.  What other elements may have is not known.

A term is refused if its result is the same for every resource because of such a value: all values of a list have to be
impossible.  `_filter` is judged as a whole.

Source: https://hl7.org/fhir/R4/terminologies.html#required; decisions section 6: a subscription never silently matches
everything or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ipf.errors import Category, Problem
from ipf.fhir.index.entries import token_value
from ipf.fhir.index.paths import ElementPath
from ipf.fhir.index.sources import Source, sources
from ipf.fhir.model.definitions import definitions
from ipf.fhir.structure.required_codes import required_codes
from ipf.ports.queries.predicates import AllOf, AnyOf, Not, Test, TextEquals, TextSuffix
from ipf.ports.queries.search import Query

_MOST_NAMED = 30
_BOOLEANS = ("false", "true")


@dataclass(frozen=True, slots=True)
class Allowed:
    """The codes of a parameter; `text`: how they are named in a refusal."""

    contains: Callable[[str], bool]
    text: str


def refuse_impossible(query: Query, place: str) -> None:
    """Problem BUSINESS_RULE, with the allowed values, for a term that is true of everything or of nothing."""
    for term in query.terms:
        may_hold, may_fail = _outcomes(query.resource_type, term.test)
        if may_hold and may_fail:
            continue
        reasons = "; ".join(dict.fromkeys(_reasons(query.resource_type, term.test)))
        result = "every" if may_hold else "no"
        text = f"{term.name[:100]}={term.value[:100]} matches {result} resource: {reasons}"
        raise Problem(Category.BUSINESS_RULE, text, place)


def _outcomes(resource_type: str, test: Test) -> tuple[bool, bool]:
    """Whether the test can be true of some resource, and whether it can be false of some."""
    match test:
        case Not(one):
            may_hold, may_fail = _outcomes(resource_type, one)
            return may_fail, may_hold
        case AllOf(tests) if tests:
            each = [_outcomes(resource_type, one) for one in tests]
            return all(one[0] for one in each), any(one[1] for one in each)
        case AnyOf(tests) if tests:
            each = [_outcomes(resource_type, one) for one in tests]
            return any(one[0] for one in each), all(one[1] for one in each)
    return not _is_impossible(resource_type, test), True


def _is_impossible(resource_type: str, test: Test) -> bool:
    match test:
        case TextEquals(code, values):
            allowed = allowed_codes(resource_type, code)
            return allowed is not None and not any(_is_allowed(one, allowed) for one in values)
        case TextSuffix(code, _):  # a system alone: codes are stored without the one that their binding implies
            return allowed_codes(resource_type, code) is not None
    return False


def _is_allowed(value: str, allowed: Allowed) -> bool:
    code = value.partition("\t")[0]
    return value == token_value(code, "") and allowed.contains(code)


def _reasons(resource_type: str, test: Test) -> Iterator[str]:
    match test:
        case Not(one):
            yield from _reasons(resource_type, one)
        case AllOf(tests) | AnyOf(tests):
            for one in tests:
                yield from _reasons(resource_type, one)
        case TextEquals(code, _) | TextSuffix(code, _) if _is_impossible(resource_type, test):
            allowed = allowed_codes(resource_type, code)
            if allowed is not None:
                yield f"{code} is {allowed.text}"


def allowed_codes(resource_type: str, code: str) -> Allowed | None:
    """The values that may be indexed under `code`; None if they are not known to be limited."""
    parameter = definitions().search_parameters(resource_type).get(code)
    source = sources(resource_type).get(code)
    if parameter is None or source is None or parameter.type != "token":
        return None
    found = _booleans(source) or [_allowed(path, resource_type) for path in source.paths]
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    tests = [one.contains for one in known]
    return Allowed(
        lambda text: any(test(text) for test in tests), " or ".join(dict.fromkeys(one.text for one in known))
    )


def _booleans(source: Source) -> list[Allowed | None]:
    return [_BOOLEAN] if source.members else []


def _allowed(path: ElementPath, resource_type: str) -> Allowed | None:
    """The values of one element."""
    if path.type_path == "boolean":
        return _BOOLEAN
    element_path = _definition(path, resource_type) if path.type_path == "code" else None
    bound = required_codes(element_path) if element_path is not None else None
    if bound is None:
        return None
    if bound.codes is None:
        return Allowed(bound.contains, "a media type")
    named = sorted(bound.codes)
    more = f" and {len(named) - _MOST_NAMED} more codes of {bound.url}" if len(named) > _MOST_NAMED else ""
    return Allowed(bound.contains, f"one of {', '.join(named[:_MOST_NAMED])}{more}")


def _definition(path: ElementPath, resource_type: str) -> str | None:
    """Where the element of a path is defined: `Patient.gender`."""
    type_path, found = resource_type, None
    for step in path.steps:
        if isinstance(step, str):
            element = definitions().element(type_path, step)
            if element is None:
                return None
            type_path, found = element.types[0], element.path
    return found


_BOOLEAN = Allowed(_BOOLEANS.__contains__, "true or false")
