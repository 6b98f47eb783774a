"""Regression cases of a profile: a message, and its expected result.

`tests/name.hl7` is the message.  The expectation is `name.json`, the expected resources, or `name.error`, a text that
the error must contain (blank: any error).

A comparison covers the members of the expectation only: other members may be present, `null` requires that a member is
absent, and lists are compared in any order.  `total` of a Bundle is the expected number of resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ipf.errors import Problem
from ipf.fhir.model.json import dumps, loads
from ipf.hl7.charset import DEFAULT_FALLBACK, decode, sniff
from ipf.hl7.header import missing_part, scan_header
from ipf.mapping.library.maps import Library
from ipf.ports import Claimed, Json
from ipf.vendor_profiles.quirks import control_id, fallback_charset, normalized

SUFFIX = ".hl7"
_EXCERPT = 300


@dataclass(frozen=True, slots=True)
class Case:
    """Result of one case; `message`: the reason of a failure."""

    path: str
    message_type: str
    passed: bool
    message: str = ""

    def as_json(self) -> Json:
        """As the admin API shows it."""
        return {
            "path": self.path,
            "messageType": self.message_type.replace("_", "^", 1),
            "passed": self.passed,
            "message": self.message or None,
        }


class Refused(Exception):
    """The message is refused on receipt, or cannot be mapped."""


def run_case(
    path: str, message_type: str, files: Mapping[str, bytes], library: Library, quirks: Mapping[str, str]
) -> Case:
    """Run one case: receive, apply quirks, and map its message."""
    stem = path.removesuffix(SUFFIX)
    wanted, reason = files.get(f"{stem}.json"), files.get(f"{stem}.error")
    if (wanted is None) == (reason is None):
        return Case(path, message_type, False, f"needs either {stem}.json or {stem}.error")
    try:
        bundle = _mapped(files[path], message_type, library, quirks)
    except Refused as refused:
        if reason is None:
            return Case(path, message_type, False, str(refused))
        text = reason.decode("utf-8", "replace").strip()
        if text.lower() in str(refused).lower():
            return Case(path, message_type, True)
        return Case(path, message_type, False, f"expected the error {text!r}, but it is: {refused}")
    if wanted is None:
        return Case(path, message_type, False, "expected an error, but the message was mapped")
    try:
        difference = compare(loads(wanted), bundle)
    except Problem as problem:
        difference = f"{stem}.json cannot be read: {problem}"
    return Case(path, message_type, not difference, difference)


def _mapped(frame: bytes, message_type: str, library: Library, quirks: Mapping[str, str]) -> Json:
    """The Bundle of a message.  Raises Refused."""
    try:
        message = _received(frame, quirks)
    except Problem as problem:
        raise Refused(f"refused: {problem}") from problem
    if message.message_type != message_type:
        raise Refused(f"refused: this is a message of type {message.message_type}, not {message_type}")
    try:
        bundle = library.transform(normalized(message, quirks)).bundle
    except Problem as problem:
        raise Refused(f"not mapped: {problem}") from problem
    except Exception as error:  # as in the converter: an internal error fails the message, not the process
        raise Refused(f"not mapped: unexpected {type(error).__name__}") from error
    entries = bundle.get("entry", []) if bundle.get("resourceType") == "Bundle" else None
    if not isinstance(entries, list) or not all(isinstance(one, dict) and "resource" in one for one in entries):
        raise Refused("not mapped: the map makes no Bundle whose entries have resources")
    return bundle


def _received(frame: bytes, quirks: Mapping[str, str]) -> Claimed:
    header = scan_header(frame)
    header.source_id = header.source_id or control_id(quirks, frame)
    missing = missing_part(header)
    if missing is not None:
        raise missing
    fallback = fallback_charset(quirks) or DEFAULT_FALLBACK
    codec = (sniff(frame) if frame[:3] != b"MSH" else None) or decode(frame, header.charset_names, fallback).codec
    return Claimed(
        0, 0, "", datetime.now(UTC), header.source_system, header.source_id, header.message_type, frame, codec, 0
    )


# ------------------------------------------------------------------------------------------------------- compare


def compare(wanted: Any, bundle: Json) -> str:
    """The first difference between expectation and Bundle; empty = none.  `wanted`: a Bundle, a list of resources, or a
    resource.
    """
    made = [entry.get("resource") for entry in bundle.get("entry", ())]
    if isinstance(wanted, dict) and wanted.get("resourceType") == "Bundle":
        total = wanted.get("total")
        if total is not None and total != len(made):
            return f"expected {total} resources, found {len(made)}"
        expected = [entry.get("resource") for entry in wanted.get("entry", ())]
    else:
        expected = wanted if isinstance(wanted, list) else [wanted]
    if not all(isinstance(one, dict) and "resourceType" in one for one in expected):
        return "the expectation must be a Bundle, a resource, or a list of resources"
    if all_matched(expected, made):
        return ""
    for one in expected:
        alike = [other for other in made if isinstance(other, dict) and other["resourceType"] == one["resourceType"]]
        if not any(matches(one, other) for other in alike):
            return _difference(one, alike)
    return "one resource was expected more often than it is present"


def matches(wanted: Any, found: Any) -> bool:
    """Whether `found` has all members of `wanted`."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            name not in found if value is None else name in found and matches(value, found[name])
            for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and all_matched(wanted, found)
    return (type(wanted) is type(found) and bool(wanted == found)) or _numbers(wanted, found)


def _numbers(wanted: Any, found: Any) -> bool:
    """Numbers are compared by value."""
    if isinstance(wanted, bool) or isinstance(found, bool) or isinstance(wanted, str) or isinstance(found, str):
        return False
    return bool(wanted == found)


def all_matched(wanted: Sequence[Any], found: Sequence[Any]) -> bool:
    """Whether each wanted item has its own match among those found (augmenting paths)."""
    owner: dict[int, int] = {}

    def place(number: int, seen: set[int]) -> bool:
        for at, one in enumerate(found):
            if at not in seen and matches(wanted[number], one):
                seen.add(at)
                if at not in owner or place(owner[at], seen):
                    owner[at] = number
                    return True
        return False

    return all(place(number, set()) for number in range(len(wanted)))


def _difference(wanted: Json, alike: Sequence[Json]) -> str:
    kind = wanted["resourceType"]
    if not alike:
        return f"no {kind} was made"
    if len(alike) > 1:
        return f"none of the {len(alike)} {kind} resources is as expected"
    for name, value in wanted.items():
        found = alike[0].get(name)
        if not matches({name: value}, alike[0]):
            return f"{kind}.{name}: expected {_excerpt(value)}, found {_excerpt(found)}"
    return f"{kind} is not as expected"


def _excerpt(value: Any) -> str:
    if value is None:
        return "nothing"
    text = dumps(value).decode()
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "..."
