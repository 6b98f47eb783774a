"""The walk over a QuestionnaireResponse beside its Questionnaire: link ids, order, nesting, numbers of answers.

What is missing counts only in a response that is `completed` or `amended`.
Source: https://hl7.org/fhir/R4/questionnaireresponse.html#notes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipf.fhir.profiles.comparing import equal_primitives, matches_pattern
from ipf.fhir.terminology import Terminology
from ipf.fhir.validation.checks.values import shorten
from ipf.fhir.validation.findings import Json, Run
from ipf.fhir.validation.proposals import nearest
from ipf.fhir.validation.questionnaires.answers import check_answer
from ipf.fhir.validation.questionnaires.enabling import Answers, Path
from ipf.fhir.validation.questionnaires.form import DEEPEST, Form, Question, items_of, option_key, value_of

_FINISHED = frozenset(("completed", "amended"))
_COMPUTED = ("calculatedExpression", "initialExpression")


@dataclass(slots=True)
class _Walk:
    """What the functions of one walk share."""

    form: Form
    answers: Answers
    terminology: Terminology
    run: Run
    finished: bool


def check_response(response: Json, form: Form, location: str, terminology: Terminology, run: Run) -> None:
    """Add the findings about a response to this form."""
    status = response.get("status")
    finished = isinstance(status, str) and status in _FINISHED
    walk = _Walk(form, Answers(response), terminology, run, finished)
    _check_items(walk, response, form.children, (), location, 0)


def _check_items(
    walk: _Walk, holder: Json, questions: dict[str, Question], path: Path, location: str, depth: int
) -> None:
    """The items of the response, of an item or of an answer."""
    if depth >= DEEPEST:
        return
    found: dict[str, list[tuple[Path, Json, str]]] = {}
    last = -1
    for number, item in enumerate(items_of(holder)):
        place, link_id = f"{location}.item[{number}]", item.get("linkId")
        if not isinstance(link_id, str):
            continue  # the structure of the response says that it is required
        question = questions.get(link_id)
        if question is None:
            _report_unknown(walk, questions, link_id, place)
            continue
        if question.place < last:
            walk.run.error("structure", f"the item '{link_id}' is not in the order of the questionnaire", place)
        last = max(last, question.place)
        found.setdefault(link_id, []).append(((*path, number), item, place))
    for link_id, question in questions.items():
        _check_question(walk, question, found.get(link_id, []), path, location, depth)


def _report_unknown(walk: _Walk, questions: dict[str, Question], link_id: str, place: str) -> None:
    if link_id in walk.form.by_id:
        text = f"the item '{link_id[:100]}' stands in the wrong place: the questionnaire has it elsewhere"
        walk.run.error("structure", text, place)
    else:
        text, known = f"the questionnaire has no item '{link_id[:100]}'", walk.form.by_id
        walk.run.error("structure", text, place, lambda: nearest(link_id, questions) or nearest(link_id, known))


def _check_question(
    walk: _Walk, question: Question, items: list[tuple[Path, Json, str]], path: Path, location: str, depth: int
) -> None:
    run, link_id = walk.run, question.link_id
    enabled = walk.answers.enabled(question, items[0][0] if items else (*path, -1))
    present = [one for one in items if _has_content(one[1])]
    if enabled is False:
        for _, _, place in present:
            run.error("business-rule", f"'{link_id}' has content, but its condition (enableWhen) does not hold", place)
        return
    count = len(present) if question.type == "group" else sum(len(items_of(one[1], "answer")) for one in items)
    if len(items) > 1 and not (question.type == "group" and question.repeats):
        rule = "its answers stand in one item" if question.repeats else "it does not repeat"
        run.error("structure", f"the item '{link_id}' occurs {len(items)} times; {rule}", items[1][2])
    else:
        _check_most(question, count, items, run)
    if enabled and walk.finished:
        _check_missing(question, count, items[0][2] if items else location, run)
    for own, item, place in items:
        _check_item(walk, question, item, own, place, depth)


def _check_missing(question: Question, count: int, place: str, run: Run) -> None:
    least = question.one("minOccurs")
    if question.type == "display":
        return
    if question.required and not count:
        what = "the group" if question.type == "group" else "an answer to"
        run.error("required", f"{what} '{question.link_id}' is required", place)
    elif isinstance(least, int) and count < least and (count or question.required):
        run.error("required", f"'{question.link_id}' has {count} answers, at least {least} are required", place)


def _check_most(question: Question, count: int, items: list[tuple[Path, Json, str]], run: Run) -> None:
    most = question.one("maxOccurs") if question.repeats else 1 if question.type != "group" else None
    if isinstance(most, int) and count > most and items:
        text = f"'{question.link_id}' has {count} answers, at most {most} are allowed"
        run.error("structure", text, items[-1][2])


def _check_item(walk: _Walk, question: Question, item: Json, path: Path, place: str, depth: int) -> None:
    run, answers = walk.run, items_of(item, "answer")
    if question.type in ("group", "display"):
        if answers:
            run.error(
                "structure", f"'{question.link_id}' is a {question.type}, which has no answers", f"{place}.answer"
            )
        _check_items(walk, item, question.children, path, place, depth + 1)
        return
    if items_of(item):
        text = f"the items below the question '{question.link_id}' belong into its answer (answer.item)"
        run.error("structure", text, f"{place}.item")
    for number, answer in enumerate(answers):
        where = f"{place}.answer[{number}]"
        check_answer(walk.form, question, answer, where, walk.terminology, run)
        _check_items(walk, answer, question.children, (*path, number), where, depth + 1)
    if len(answers) > 1 and question.exclusive:
        _check_exclusive(question, answers, place, run)
    if answers and question.item.get("readOnly") is True:
        _check_initial(question, answers, place, run)


def _check_exclusive(question: Question, answers: list[Json], place: str, run: Run) -> None:
    """An exclusive option ("none of these") is the only answer."""
    for number, answer in enumerate(answers):
        found = value_of(answer)
        if found is not None and option_key(*found) in question.exclusive:
            text = f"{shorten(found[1])} excludes the other answers to '{question.link_id}'"
            run.error("business-rule", text, f"{place}.answer[{number}]")


def _check_initial(question: Question, answers: list[Json], place: str, run: Run) -> None:
    """An answer that nobody may change is the initial value, where there is one and no expression computes another."""
    initial = [one[1] for one in map(value_of, items_of(question.item, "initial")) if one is not None]
    computed = any(str(one.get("url")).endswith(_COMPUTED) for one in items_of(question.item, "extension"))
    if not initial or computed:
        return
    given = [one[1] for one in map(value_of, answers) if one is not None]
    if len(given) != len(initial) or not all(map(_same, given, initial)):
        run.warn("business-rule", f"'{question.link_id}' is read-only, but its answer is not its initial value", place)


def _same(value: Any, initial: Any) -> bool:
    return matches_pattern(value, initial) if isinstance(initial, dict) else equal_primitives(value, initial)


def _has_content(item: Json) -> bool:
    """Whether an item has an answer, or one below it has."""
    pending = [item]
    while pending:
        one = pending.pop()
        if items_of(one, "answer"):
            return True
        pending += items_of(one)
    return False
