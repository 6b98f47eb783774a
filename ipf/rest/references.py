"""References inside a resource that only the server can complete: names of other entries, and searches.

A transaction refers to a resource that has no id yet by its `fullUrl` (`urn:uuid:...`), or to one it does not know the
id of by a search (`Patient?identifier=a|b`).  Both are replaced before the resource is stored, wherever they stand,
contained resources and extensions included.

Source: https://hl7.org/fhir/R4/http.html#trules, https://hl7.org/fhir/R4/bundle.html#references
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ipf.ports import Json

_SEARCH = re.compile(r"[A-Z][A-Za-z]+\?.+", re.DOTALL)


def conditional_references(value: Any) -> Iterator[str]:
    """Every `Reference.reference` below `value` that is a search, with repeats."""
    if type(value) is list:
        for item in value:
            yield from conditional_references(item)
    elif type(value) is dict:
        for name, item in value.items():
            if type(item) is str:
                if name == "reference" and "?" in item and _SEARCH.fullmatch(item):
                    yield item
            else:
                yield from conditional_references(item)


def rewrite(resource: Json, names: Mapping[str, str], references: Mapping[str, str]) -> Json:
    """`resource` with every text that is a key of `names` replaced, and in `reference` also those of `references`.

    Parts that hold nothing to replace are shared with the original, which is never changed.  Links in narratives
    (`<a href="urn:uuid:...">`) are replaced as well.
    """
    rewritten: Json = _rewritten(resource, names, references)
    return rewritten


def _rewritten(value: Any, names: Mapping[str, str], references: Mapping[str, str]) -> Any:
    if type(value) is list:
        items = [
            (names.get(item, item) if type(item) is str else _rewritten(item, names, references)) for item in value
        ]
        return items if any(map(_differs, items, value)) else value
    if type(value) is not dict:
        return value
    changed: dict[str, Any] = {}
    for name, item in value.items():
        if type(item) is str:
            new = _text(name, item, names, references)
        elif type(item) is dict or type(item) is list:
            new = _rewritten(item, names, references)
        else:
            continue
        if new is not item:
            changed[name] = new
    return {**value, **changed} if changed else value


def _text(name: str, text: str, names: Mapping[str, str], references: Mapping[str, str]) -> str:
    if text in names:
        return names[text]
    if name == "reference":
        return references.get(text, text)
    if name == "div" and "urn:" in text:
        for full_url, reference in names.items():
            text = text.replace(f'"{full_url}"', f'"{reference}"')
    return text


def _differs(one: object, other: object) -> bool:
    return one is not other
