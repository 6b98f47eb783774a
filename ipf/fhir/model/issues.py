"""The text of an OperationOutcome that another server sent, for operators.

What failed, in the words of that server: the code, the diagnostics (or the text of the details), and the place.  The
texts may name a patient's resource; they are shown where the data of the message is shown.

Source: https://hl7.org/fhir/R4/operationoutcome.html; decisions "A FHIR server elsewhere".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ipf.errors import Problem
from ipf.fhir.model.json import loads

MOST_ISSUES = 5
MOST_CHARACTERS = 600
_RANK = {"fatal": 0, "error": 1, "warning": 2}


def issues_text(body: bytes) -> str:
    """The issues in one line, the most severe first, shortened; "" for any other body.

    Warnings and information are left out where there are errors.
    """
    try:
        found: Any = loads(body)
        issues = [one for one in found["issue"] if isinstance(one, dict)]
    except (Problem, KeyError, TypeError):
        return ""
    ranked = sorted(issues, key=lambda one: _RANK.get(str(one.get("severity")), 3))
    severe = [one for one in ranked if _RANK.get(str(one.get("severity")), 3) < 2] or ranked
    text = "; ".join(filter(None, map(_issue, severe[:MOST_ISSUES])))
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def _issue(issue: Mapping[str, Any]) -> str:
    code, what, places = _line(issue.get("code")), _what(issue), ", ".join(_places(issue))
    text = f"{code}: {what}" if code and what else code or what
    return f"{text} (at {places})" if places else text


def _what(issue: Mapping[str, Any]) -> str:
    details = issue.get("details")
    details = details if isinstance(details, dict) else {}
    codings = details.get("coding")
    shown = [one.get("display") or one.get("code") for one in _objects(codings)]
    return next((text for text in map(_line, (issue.get("diagnostics"), details.get("text"), *shown)) if text), "")


def _places(issue: Mapping[str, Any]) -> Iterator[str]:
    """Of R4 `expression`, of earlier servers `location`."""
    for name in ("expression", "location"):
        places = issue.get(name)
        if isinstance(places, list) and places:
            yield from filter(None, map(_line, places))
            return


def _objects(found: Any) -> list[Mapping[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _line(text: Any) -> str:
    """One line of printable text; empty for what is no text."""
    if not isinstance(text, str):
        return ""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
