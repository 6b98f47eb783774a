"""A page of a source: its items, and the URL of the next page.

A FHIR server answers a searchset Bundle; matches and included resources are items.  A REST API answers JSON with a
list.  An item without what identifies it is refused: it goes to the rejects, and the others are taken.

Source: https://hl7.org/fhir/R4/http.html#paging, https://hl7.org/fhir/R4/bundle.html#searchset
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.pipeline.equal_failures import reason_of
from ipf.pipeline.poll.urls import next_of, with_parameter
from ipf.ports import Json
from ipf.ports.messages.sources import FHIR_REST, FHIR_TYPE, Feed, Paging, PolledSource

MAX_KEY_LENGTH = 255


@dataclass(frozen=True, slots=True)
class Item:
    """One resource or record.  `key`: type, number and version.  `unit`: what versions of the same one have in common.

    `refusal`: why it cannot be taken.
    """

    raw: bytes
    message_type: str = ""
    key: str = ""
    unit: str = ""
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """`next_page`: empty = this is the last one.  `total`: of all pages, if the source says it.  `warnings`: what the
    server says of the search.
    """

    items: tuple[Item, ...]
    next_page: str = ""
    total: int | None = None
    warnings: tuple[str, ...] = ()


def read_page(source: PolledSource, feed: Feed, url: str, body: bytes, began: datetime) -> Page:
    """The content of an answer.  `began`: of the pass, for items without a version.  Problem UPSTREAM."""
    try:
        content = loads(body)
    except Problem as problem:
        raise Problem(Category.UPSTREAM, f"the answer is no JSON: {problem.text}") from problem
    if source.protocol == FHIR_REST:
        return _bundle(source, url, content, began)
    return _records(source, feed, url, content, began)


# ------------------------------------------------------------------------------------------------------- FHIR


def _bundle(source: PolledSource, url: str, content: Any, began: datetime) -> Page:
    if not isinstance(content, dict) or content.get("resourceType") != "Bundle":
        raise Problem(Category.UPSTREAM, "the answer is no Bundle")
    items, warnings = [], []
    for entry in _dicts(content.get("entry")):
        resource = entry.get("resource")
        if not isinstance(resource, dict):
            continue
        if resource.get("resourceType") == "OperationOutcome":
            warnings += [str(one.get("diagnostics") or one.get("code")) for one in _dicts(resource.get("issue"))]
        else:
            items.append(_item(_resource, resource, began))
    given = [one.get("url") for one in _dicts(content.get("link")) if one.get("relation") == "next"]
    following = next_of(source, url, given[0]) if given and isinstance(given[0], str) else ""
    total = content.get("total")
    return Page(tuple(items), following, total if isinstance(total, int) else None, tuple(warnings))


def _item(make: Callable[[Any, datetime], Item], content: Any, began: datetime) -> Item:
    """The item; a refusal when its content is such that nothing can be made of it."""
    try:
        return make(content, began)
    except Exception as error:
        return Item(repr(content).encode("utf-8", "replace"), refusal=f"it cannot be read: {reason_of(error)}")


def _resource(resource: Json, began: datetime) -> Item:
    raw, resource_type, number = dumps(resource), resource.get("resourceType"), resource.get("id")
    if not (isinstance(resource_type, str) and isinstance(number, str) and resource_type and number):
        return Item(raw, refusal="a resource needs resourceType and id")
    meta = resource.get("meta") if isinstance(resource.get("meta"), dict) else {}
    assert isinstance(meta, dict)
    version = meta.get("versionId") or meta.get("lastUpdated") or _digest(raw, began)
    unit = f"{resource_type}/{number}"
    return Item(raw, FHIR_TYPE + resource_type.lower(), _key(unit, version), unit)


# -------------------------------------------------------------------------------------------------- REST APIs


def _records(source: PolledSource, feed: Feed, url: str, content: Any, began: datetime) -> Page:
    listed = field_of(content, feed.items) if feed.items else content
    if listed is None and isinstance(content, dict):
        listed = []  # some leave an empty list out
    if not isinstance(listed, list):
        raise Problem(Category.UPSTREAM, f"the answer has no list {feed.items or 'at its root'}")
    items = tuple(_item(partial(_record, feed), one, began) for one in listed)
    return Page(items, _next_page(source, feed, url, content, len(items)))


def _record(feed: Feed, record: Any, began: datetime) -> Item:
    raw = dumps(record)
    number = field_of(record, feed.id_field)
    if not isinstance(number, str | int) or isinstance(number, bool) or not str(number):
        return Item(raw, feed.message_type, refusal=f"the item has no {feed.id_field}")
    version = field_of(record, feed.version_field) if feed.version_field else None
    if version is not None and not isinstance(version, str | int):
        return Item(raw, feed.message_type, refusal=f"{feed.version_field} is no text and no number")
    unit = f"{feed.message_type}/{number}"
    return Item(raw, feed.message_type, _key(unit, version if version is not None else _digest(raw, began)), unit)


def _next_page(source: PolledSource, feed: Feed, url: str, content: Any, count: int) -> str:
    if feed.paging is Paging.DRAIN:
        return url if count else ""
    if feed.paging is Paging.OFFSET:
        if count < feed.page_size:
            return ""
        return with_parameter(url, feed.offset_parameter, str(_offset(url, feed.offset_parameter) + count))
    given = field_of(content, feed.next_field) if feed.next_field else None
    return next_of(source, url, given) if isinstance(given, str) and given else ""


def _offset(url: str, name: str) -> int:
    values = parse_qs(urlsplit(url).query).get(name, ["0"])
    return int(values[0]) if values[0].isdecimal() else 0


def field_of(value: Any, path: str) -> Any:
    """A field by its path with dots; None when there is none."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


# ------------------------------------------------------------------------------------------------------ shared


def _key(unit: str, version: object) -> str:
    """`Type/id/version`; a hash where that is too long, or holds what is no text of a key."""
    key = f"{unit}/{version}"
    if len(key) <= MAX_KEY_LENGTH and key.isprintable():
        return key
    return f"{unit.partition('/')[0][:100]}/sha-{blake2b(key.encode(), digest_size=20).hexdigest()}"


def _digest(raw: bytes, began: datetime) -> str:
    """The version of an item that states none: its content, in this pass.  In a later pass it may be so again."""
    return f"{blake2b(raw, digest_size=12).hexdigest()}@{began.isoformat()}"


def _dicts(value: object) -> Iterator[Json]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else iter(())
