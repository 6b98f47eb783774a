"""Invariants: FHIRPath that is compiled once, and evaluated only where the result depends on the value.

Most invariants concern elements that most resources lack.  Each is evaluated once on an object without the elements
that it names; the result holds for every such object.  A few invariants of every element or resource are implemented
in Python (`NATIVE`); a test shows that both give the same result.

Source: https://hl7.org/fhir/R4/conformance-rules.html#constraints
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ipf.fhir.fhirpath import Expression, FhirNode, FhirPathError, Host, compile, parse
from ipf.fhir.fhirpath.items import operators
from ipf.fhir.fhirpath.language import ast
from ipf.fhir.model.definitions import definitions
from ipf.fhir.validation.findings import ERROR, WARNING, Check, Json, Run

BEST_PRACTICE = "http://hl7.org/fhir/StructureDefinition/elementdefinition-bestpractice"
_PER_ITEM = frozenset(("where", "exists", "all", "select", "repeat", "any", "trace", "ofType", "as", "is"))
_ANYTHING = frozenset(("children", "descendants", "hasValue", "getValue", "extension", "resolve", "htmlChecks", "type"))
_LINK = re.compile(r"[\"'](#[^\"'\s]+)[\"']")
_OUTER_VARIABLES = frozenset(("resource", "rootResource", "context"))


def invariant(declared: Json, kind: str, hosts: Callable[[Run], Host]) -> Check | None:
    """The check of one constraint on type `kind`; None when it has no expression or other checks cover it."""
    key, text = declared["key"], declared.get("expression")
    if not text or key in STRUCTURAL:
        return None
    severity = ERROR if declared["severity"] == "error" else WARNING
    words = f"{key}: {declared.get('human') or text}"
    native = NATIVE.get(key)
    if native is not None and native[0] == text:
        return _native(native[1], severity, words)
    try:
        expression = compile(text, base_type=kind)
    except FhirPathError as wrong:
        return _not_evaluated(f"{key} cannot be evaluated: {wrong}")
    return _evaluated(expression, _RequiredNames(expression, kind), severity, words, hosts)


def _not_evaluated(text: str) -> Check:
    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        run.note("not-supported", text, location)

    return check


def _native(test: Callable[[Any, Run], bool], severity: str, words: str) -> Check:
    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        if not test(value, run):
            run.add(severity, "invariant", words, location)

    return check


def _evaluated(
    expression: Expression, required: _RequiredNames, severity: str, words: str, hosts: Callable[[Run], Host]
) -> Check:
    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        if type(value) is dict:
            if required.holds and required.names.isdisjoint(value):
                return
            focus: Any = value
        else:
            focus = FhirNode(value, expression.base_type, extra)
        scope = run.scope
        variables = {"resource": scope.resource, "rootResource": scope.root}
        try:
            result = operators.truth(run.evaluate(expression, focus, variables, hosts(run), location))
        except FhirPathError as wrong:
            if run.left.used_up_at is not None:
                return  # one finding says so
            run.note("not-supported", f"{words} - not evaluated: {wrong}", location)
            return
        if result is False:
            run.add(severity, "invariant", words, location)

    return check


class _RequiredNames:
    """`holds`: the expression is true of every object that has none of the members `names`."""

    def __init__(self, expression: Expression, kind: str) -> None:
        found: set[str] = set()
        self.names: frozenset[str] = frozenset()
        self.holds = False
        if _first_names(parse(expression.text), found):
            self.names = frozenset(_json_names(kind, found))
            empty = {"resourceType": kind} if kind in definitions().resource_types else {"id": "x"}
            try:
                result = expression.evaluate(empty, {"resource": empty, "rootResource": empty})
                self.holds = operators.truth(result) is not False
            except FhirPathError:
                self.holds = False


def _json_names(kind: str, names: set[str]) -> set[str]:
    found: set[str] = set()
    for name in names:
        element = definitions().element(kind, name)
        choices = (
            {element.json_name(each) for each in element.types} if element is not None and element.choice else {name}
        )
        found |= choices | {f"_{each}" for each in choices}
    return found


def _first_names(node: ast.Node, found: set[str]) -> bool:
    """Collect the names that the expression begins with; False when it also uses a variable of the resource."""
    match node:
        case ast.Literal():
            return True
        case ast.Variable(name):
            return name not in _OUTER_VARIABLES
        case ast.Member(None, name):
            found.add(name)
            return not _is_type(name)  # a type alone is the whole object
        case ast.Member(ast.Member(None, kind), name) if _is_type(kind):
            found.add(name)  # `Patient.x` begins with the object's own type
            return True
        case ast.Member(focus, _) if focus is not None:
            return _first_names(focus, found)
        case ast.Function(focus, name, args):
            if focus is None and (name in _ANYTHING or name in _PER_ITEM):
                return False
            inner = () if name in _PER_ITEM and _is_empty_without_names(focus) else args
            return (focus is None or _first_names(focus, found)) and all(_first_names(each, found) for each in inner)
        case ast.Index(focus, _):
            return _first_names(focus, found)
        case ast.Unary(_, operand) | ast.TypeTest(_, operand, _):
            return _first_names(operand, found)
        case ast.Binary(_, left, right):
            return _first_names(left, found) and _first_names(right, found)
    return False


def _is_empty_without_names(node: ast.Node | None) -> bool:
    """Whether the node has no item where the names that it begins with are absent."""
    match node:
        case ast.Member() | ast.This():
            return True
        case ast.Function(focus, name, _):
            return name in _PER_ITEM and _is_empty_without_names(focus)
        case ast.Index(focus, _):
            return _is_empty_without_names(focus)
    return False


def _is_type(name: str) -> bool:
    return name[:1].isupper() and definitions().is_type(name)


# ------------------------------------------------------------------------------------------------ checked in Python


def _no_nested_contained(resource: Any, run: Run) -> bool:
    return not any("contained" in one for one in _contained(resource))


def _no_contained_version(resource: Any, run: Run) -> bool:
    return not any(one.get("meta", {}).keys() & {"versionId", "lastUpdated"} for one in _contained(resource))


def _no_contained_security(resource: Any, run: Run) -> bool:
    return not any("security" in one.get("meta", {}) for one in _contained(resource))


def _contained(resource: Any) -> list[Json]:
    found = resource.get("contained")
    return [
        one
        for one in (found if isinstance(found, list) else ())
        if isinstance(one, dict) and isinstance(one.get("meta", {}), dict)
    ]


def _has_narrative(resource: Any, run: Run) -> bool:
    text = resource.get("text")
    return isinstance(text, dict) and "div" in text


def _contained_is_used(resource: Any, run: Run) -> bool:
    contained = _contained(resource)
    if not contained or not run.policy.contained:
        return True
    used = _local_references(resource)
    return all(f"#{one.get('id')}" in used or _points_back(one) for one in contained)


def _local_references(value: Any) -> set[str]:
    found: set[str] = set()
    open_ends = [value]
    while open_ends:
        one = open_ends.pop()
        if isinstance(one, dict):
            open_ends += one.values()
        elif isinstance(one, list):
            open_ends += one
        elif isinstance(one, str):
            if one[:1] == "#":
                found.add(one)
            elif one[:4] == "<div":
                found.update(_LINK.findall(one))
    return found


def _points_back(contained: Json) -> bool:
    return "#" in _local_references(contained)


def _local_reference_resolves(reference: Any, run: Run) -> bool:
    text = reference.get("reference")
    if not isinstance(text, str) or text[:1] != "#":
        return True
    return text == "#" or run.scope.contained.find(text[1:]) is not None


def _exists_has_boolean(value: Any, run: Run) -> bool:
    return value.get("operator") != "exists" or "answerBoolean" in value


STRUCTURAL = frozenset(("ele-1", "ext-1", "txt-1", "txt-2"))  # checked by object_check and type_rules
_DOM_3 = (
    "contained.where((('#'+id in (%resource.descendants().reference | %resource.descendants().as(canonical) | "
    "%resource.descendants().as(uri) | %resource.descendants().as(url))) or "
    "descendants().where(reference = '#').exists() or descendants().where(as(canonical) = '#').exists() or "
    "descendants().where(as(canonical) = '#').exists()).not()).trace('unmatched', id).empty()"
)
_REF_1 = (
    "reference.startsWith('#').not() or "
    "(reference.substring(1).trace('url') in %rootResource.contained.id.trace('ids'))"
)
NATIVE: dict[str, tuple[str, Callable[[Any, Run], bool]]] = {
    "dom-2": ("contained.contained.empty()", _no_nested_contained),
    "dom-3": (_DOM_3, _contained_is_used),
    "dom-4": ("contained.meta.versionId.empty() and contained.meta.lastUpdated.empty()", _no_contained_version),
    "dom-5": ("contained.meta.security.empty()", _no_contained_security),
    "dom-6": ("text.`div`.exists()", _has_narrative),
    "ref-1": (_REF_1, _local_reference_resolves),
    # As written it tests for System.Boolean, which no FHIR element is; later releases corrected it.
    "que-7": ("operator = 'exists' implies (answer is Boolean)", _exists_has_boolean),
}
"""Key -> (the expression that it replaces, the test)."""
