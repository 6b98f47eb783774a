"""The profile of a de-identified export: a TOML file that says what is kept.

`profile.toml` beside this module is the built-in one and explains the tables.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import Element, definitions

_BUILT_IN = Path(__file__).with_name("profile.toml")
_LISTS = ("resources", "code_systems", "extensions")
_TEXTS = ("name", "version")
_DATES = frozenset({"date", "dateTime", "instant"})
_CODE = re.compile(r"[!-~]{1,40}", re.ASCII)
_REST = re.compile(r"[\w:/.-]{1,200}", re.ASCII)


class Action(Enum):
    """What is done with an element, against the rule of its data type."""

    KEEP = "keep"
    REMOVE = "remove"
    YEAR = "year"


@dataclass(frozen=True, slots=True)
class Profile:
    """`resources`: types that are exported.  `elements`: by path of definition.

    `code_systems`: one that ends with `/`, `.` or `:` is a beginning of systems.  `title`: name, version and digest of
    the file, for the manifest.
    """

    title: str
    resources: frozenset[str]
    code_systems: tuple[str, ...]
    extensions: frozenset[str]
    elements: Mapping[str, Action]

    def keeps(self, system: object, code: object) -> bool:
        """Whether a code is kept: of a known system, and without blanks, as codes are and names are not."""
        if not isinstance(system, str) or not isinstance(code, str):
            return False
        is_known = system in self.code_systems or (system.startswith(self._beginnings) and _REST.fullmatch(system))
        return bool(is_known) and _CODE.fullmatch(code) is not None

    @property
    def _beginnings(self) -> tuple[str, ...]:
        return tuple(one for one in self.code_systems if one.endswith(("/", ".", ":")))


@lru_cache(maxsize=1)
def built_in() -> Profile:
    """The profile that comes with the service."""
    return read_profile(_BUILT_IN)


def read_profile(path: Path) -> Profile:
    """A profile file.  Problem VALUE names the file and what is wrong in it."""
    try:
        content = path.read_bytes()
        table = tomllib.loads(content.decode())
    except (OSError, ValueError) as problem:
        raise _wrong(path, str(problem)) from None
    unknown = sorted(set(table) - {*_LISTS, *_TEXTS, "elements"})
    if unknown:
        raise _wrong(path, f"there is no key {unknown[0]}")
    name, version = (_text(path, table, key) for key in _TEXTS)
    lists = {key: _texts(path, table, key) for key in _LISTS}
    for one in lists["resources"]:
        if one not in definitions().resource_types:
            raise _wrong(path, f"resources: {one} is no resource type of R4")
    elements = table.get("elements", {})
    if not isinstance(elements, dict):
        raise _wrong(path, "elements must be a table")
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Profile(
        f"{name} {version} {digest}",
        frozenset(lists["resources"]),
        lists["code_systems"],
        frozenset(lists["extensions"]),
        {one: _action(path, one, value) for one, value in elements.items()},
    )


def _action(path: Path, name: str, value: object) -> Action:
    element = _element(name)
    if element is None:
        raise _wrong(path, f"elements: {name} is no element of R4, written as Type.element, a choice without its type")
    if value not in [one.value for one in Action]:
        raise _wrong(path, f"elements: {name} must be keep, remove or year")
    if value == Action.YEAR.value and not _DATES & set(element.types):
        raise _wrong(path, f"elements: {name} is no date, so it has no year")
    return Action(value)


def _element(name: str) -> Element | None:
    parent, _, last = name.rpartition(".")
    found = definitions().members(parent).get(last) if definitions().is_type(parent) else None
    return found if found is not None and found.path == name else None


def _text(path: Path, table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise _wrong(path, f"{key} must be a text")
    return value.strip()


def _texts(path: Path, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise _wrong(path, f"{key} must be a list of texts")
    return tuple(value)


def _wrong(path: Path, reason: str) -> Problem:
    return Problem(Category.VALUE, f"{path}: {reason}", "IPF_DEIDENT_PROFILE")
