"""`enableWhen`: whether an item of a response is enabled.

A condition looks at the answers of its question that are nearest: below the innermost item around both, so that each
repetition of a group has its own.  It holds when one of these answers satisfies it.
Source: https://hl7.org/fhir/R4/questionnaire-definitions.html#Questionnaire.item.enableWhen
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ipf.fhir import ucum
from ipf.fhir.model.dates import date_range
from ipf.fhir.profiles.comparing import equal_primitives
from ipf.fhir.validation.questionnaires.form import DEEPEST, Json, Question, items_of, value_of

Path = tuple[int, ...]
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_Answer = tuple[str, Any]


class Answers:
    """The answers of one response, by link id, below each item that holds them."""

    def __init__(self, response: Json) -> None:
        self._found: dict[tuple[str, Path], list[_Answer]] = {}
        self._known: dict[tuple[int, Path], bool | None] = {}
        self._collect(response, (), 0)

    def enabled(self, question: Question, path: Path) -> bool | None:
        """Whether an item at this place is enabled; None when that cannot be told, as of an expression of SDC."""
        if question.uncertain:
            return None
        conditions = items_of(question.item, "enableWhen")
        if not conditions:
            return True
        results = [self._holds(one, path) for one in conditions]
        decisive = question.item.get("enableBehavior") == "any"
        return decisive if decisive in results else None if None in results else not decisive

    def _holds(self, condition: Json, path: Path) -> bool | None:
        link_id = str(condition.get("question"))
        end = next((n for n in range(len(path), 0, -1) if (link_id, path[:n]) in self._found), 0)
        key = (id(condition), path[:end])
        if key not in self._known:
            self._known[key] = _satisfied(condition, self._found.get((link_id, path[:end]), []))
        return self._known[key]

    def _collect(self, holder: Json, path: Path, depth: int) -> None:
        for number, item in enumerate(items_of(holder) if depth < DEEPEST else ()):
            own, link_id = (*path, number), item.get("linkId")
            answers = items_of(item, "answer")
            if isinstance(link_id, str):
                given = [one for one in map(value_of, answers) if one is not None]
                for end in range(len(own)):
                    self._found.setdefault((link_id, own[:end]), []).extend(given)
            self._collect(item, own, depth + 1)
            for place, answer in enumerate(answers):
                self._collect(answer, (*own, place), depth + 1)


def _satisfied(condition: Json, answers: list[_Answer]) -> bool | None:
    """None for `!=` without an answer, which servers and forms read in both ways."""
    wanted, mark = value_of(condition, "answer"), condition.get("operator")
    if mark == "exists":
        return bool(answers) is (wanted is None or wanted[1] is not False)
    if wanted is None:
        return False
    if mark == "!=":
        return None if not answers else not any(_equal(one, wanted) for one in answers)
    if mark == "=":
        return any(_equal(one, wanted) for one in answers)
    order = _ORDERS.get(str(mark))
    return order is not None and any(_in_order(order, one[1], wanted[1]) for one in answers)


def _equal(answer: _Answer, wanted: _Answer) -> bool:
    a, b = answer[1], wanted[1]
    if answer[0] == "Coding" and wanted[0] == "Coding":
        return same_coding(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        pair = comparable(a, b)
        return bool(pair[0] == pair[1] if pair is not None else a.get("reference", 0) == b.get("reference", 1))
    return equal_primitives(a, b)


def same_coding(a: Any, b: Any) -> bool:
    """Whether two Codings have the same system and code."""
    both = isinstance(a, dict) and isinstance(b, dict)
    return bool(both and (a.get("system"), a.get("code")) == (b.get("system"), b.get("code")))


def _in_order(order: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    pair = comparable(a, b)
    return pair is not None and order(*pair)


def comparable(a: Any, b: Any) -> tuple[Any, Any] | None:
    """Two values that can be ordered: numbers, dates, times, quantities in units of one dimension; else None."""
    if isinstance(a, dict) and isinstance(b, dict):
        return _quantities(a, b)
    if isinstance(a, bool) or isinstance(b, bool):
        return None
    if isinstance(a, (int, float, Decimal)) and isinstance(b, (int, float, Decimal)):
        return Decimal(str(a)), Decimal(str(b))
    if not isinstance(a, str) or not isinstance(b, str):
        return None
    if a[:4].isdigit() and b[:4].isdigit():
        first, second = date_range(a), date_range(b)
        return None if first is None or second is None else (first[0], second[0])
    return a, b


def _quantities(a: Json, b: Json) -> tuple[Any, Any] | None:
    pair = comparable(a.get("value"), b.get("value"))
    if pair is None:
        return None
    units = [one.get("code") or one.get("unit") for one in (a, b)]
    if units[0] == units[1]:
        return pair
    converted = ucum.convert(pair[0], str(units[0]), str(units[1]))
    return None if converted is None else (converted, pair[1])
