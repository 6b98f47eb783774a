"""Equivalence, `~`: collections in any order, texts without case, numbers to the precision of the coarser one.

Case is ignored in all languages (Unicode case folding).  A white space character is equivalent to any other one, but a
run of them is not collapsed.  Trailing zeroes do not count as precision.

Source: http://hl7.org/fhirpath/N1/#equivalent
"""

from __future__ import annotations

from collections.abc import Hashable
from decimal import Decimal
from typing import Any

from ipf.fhir.fhirpath.items import operators as op
from ipf.fhir.fhirpath.items import quantities, values
from ipf.fhir.fhirpath.items.nodes import FhirNode, Items, plain
from ipf.fhir.fhirpath.items.values import Date, DateTime, Quantity

_MOST_UNORDERED = 1000  # items that may have to be compared each with each
# https://www.unicode.org/Public/UCD/latest/ucd/PropList.txt, White_Space
_SPACE = dict.fromkeys(
    (*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000), " "
)


def equivalent(left: Items, right: Items) -> bool:
    """`left ~ right`."""
    if len(left) != len(right):
        return False
    return _in_any_order([plain(item) for item in left], [plain(item) for item in right])


def _in_any_order(left: list[Any], right: list[Any]) -> bool:
    if len(left) == 1:
        return _same(left[0], right[0])
    if sorted(map(repr, map(_key, left))) == sorted(map(repr, map(_key, right))):
        return True
    if len(left) > _MOST_UNORDERED:
        return False
    rest = list(right)
    for value in left:
        found = next((i for i, other in enumerate(rest) if _same(value, other)), None)
        if found is None:
            return False
        del rest[found]
    return True


def _same(a: Any, b: Any) -> bool:
    """Two values, or two parts of structures as JSON."""
    if type(a) is str and type(b) is str:
        return _text(a) == _text(b)
    if op.is_number(a) and op.is_number(b):
        return _same_numbers(Decimal(a), Decimal(b))
    if isinstance(a, Quantity) or isinstance(b, Quantity):
        left, right = op.as_quantity(a), op.as_quantity(b)
        found = quantities.nearest(left, right) if left is not None and right is not None else None
        return found is not None and _same_numbers(*found)
    if isinstance(a, (Date, DateTime)) and isinstance(b, (Date, DateTime)):
        return values.compare(a, b) == 0
    if type(a) is FhirNode and type(b) is FhirNode:
        return _same_json(a.value, b.value)
    return bool(_key(a) == _key(b))


def _same_json(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same_json(one, b[name]) for name, one in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and (not a or _in_any_order([FhirNode(one) for one in a], [FhirNode(one) for one in b]))
    return _same(plain(FhirNode(a)), plain(FhirNode(b))) if type(a) not in (dict, list) else False


def _same_numbers(a: Decimal, b: Decimal) -> bool:
    digits = min(_fraction_digits(a), _fraction_digits(b))
    return op.round_to(a, digits) == op.round_to(b, digits)


def _fraction_digits(value: Decimal) -> int:
    exponent = value.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _text(text: str) -> str:
    return text.casefold().translate(_SPACE)


def _key(value: Any) -> Hashable:
    """The same for most items that are equivalent; never the same for others."""
    if type(value) is str:
        return _text(value)
    if type(value) is FhirNode:
        return _json_key(value.value)
    found: Hashable = op.key_of(value)
    return found


def _json_key(value: Any) -> Hashable:
    if isinstance(value, dict):
        return tuple(sorted((name, _json_key(child)) for name, child in value.items()))
    if isinstance(value, list):
        return tuple(sorted((_json_key(child) for child in value), key=repr))
    return _text(value) if isinstance(value, str) else op.key_of(value)
