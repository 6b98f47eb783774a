"""Links to other entries of a transaction, replaced by `Type/id`.

What arrives is a resource and the names of entries; what leaves is a copy with the links replaced.  The type of an
element decides: Reference (its `reference`), uri, url, oid, uuid, and `href` and `src` in narratives.  Texts, codes,
ids, the values of identifiers, and canonicals stay.

Two kinds of uri stay as well.  An entry whose `fullUrl` is the canonical `url` of its resource is meant by that text
wherever definitions are named (`Extension.url`, `Coding.system`, `StructureDefinition.url`), so it is replaced in
references and narratives only.  In a Bundle that is stored as a resource, the `fullUrl` of its own entries mean these.

Source: https://hl7.org/fhir/R4/http.html#trules, https://hl7.org/fhir/R4/bundle.html#references
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape, unescape
from typing import Any

from ipf.fhir.model.element_types import member_type, object_type, type_of
from ipf.ports import Json

LINK_TYPES = frozenset({"uri", "url", "oid", "uuid"})
"""The primitive types whose values are links."""

_TAG = re.compile(r"""<(?:a|img)\s(?:[^<>"']|"[^"]*"|'[^']*')*>""")
_ATTRIBUTE = re.compile(r"""(\s(?:href|src)\s*=\s*)("[^"]*"|'[^']*')|"[^"]*"|'[^']*'""")


@dataclass(frozen=True, slots=True)
class Links:
    """The names of entries -> `Type/id`.

    `uris`: in elements of type uri, url, oid and uuid.  `narratives`: in narratives.  `references`: in
    `Reference.reference`; it has all names of the other two.  `searches`: conditional references.
    """

    references: Mapping[str, str]
    uris: Mapping[str, str]
    narratives: Mapping[str, str]
    searches: Mapping[str, str] = field(default_factory=dict)

    def outside(self, bundle: Json) -> Links:
        """The links in a stored Bundle: not those to its own entries, nor relative ones."""
        entries = bundle.get("entry")
        own = {one.get("fullUrl") for one in entries if type(one) is dict} if type(entries) is list else set()
        names = {name: to for name, to in self.narratives.items() if name not in own}
        return Links(names, {name: to for name, to in self.uris.items() if name in names}, names, self.searches)


def rewrite(resource: Json, links: Links) -> Json:
    """A copy of the resource with the links replaced.

    Unchanged parts are shared with the original, which is not modified.
    """
    return _in_object(type_of(resource), resource, links)


def _in_object(path: str, value: Json, links: Links) -> Json:
    if path == "Bundle":
        links = links.outside(value)
    changed: Json | None = None
    known, searches = links.references, links.searches
    for name, item in value.items():
        if type(item) is str and item not in known and item not in searches and name != "div":
            continue  # the most frequent case
        new = _in_member(path, name, item, links)
        if new is not item:
            changed = dict(value) if changed is None else changed
            changed[name] = new
    return value if changed is None else changed


def _in_member(path: str, name: str, item: Any, links: Links) -> Any:
    kind = type(item)
    if kind is str:
        return _in_text(path, name, item, links)
    if kind is dict:
        return _in_object(object_type(path, name, item), item, links)
    return _in_list(path, name, item, links) if kind is list else item


def _in_list(path: str, name: str, items: list[Any], links: Links) -> list[Any]:
    new = [_in_member(path, name, item, links) for item in items]
    return new if any(one is not item for one, item in zip(new, items, strict=True)) else items


def _in_text(path: str, name: str, text: str, links: Links) -> str:
    if name == "div" and path == "Narrative":
        return _in_narrative(text, links.narratives)
    found = links.references.get(text) or links.searches.get(text)
    if found is None:
        return text
    if path == "Reference" and name == "reference":
        return found
    return links.uris.get(text, text) if member_type(path, name) in LINK_TYPES else text


def _in_narrative(text: str, names: Mapping[str, str]) -> str:
    def attribute(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        quote = found[2][0]
        target = names.get(unescape(found[2][1:-1]))
        return found[0] if target is None else f"{found[1]}{quote}{escape(target)}{quote}"

    new = _TAG.sub(lambda tag: _ATTRIBUTE.sub(attribute, tag[0]), text)
    return text if new == text else new
