"""A Questionnaire as questions by link id, with what its items and their extensions demand of an answer.

Source: https://hl7.org/fhir/R4/questionnaire.html, https://hl7.org/fhir/R4/questionnaire-profilelist.html
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ipf.fhir.terminology.valueset import Membership

Json = dict[str, Any]
DEEPEST = 100
_EXTENSIONS = "http://hl7.org/fhir/StructureDefinition/"
_ENABLE_EXPRESSION = "http://hl7.org/fhir/uv/sdc/StructureDefinition/sdc-questionnaire-enableWhenExpression"
VALUE_TYPES: dict[str, tuple[str, ...]] = {
    "boolean": ("Boolean",),
    "decimal": ("Decimal",),
    "integer": ("Integer",),
    "date": ("Date",),
    "dateTime": ("DateTime",),
    "time": ("Time",),
    "string": ("String",),
    "text": ("String",),
    "url": ("Uri",),
    "choice": ("Coding",),
    "open-choice": ("Coding", "String"),
    "attachment": ("Attachment",),
    "reference": ("Reference",),
    "quantity": ("Quantity",),
}
"""Item type -> the types that `answer.value[x]` may have."""


@dataclass(slots=True)
class Question:
    """One item of a Questionnaire.  `extensions`: the values of its extensions of R4, by the last part of their url.
    `place` counts it among its siblings; `children` are in order.  `exclusive`: keys of options that stand alone."""

    link_id: str
    type: str
    item: Json
    place: int
    children: dict[str, Question] = field(default_factory=dict)
    extensions: dict[str, list[Any]] = field(default_factory=dict)
    options: list[tuple[str, Any]] = field(default_factory=list)
    option_keys: frozenset[Hashable] = frozenset()
    exclusive: frozenset[Hashable] = frozenset()
    value_types: tuple[str, ...] = ()
    uncertain: bool = False

    @property
    def required(self) -> bool:
        """Whether an answer, or the group, must be there while the item is enabled."""
        return self.item.get("required") is True

    @property
    def repeats(self) -> bool:
        """Whether there may be several answers, or several of the group."""
        return self.item.get("repeats") is True

    def one(self, extension: str) -> Any:
        """The value of an extension; None without it."""
        return next(iter(self.extensions.get(extension, ())), None)


@dataclass(slots=True)
class Form:
    """A Questionnaire: its items, and its item of each link id.  `value_sets`: those in it that were expanded."""

    resource: Json
    children: dict[str, Question]
    by_id: dict[str, Question]
    value_sets: dict[str, Membership | None] = field(default_factory=dict)


def read_form(questionnaire: Json) -> Form:
    """The form of a Questionnaire resource; of several items with one link id the first counts."""
    by_id: dict[str, Question] = {}
    return Form(questionnaire, _children(questionnaire, by_id, 0), by_id)


def items_of(value: Any, name: str = "item") -> list[Json]:
    """The objects of a list member; what has another form is left to the check of the structure."""
    found = value.get(name) if isinstance(value, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def value_of(holder: Json, stem: str = "value") -> tuple[str, Any] | None:
    """(type, value) of a choice such as `value[x]`; the value is None when it has only extensions."""
    for name in holder:
        bare = name.removeprefix("_")
        if bare.startswith(stem) and bare[len(stem) :][:1].isupper():
            return bare[len(stem) :], holder.get(bare)
    return None


def option_key(kind: str, value: Any) -> Hashable:
    """The same for an option and an answer that chooses it: of a Coding its system and code."""
    if isinstance(value, dict):
        return kind, str(value.get("system")), str(value.get("code")), str(value.get("reference"))
    return kind, str(value) if isinstance(value, (str, list)) else value


def _value_types(question: Question) -> tuple[str, ...]:
    """The types of its answers; those of its options count too, since a choice may be among texts or dates."""
    kinds = VALUE_TYPES.get(question.type, ())
    if question.type not in ("choice", "open-choice") or not question.options:
        return kinds
    free = ("String",) if question.type == "open-choice" else ()
    return (*dict.fromkeys([*(kind for kind, _ in question.options), *free]),)


def _children(holder: Json, by_id: dict[str, Question], depth: int) -> dict[str, Question]:
    found: dict[str, Question] = {}
    for item in items_of(holder) if depth < DEEPEST else ():
        link_id = item.get("linkId")
        if not isinstance(link_id, str) or link_id in by_id:
            continue
        question = Question(link_id, str(item.get("type")), item, len(found), extensions=dict(_extensions(item)))
        by_id[link_id] = found[link_id] = question
        question.options = [
            one for one in (value_of(each) for each in items_of(item, "answerOption")) if one is not None
        ]
        question.value_types = _value_types(question)
        question.option_keys = frozenset(option_key(*one) for one in question.options)
        question.exclusive = frozenset(option_key(*one) for one in _exclusive(item))
        question.uncertain = any(one.get("url") == _ENABLE_EXPRESSION for one in items_of(item, "extension"))
        question.children = _children(item, by_id, depth + 1)
    return found


def _exclusive(item: Json) -> Iterator[tuple[str, Any]]:
    for option in items_of(item, "answerOption"):
        found = value_of(option)
        flags = dict(_extensions(option)).get("optionExclusive", [])
        if found is not None and True in flags:
            yield found


def _extensions(item: Json) -> Iterator[tuple[str, list[Any]]]:
    values: dict[str, list[Any]] = {}
    for one in items_of(item, "extension"):
        url, value = one.get("url"), value_of(one)
        if isinstance(url, str) and url.startswith(_EXTENSIONS) and value is not None:
            values.setdefault(url.removeprefix(_EXTENSIONS).removeprefix("questionnaire-"), []).append(value[1])
    return iter(values.items())
