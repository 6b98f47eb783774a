"""Binary operators as closures.

Source: http://hl7.org/fhirpath/N1/#operations
"""

from __future__ import annotations

from collections.abc import Callable
from operator import ge, gt, le, lt

from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.evaluation.code import Code, Run, Test, Value, tested
from ipf.fhir.fhirpath.evaluation.context import Context, pairs
from ipf.fhir.fhirpath.items import operators as op
from ipf.fhir.fhirpath.items.equivalence import equivalent
from ipf.fhir.fhirpath.items.nodes import FhirNode, Items


def binary(operator: str, left: Code, right: Code) -> Code:
    """`left operator right`."""
    if operator in _LOGIC:
        return tested(_LOGIC[operator](left.truth(), right.truth()))  # not pure: a long chain counts its steps
    if operator == "&":
        return Code(_concatenation(left.single("&"), right.single("&")))
    if operator in _ARITHMETIC:
        return Code(_arithmetic(operator, left.single(operator), right.single(operator)))
    if operator in ("in", "contains"):
        item, items = (left, right) if operator == "in" else (right, left)
        return tested(_contained(operator, item.values(), items.values()))
    if operator in ("=", "!=") and type(right.constant) is str:
        return tested(_equals_text(left.values(), right.constant, operator == "="))
    return tested(_compared(operator, left.values(), right.values()))


_ARITHMETIC = frozenset(("+", "-", "*", "/", "div", "mod"))
_ORDERED: dict[str, Callable[[int, int], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


def _compared(operator: str, left: Run, right: Run) -> Test:
    if operator in ("~", "!~"):
        return _by_content(left, right, lambda a, b: equivalent(a, b) is (operator == "~"), in_any_order=True)
    if operator == "=":
        return _by_content(left, right, op.equal)
    if operator == "!=":
        return _by_content(left, right, lambda a, b: None if (same := op.equal(a, b)) is None else not same)
    holds = _ORDERED[operator]

    def ordered(context: Context, this: Items) -> bool | None:
        order = op.order(left(context, this), right(context, this), operator)
        return None if order is None else holds(order, 0)

    return ordered


def _by_content(
    left: Run, right: Run, holds: Callable[[Items, Items], bool | None], in_any_order: bool = False
) -> Test:
    """`in_any_order`: the items may be compared each with each."""

    def test(context: Context, this: Items) -> bool | None:
        a, b = left(context, this), right(context, this)
        context.spend_on(a, b)
        if in_any_order and len(a) == len(b):
            context.spend(pairs(len(a)))
        return holds(a, b)

    return test


def _equals_text(left: Run, wanted: str, same: bool) -> Test:
    other = [wanted]

    def test(context: Context, this: Items) -> bool | None:
        found = left(context, this)
        if len(found) == 1 and type(found[0]) is str:
            return (found[0] == wanted) is same
        answer = op.equal(found, other)
        return None if answer is None else answer is same

    return test


def _contained(operator: str, left: Run, right: Run) -> Test:
    def test(context: Context, this: Items) -> bool | None:
        item, items = left(context, this), right(context, this)
        if not item:
            return None
        if len(item) > 1:
            raise FhirPathError(f"'{operator}' needs one item to look for, got {len(item)}")
        context.spend_on(item * len(items), items)
        return any(op.equal_items(item[0], other) for other in items)

    return test


def _concatenation(left: Value, right: Value) -> Run:
    def run(context: Context, this: Items) -> Items:
        a, b = left(context, this), right(context, this)
        return context.text((a if type(a) is str else _as_text(a)) + (b if type(b) is str else _as_text(b)))

    return run


def _as_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, FhirNode):
        raise FhirPathError("'&' cannot join a structure")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _arithmetic(operator: str, left: Value, right: Value) -> Run:
    joins = operator == "+"

    def run(context: Context, this: Items) -> Items:
        a, b = left(context, this), right(context, this)
        if a is None or b is None:
            return []
        if joins and type(a) is str and type(b) is str:
            return context.text(a + b)
        return op.arithmetic(operator, a, b)

    return run


# An error in the second operand shows only where the first one does not decide.


def _and(first: Test, second: Test) -> Test:
    def test(context: Context, this: Items) -> bool | None:
        a = first(context, this)
        if a is False:
            return False
        b = second(context, this)
        return b if a or b is False else None

    return test


def _or(first: Test, second: Test) -> Test:
    def test(context: Context, this: Items) -> bool | None:
        a = first(context, this)
        if a:
            return True
        b = second(context, this)
        return b if a is False or b else None

    return test


def _xor(first: Test, second: Test) -> Test:
    def test(context: Context, this: Items) -> bool | None:
        a, b = first(context, this), second(context, this)
        return None if a is None or b is None else a is not b

    return test


def _implies(first: Test, second: Test) -> Test:
    def test(context: Context, this: Items) -> bool | None:
        a = first(context, this)
        if a is False:
            return True
        b = second(context, this)
        return b if a or b else None

    return test


_LOGIC: dict[str, Callable[[Test, Test], Test]] = {"and": _and, "or": _or, "xor": _xor, "implies": _implies}
