"""`_text` and `_content`: the value in, a condition on words out, and its evaluation on the words of one resource.

Words stand side by side when all must be there; `OR`, `AND` and `NOT` (or `-` before a word) in any case, parentheses,
and double quotes around words in a row.  `AND` binds more strongly than `OR`.  A comma separates alternatives, as in
every parameter.

Source: https://hl7.org/fhir/R4/search.html#text
"""

from __future__ import annotations

import re
from typing import Any

from ipf.fhir.index.words import words, words_of
from ipf.fhir.search.values.parameter import RequestedParameter, split, unescape
from ipf.ports.queries.predicates import FullText, Test, WordQuery

_TOKEN = re.compile(r'"[^"]*"?|[()]|[^\s()"]+')
_MOST = 100  # words and operators


def full_text(requested: RequestedParameter, value: str) -> Test:
    """The test of `_text` or `_content`.  Problem VALUE for a condition that cannot be read."""
    if requested.modifier:
        raise requested.unsupported()
    found = [_Reader(requested, unescape(one)).read() for one in split(value, ",") if one.strip()]
    if not found:
        raise requested.refuse("it has no value")
    return FullText(requested.parameter.code, found[0] if len(found) == 1 else WordQuery("or", (), tuple(found)))


class _Reader:
    """Reads one condition, token by token."""

    def __init__(self, requested: RequestedParameter, text: str) -> None:
        self._requested = requested
        self._tokens = _TOKEN.findall(text)
        self._at = 0
        if len(self._tokens) > _MOST:
            raise requested.refuse(f"it has more than {_MOST} words and operators")

    def read(self) -> WordQuery:
        """The whole condition."""
        found = self._alternatives()
        if self._at < len(self._tokens):
            raise self._requested.refuse("a parenthesis is closed that was not opened")
        if found is None:
            raise self._requested.refuse("it has no word")
        return found

    @property
    def _next(self) -> str:
        return self._tokens[self._at].lower() if self._at < len(self._tokens) else ""

    def _alternatives(self) -> WordQuery | None:
        found = [self._all()]
        while self._next == "or":
            self._at += 1
            found.append(self._all())
        return _joined("or", found)

    def _all(self) -> WordQuery | None:
        found: list[WordQuery | None] = []
        while self._next not in ("", ")", "or"):
            if self._next == "and":
                self._at += 1
            else:
                found.append(self._one())
        return _joined("and", found)

    def _one(self) -> WordQuery | None:
        token = self._tokens[self._at]
        self._at += 1
        if token == "(":
            found = self._alternatives()
            if self._next != ")":
                raise self._requested.refuse("a parenthesis is not closed")
            self._at += 1
            return found
        is_excluded = token.startswith("-") and len(token) > 1
        if token.lower() == "not" or token == "-":
            inner = self._one() if self._next not in ("", ")", "or", "and") else None
            return None if inner is None else WordQuery("not", (), (inner,))
        found_words = tuple(words(token))
        if not found_words:
            return None
        phrase = WordQuery("phrase", found_words)
        return WordQuery("not", (), (phrase,)) if is_excluded else phrase


def _joined(operator: Any, found: list[WordQuery | None]) -> WordQuery | None:
    """These in one; what has no word in it is left out."""
    parts = tuple(one for one in found if one is not None)
    return parts[0] if len(parts) == 1 else WordQuery(operator, (), parts) if parts else None


def has_words(test: FullText, resource: dict[str, Any]) -> bool:
    """Whether the words of a resource meet the condition."""
    return _meets(test.query, words_of(resource, test.code))


def _meets(query: WordQuery, found: list[str]) -> bool:
    match query.operator:
        case "phrase":
            wanted = list(query.words)
            first, length = wanted[0], len(wanted)
            return any(one == first and found[at : at + length] == wanted for at, one in enumerate(found))
        case "and":
            return all(_meets(one, found) for one in query.parts)
        case "or":
            return any(_meets(one, found) for one in query.parts)
    return not _meets(query.parts[0], found)
