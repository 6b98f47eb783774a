"""The destinations of `IPF_FORWARD_FILE`: a TOML file with a table `[[destination]]` for each.

What arrives: the file.  What leaves: the destinations.  Problem VALUE names file, destination, key and rule.
Keys: docs/how-to/forward-messages.md.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ipf.errors import Category, Problem

FIELD = re.compile(r"[A-Z][A-Z0-9]{2}-[1-9]\d?")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_ENDPOINT = re.compile(r"(tcp|tls):(\[[0-9A-Fa-f:]+\]|[^:\s]+):(\d{1,5})")
_TYPE = re.compile(r"[A-Z][A-Z0-9]{2}_([A-Z0-9]{3}|\*)")
_SEGMENT = re.compile(r"[A-Z][A-Z0-9]{2}|Z\*")
_LISTS = ("senders", "facilities", "types", "listeners", "remove")
_KEYS = frozenset((
    "name", "endpoint", "ca", "certificate", "key", "tenant", "where", "set", "compute", "ack_seconds", "max_attempts",
    "since", *_LISTS,
))  # fmt: skip
_LONGEST_WAIT = 60.0

Row = Mapping[str, Any]


def read_destinations(path: Path) -> list[dict[str, Any]]:
    """The values of each destination, by the names of `ports.messages.forwards.Destination`."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Problem(Category.VALUE, f"cannot be read: {error.strerror}", str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Problem(Category.VALUE, f"is no TOML: {error}", str(path)) from error
    rows = content.get("destination")
    if set(content) != {"destination"} or not isinstance(rows, list):
        raise Problem(Category.VALUE, "must have tables [[destination]], and nothing else", str(path))
    found = [_destination(row, f"{path}: destination {number}") for number, row in enumerate(rows, 1)]
    names = [one["name"] for one in found]
    for name in names:
        if names.count(name) > 1:
            raise Problem(Category.VALUE, f"there are two destinations of the name {name}", str(path))
    return found


def _destination(row: Any, place: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise Problem(Category.VALUE, "must be a table", place)
    unknown = sorted(set(row) - _KEYS)
    if unknown:
        raise Problem(Category.VALUE, f"has the unknown key {unknown[0]}; known are {', '.join(sorted(_KEYS))}", place)
    name = _text(row, "name", place, _NAME, "small letters, digits and . _ -, up to 40")
    place = f"{place} ({name})"
    endpoint = _text(row, "endpoint", place, _ENDPOINT, "tcp:HOST:PORT or tls:HOST:PORT")
    parts = _ENDPOINT.fullmatch(endpoint)
    assert parts is not None
    files = {one: Path(_text(row, one, place)) for one in ("ca", "certificate", "key") if one in row}
    if files and parts[1] != "tls":
        raise Problem(Category.VALUE, "ca, certificate and key need an endpoint tls:HOST:PORT", place)
    if ("certificate" in files) != ("key" in files):
        raise Problem(Category.VALUE, "certificate and key belong together", place)
    lists = {one: _texts(row, one, place) for one in _LISTS}
    _check(lists["types"], _TYPE, "types", "such as ADT_A01 or ADT_*", place)
    _check(lists["remove"], _SEGMENT, "remove", "names of segments, such as ZPI, or Z*", place)
    made: dict[str, Any] = {
        "name": name, "host": parts[2].strip("[]"), "port": int(parts[3]), "tls": parts[1] == "tls", **files,
        "senders": frozenset(lists["senders"]), "facilities": frozenset(lists["facilities"]),
        "types": tuple(lists["types"]), "listeners": frozenset(lists["listeners"]), "remove": tuple(lists["remove"]),
        "where": _text(row, "where", place) if "where" in row else "", "changes": _changes(row, "set", place),
        "computed": _changes(row, "compute", place),
        "ack_seconds": _number(row, "ack_seconds", 30.0, 0.1, _LONGEST_WAIT, place),
        "max_attempts": int(_number(row, "max_attempts", 0, 0, 1_000_000, place)), "since": _since(row, place),
    }  # fmt: skip
    return made | ({"tenant": _text(row, "tenant", place)} if "tenant" in row else {})


def _text(row: Row, key: str, place: str, pattern: re.Pattern[str] | None = None, expected: str = "a text") -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value or (pattern is not None and not pattern.fullmatch(value)):
        raise Problem(Category.VALUE, f"{key} must be {expected}", place)
    return value


def _texts(row: Row, key: str, place: str) -> list[str]:
    value = row.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise Problem(Category.VALUE, f"{key} must be a list of texts", place)
    return value


def _check(values: list[str], pattern: re.Pattern[str], key: str, expected: str, place: str) -> None:
    for one in values:
        if not pattern.fullmatch(one):
            raise Problem(Category.VALUE, f"{key}: {one} is none of {expected}", place)


def _changes(row: Row, key: str, place: str) -> tuple[tuple[str, str], ...]:
    given = row.get(key, {})
    if not isinstance(given, dict):
        raise Problem(Category.VALUE, f'{key} must be a table of fields, such as {{"MSH-5" = ...}}', place)
    for field, value in given.items():
        if not FIELD.fullmatch(field) or field in ("MSH-1", "MSH-2", "MSH-9", "MSH-10"):
            raise Problem(Category.VALUE, f"{key}: {field} is no field that can be changed, such as MSH-5", place)
        if not isinstance(value, str) or "\r" in value or "\n" in value:
            raise Problem(Category.VALUE, f"{key}: the value of {field} must be a text of one line", place)
    return tuple(given.items())


def _number(row: Row, key: str, default: float, least: float, most: float, place: str) -> float:
    value = row.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise Problem(Category.VALUE, f"{key} must be a number from {least:g} to {most:g}", place)
    return float(value)


def _since(row: Row, place: str) -> datetime | None:
    value = row.get("since")
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise Problem(Category.VALUE, "since must be a time, such as 2026-11-01T00:00:00Z", place)
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
