"""The check of one answer: its type, the options, the limits.

Sources: https://hl7.org/fhir/R4/questionnaire-definitions.html#Questionnaire.item.answerOption;
http://hl7.org/fhir/StructureDefinition/minLength, regex, minValue, maxValue, maxDecimalPlaces, maxSize, mimeType and
questionnaire-unitOption, questionnaire-unitValueSet, questionnaire-referenceResource
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from ipf.fhir.model.regex import PatternError, pattern
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.valueset import Membership, expansion_of, facts_of
from ipf.fhir.validation.checks.references import target_type
from ipf.fhir.validation.checks.values import shorten
from ipf.fhir.validation.findings import Json, Run
from ipf.fhir.validation.proposals import code_meant, nearest
from ipf.fhir.validation.questionnaires.enabling import comparable, same_coding
from ipf.fhir.validation.questionnaires.form import Form, Question, items_of, option_key, value_of

_NUMBERS = {"Decimal", "Integer"}


def check_answer(
    form: Form, question: Question, answer: Json, location: str, terminology: Terminology, run: Run
) -> None:
    """Add the findings about one answer of a question."""
    found = value_of(answer)
    if found is None:
        return
    kind, value = found
    place = f"{location}.value.ofType({kind[0].lower() + kind[1:] if kind[:1] in 'BDISTU' else kind})"
    allowed = question.value_types
    if kind not in allowed:
        expected = " or ".join(f"value{one}" for one in allowed)
        text = f"an answer to '{question.link_id}' ({question.type}) is value{kind}, expected is {expected}"
        run.error("structure", text, place, lambda: f"value{allowed[0]}" if {kind, *allowed} == _NUMBERS else None)
        return
    if value is None:
        return  # a value that is unknown, with an extension
    _check_choice(form, question, kind, value, place, terminology, run)
    _check_limits(question, value, place, run)
    if isinstance(value, str):
        _check_text(question, value, place, run)
    elif isinstance(value, dict):
        _check_object(question, kind, value, place, run)
        if kind == "Quantity" and isinstance(value_set := question.one("unitValueSet"), str):
            _check_member(form, question, value_set, value, place, terminology, run)


def _check_choice(
    form: Form, question: Question, kind: str, value: Any, place: str, terminology: Terminology, run: Run
) -> None:
    if kind == "String" and question.type == "open-choice":
        return
    if question.options and question.type in ("choice", "open-choice", "integer", "date", "time", "string", "text"):
        if option_key(kind, value) not in question.option_keys:
            text = f"{shorten(value)} is no option of '{question.link_id}'"
            run.error(
                "code-invalid", text, place, lambda: _nearest_option(value, [option for _, option in question.options])
            )
    elif kind == "Coding" and isinstance(value_set := question.item.get("answerValueSet"), str):
        _check_member(form, question, value_set, value, place, terminology, run)


def _nearest_option(value: Any, options: list[Any]) -> str | None:
    if isinstance(value, dict):
        own = str(value.get("code", ""))
        codings = [one for one in options if isinstance(one, dict)]
        same = next((one for one in codings if one.get("code") == own), None)
        if same is not None:
            return shorten(same)
        by_display = {str(one.get("display")): str(one.get("code")) for one in codings}
        return by_display.get(own) or nearest(own, (str(one.get("code")) for one in codings))
    return nearest(value, (str(one) for one in options)) if isinstance(value, str) else None


def _check_member(
    form: Form, question: Question, url: str, value: Json, place: str, terminology: Terminology, run: Run
) -> None:
    members = _members(form, url, terminology)
    code, system = value.get("code"), value.get("system")
    system = system if isinstance(system, str) else None
    if not isinstance(code, str):
        run.error("code-invalid", f"an answer to '{question.link_id}' needs a code of the value set {url}", place)
        return
    known = None if members is None else members.contains(system, code)
    if known is None:
        run.note("not-supported", f"not checked: the value set {url} is not completely loaded", place)
    elif not known:
        text = f"{shorten(value)} is no answer to '{question.link_id}': it is not in the value set {url}"
        run.error("code-invalid", text, place, lambda: code_meant(members, system, code))


def _members(form: Form, url: str, terminology: Terminology) -> Membership | None:
    if not url.startswith("#"):
        return terminology.members(url)
    if url not in form.value_sets:
        contained = (one for one in items_of(form.resource, "contained") if one.get("id") == url[1:])
        found = next((one for one in contained if one.get("resourceType") == "ValueSet"), None)
        expanded = None if found is None else expansion_of(facts_of(found), terminology.system, terminology.members)
        form.value_sets[url] = expanded
    return form.value_sets[url]


def _check_limits(question: Question, value: Any, place: str, run: Run) -> None:
    for name, sign, words in (("minValue", -1, "at least"), ("maxValue", 1, "at most")):
        limit = question.one(name)
        pair = None if limit is None else comparable(value, limit)
        if pair is not None and (pair[0] > pair[1]) - (pair[0] < pair[1]) == sign:
            run.error("value", f"an answer to '{question.link_id}' must be {words} {shorten(limit)}", place)
    places = question.one("maxDecimalPlaces")
    if isinstance(places, int) and isinstance(value, (Decimal, float)):
        exponent = Decimal(str(value)).as_tuple().exponent
        if isinstance(exponent, int) and -exponent > places:
            run.error("value", f"an answer to '{question.link_id}' has at most {places} decimal places", place)


def _check_text(question: Question, value: str, place: str, run: Run) -> None:
    longest, shortest = question.item.get("maxLength"), question.one("minLength")
    if isinstance(longest, int) and len(value) > longest:
        run.error("too-long", f"an answer to '{question.link_id}' has at most {longest} characters", place)
    if isinstance(shortest, int) and len(value) < shortest:
        run.error("value", f"an answer to '{question.link_id}' has at least {shortest} characters", place)
    expression = question.one("regex")
    if isinstance(expression, str):
        try:
            if not pattern(expression).is_all_of(value):
                run.error("value", f"an answer to '{question.link_id}' must match {expression[:200]}", place)
        except PatternError as error:
            run.note("not-supported", f"not checked: {error}", place)


def _size(attachment: Json) -> int | None:
    """The bytes of an attachment: those of its data, else what it says; None if it does not say it."""
    data, size = attachment.get("data"), attachment.get("size")
    if isinstance(data, str):
        digits = len(data) - sum(map(data.count, " \t\r\n="))
        return digits * 3 // 4
    return size if isinstance(size, int) else None


def _check_object(question: Question, kind: str, value: Json, place: str, run: Run) -> None:
    if kind == "Reference":
        kinds = question.extensions.get("referenceResource", [])
        named = target_type(str(value.get("reference", ""))) or value.get("type")
        if kinds and named is not None and named not in kinds:
            run.error("structure", f"'{question.link_id}' takes a reference to {' or '.join(map(str, kinds))}", place)
    elif kind == "Quantity":
        units = [one for one in question.extensions.get("unitOption", []) if isinstance(one, dict)]
        if units and not any(same_coding(one, value) for one in units):
            text = f"the unit of '{question.link_id}' must be {shorten(units)}"
            run.error("code-invalid", text, place, lambda: _nearest_option(value, units))
    elif kind == "Attachment":
        kinds, content = question.extensions.get("mimeType", []), value.get("contentType")
        if kinds and content not in kinds:
            run.error("value", f"'{question.link_id}' takes an attachment of {' or '.join(map(str, kinds))}", place)
        size, most = _size(value), question.one("maxSize")
        if size is not None and isinstance(most, (int, Decimal)) and size > most * 1024 * 1024:
            run.error("too-long", f"an attachment of '{question.link_id}' has at most {most} MB", place)
