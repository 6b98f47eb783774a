"""matches(), matchesFull() and replaceMatches(): regular expressions, run by RE2 (`ipf/fhir/model/regex.py`).

Source: http://hl7.org/fhirpath/N1/#matchesregex-string--boolean
"""

from __future__ import annotations

import re

import re2

from ipf.fhir.fhirpath.errors import BudgetError, FhirPathError
from ipf.fhir.fhirpath.items.operators import MAX_TEXT
from ipf.fhir.model.regex import Pattern, PatternError, pattern

_MADE_IN_A_STEP = 16  # instructions of RE2 that are made, and that are run, in the time of a step
_RUN_IN_A_STEP = 64
_GROUP = re.compile(r"\$(?:(\d{1,2})|\{(\w+)\})", re.ASCII)


def search(text: str, regex: str, flags: str = "") -> bool:
    """Whether the pattern matches any part of the text.  `flags`: `i` ignores case, `m` lets ^ and $ match lines."""
    try:
        return _compiled(regex, flags).is_in(text)
    except PatternError as error:
        raise FhirPathError(f"matches(): {error}") from None


def full_match(text: str, regex: str, flags: str = "") -> bool:
    """Whether the pattern matches the whole text."""
    try:
        return _compiled(regex, flags).is_all_of(text)
    except PatternError as error:
        raise FhirPathError(f"matchesFull(): {error}") from None


def replace(text: str, regex: str, new: str, flags: str = "") -> str:
    """The text with each match replaced by `new`, in which `$1` and `${name}` are groups of the pattern."""
    if not regex:
        return text
    if (len(text) + 1) * max(len(new), 1) > MAX_TEXT:
        raise BudgetError(f"the budget of {MAX_TEXT} characters of a text is used up")
    try:
        compiled = _compiled(regex, flags)
        _check_groups(compiled, new)
        return compiled.replace(text, lambda match: _GROUP.sub(lambda group: _value(match, group), new))
    except PatternError as error:
        raise FhirPathError(f"replaceMatches(): {error}") from None


def steps(text: str, regex: str, flags: str | None = "") -> int:
    """The steps that a match counts: the work of RE2, and that of making a pattern that is not yet known."""
    if not regex:
        return 1
    try:
        size = _compiled(regex, flags or "").size
        return 1 + size // _MADE_IN_A_STEP + len(text) * size // _RUN_IN_A_STEP
    except PatternError:
        return 1


def steps_of_replace(text: str, regex: str, new: str | None, flags: str | None = "") -> int:
    """The same for `replace`."""
    return steps(text, regex, flags)


def _compiled(regex: str, flags: str) -> Pattern:
    if not flags:
        return pattern(regex)
    if not set(flags) <= {"i", "m"}:
        raise PatternError("the flags of a regular expression are i and m")
    return pattern(f"(?{flags}){regex}")


def _check_groups(compiled: Pattern, new: str) -> None:
    for group in _GROUP.finditer(new):
        if _key(group) not in compiled.groups:
            raise FhirPathError(f"replaceMatches(): the regular expression has no group {group[0]}")


def _value(match: re2._Match, group: re.Match[str]) -> str:
    value: str | None = match.group(_key(group))
    return value or ""


def _key(group: re.Match[str]) -> int | str:
    """The number or name of a group, from `$1`, `${1}` or `${name}`."""
    name = group[1] or group[2]
    return int(name) if name.isdigit() else name
