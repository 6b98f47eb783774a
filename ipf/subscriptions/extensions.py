"""Extensions of a submitted Subscription that this server would ignore although they change what it does.

What arrives: a Subscription with the structure of R4.  What leaves: one issue for each extension that refuses it.

- `modifierExtension` at any place: R4 forbids to process an element with one that is not understood.
- Any extension on `criteria` other than the filters of the guide: it would change which changes match.
- An extension of the guide at a place where, or in a version in which, it is not served.
- An element of a later version of Subscription (`.../fhir/5.0/StructureDefinition/extension-Subscription.filterBy`),
  except those that only describe.

Other extensions are stored and have no effect, as R4 has it.

Source: https://hl7.org/fhir/R4/extensibility.html; https://hl7.org/fhir/versions.html#extensions;
http://hl7.org/fhir/uv/subscriptions-backport 1.1.0
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ipf.errors import Category, Issue
from ipf.ports import Json
from ipf.subscriptions.guide import CHANNEL_TYPE, CONTENT, FILTER, HEARTBEAT, MAX_COUNT, TIMEOUT

_CRITERIA = "Subscription.criteria"
_SERVED = {
    _CRITERIA: {FILTER},
    "Subscription.channel": {HEARTBEAT, MAX_COUNT, TIMEOUT},
    "Subscription.channel.payload": {CONTENT},
    "Subscription.channel.type": {CHANNEL_TYPE},
}
_OF_GUIDE = re.compile(r"https?://hl7\.org/fhir/uv/subscriptions-backport/")
_OF_VERSION = re.compile(r"https?://hl7\.org/fhir/[^/]+/StructureDefinition/extension-Subscription\.([A-Za-z]+)")
_DESCRIPTIVE = frozenset({"contact", "identifier", "managingEntity", "name", "reason"})
_SHOWN = 120


def refused_extensions(subscription: Json) -> Iterator[Issue]:
    """One issue for each extension that refuses the Subscription, with its place and the rule."""
    yield from _of_element(subscription, "Subscription")
    yield from _empty_filters(subscription)


def _of_element(element: object, place: str) -> Iterator[Issue]:
    if isinstance(element, list):
        for number, item in enumerate(element):
            yield from _of_element(item, f"{place}[{number}]")
    elif isinstance(element, dict):
        for name, child in element.items():
            inside = f"{place}.{name.removeprefix('_')}"
            if name == "modifierExtension":
                text = "a modifier extension is not supported: it may change the meaning of what it is on"
                yield Issue(text, inside, Category.BUSINESS_RULE)
            elif name == "extension" and isinstance(child, list):
                for number, extension in enumerate(child):
                    yield from _of_extension(extension, place, f"{inside}[{number}]")
            yield from _of_element(child, inside)


def _of_extension(extension: object, element: str, place: str) -> Iterator[Issue]:
    url = str(extension.get("url", "")) if isinstance(extension, dict) else ""
    if url in _SERVED.get(element, ()):
        return
    later = _OF_VERSION.match(url)
    if element == _CRITERIA:
        text = f"the extension {url[:_SHOWN]} is not supported here: it would change what matches"
    elif _OF_GUIDE.match(url):
        text = f"the extension {url[:_SHOWN]} is not supported at this place, or not in this version"
    elif later is not None and later[1] not in _DESCRIPTIVE:
        text = f"the extension {url[:_SHOWN]} of another FHIR version is not supported: use the guide's for R4"
    else:
        return
    yield Issue(text, place, Category.BUSINESS_RULE)


def _empty_filters(subscription: Json) -> Iterator[Issue]:
    """Filters without a text, which would match everything."""
    criteria = subscription.get("_criteria")
    extensions = criteria.get("extension") if isinstance(criteria, dict) else None
    for number, one in enumerate(extensions if isinstance(extensions, list) else ()):
        if isinstance(one, dict) and one.get("url") == FILTER and not _text(one):
            text = "a filter needs a valueString, such as patient=Patient/1"
            yield Issue(text, f"{_CRITERIA}.extension[{number}]", Category.BUSINESS_RULE)


def _text(extension: Json) -> bool:
    value = extension.get("valueString")
    return isinstance(value, str) and bool(value.strip())
