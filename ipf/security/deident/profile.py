"""The profile of a de-identified export: a TOML file that says what is kept.

`profile.toml` beside this module is the built-in one and explains the tables.  Codes are compared with the
definitions of R4 that come with the service, never with what clients store: a client cannot make a name a code.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.definitions import Element, definitions
from ipf.fhir.model.regex import Pattern, PatternError
from ipf.fhir.profiles.tables import CODE_SYSTEMS, tables
from ipf.fhir.terminology.open_systems import OPEN_SYSTEMS
from ipf.fhir.terminology.service import Terminology

_BUILT_IN = Path(__file__).with_name("profile.toml")
_LISTS = ("resources", "extensions", "ages")
_TABLES = ("code_systems", "elements", "integers")
_TEXTS = ("name", "version")
_DATES = frozenset({"date", "dateTime", "instant"})
INTEGERS = frozenset({"integer", "positiveInt", "unsignedInt"})
HIGHEST = 999
"""The highest integer of an element without a bound of its own: numbers that identify somebody are longer."""
_DEFINED = "defined"
_CODE = re.compile(r"[!-~]{1,40}", re.ASCII)


class Action(Enum):
    """What is done with an element, against the rule of its data type."""

    KEEP = "keep"
    REMOVE = "remove"
    YEAR = "year"


@dataclass(frozen=True, slots=True)
class Profile:
    """`resources`: types that are exported.  `elements`: by path of definition.

    `code_systems`: tests of a code, by system; one that ends with `/` is the beginning of systems that R4 defines.
    `extensions`: URLs, and names inside of them.  `ages`: codes, as `system|code`, of what is measured.  `title`: name,
    version and digest of the file.  `integers`: the highest value that is kept, by path of definition.
    """

    title: str
    resources: frozenset[str]
    code_systems: Mapping[str, Callable[[str, str], bool]]
    extensions: frozenset[str]
    ages: frozenset[str]
    elements: Mapping[str, Action]
    integers: Mapping[str, int]

    def keeps_integer(self, path: str, value: int) -> bool:
        """Whether an integer of this element is kept: not a number so long that it may identify somebody."""
        return abs(value) <= self.integers.get(path, HIGHEST)

    def keeps(self, system: object, code: object) -> bool:
        """Whether a code is kept: it is one of a system of the profile, by that system's test."""
        if not isinstance(system, str) or not isinstance(code, str) or _CODE.fullmatch(code) is None:
            return False
        test = self.code_systems.get(system) or next(
            (one for start, one in self.code_systems.items() if start.endswith("/") and system.startswith(start)), None
        )
        return test is not None and test(system, code)


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
    unknown = sorted(set(table) - {*_LISTS, *_TEXTS, *_TABLES})
    if unknown:
        raise _wrong(path, f"there is no key {unknown[0]}")
    name, version = (_text(path, table, key) for key in _TEXTS)
    lists = {key: _texts(path, table, key) for key in _LISTS}
    for one in lists["resources"]:
        if one not in definitions().resource_types:
            raise _wrong(path, f"resources: {one} is no resource type of R4")
    systems, elements, integers = (_table(path, table, key) for key in _TABLES)
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Profile(
        f"{name} {version} {digest}",
        frozenset(lists["resources"]),
        {one: _test(path, one, value) for one, value in systems.items()},
        frozenset(lists["extensions"]),
        frozenset(lists["ages"]),
        {one: _action(path, one, value) for one, value in elements.items()},
        {one: _bound(path, one, value) for one, value in integers.items()},
    )


def _table(path: Path, table: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise _wrong(path, f"{key} must be a table")
    return found


def _bound(path: Path, name: str, value: object) -> int:
    element = _element(name)
    if element is None or not INTEGERS & set(element.types):
        raise _wrong(path, f"integers: {name} is no element of R4 with an integer, written as Type.element")
    if type(value) is not int or value < 0:
        raise _wrong(path, f"integers: {name} must be a number from 0")
    return value


def _test(path: Path, system: str, value: object) -> Callable[[str, str], bool]:
    """The test of (system, code): the definitions of R4, one of its value sets, or a pattern."""
    if value == _DEFINED:
        return _is_defined
    if system.endswith("/") or not isinstance(value, str):
        raise _wrong(path, f"code_systems: {system} must be {_DEFINED}")
    if value.startswith("http"):
        if _terminology().members(value) is None:
            raise _wrong(path, f"code_systems: {value} is no value set of R4")
        return lambda named, code: _terminology().contains(value, named, code) is True
    try:
        pattern = Pattern(value)
    except PatternError as problem:
        raise _wrong(path, f"code_systems: {system}: {problem}") from None
    return lambda _, code: pattern.is_all_of(code)


def _is_defined(system: str, code: str) -> bool:
    if system not in OPEN_SYSTEMS and not any(system in table for _, table in tables(CODE_SYSTEMS)):
        return False  # the terminology would remember every name that a sender invents
    return _terminology().has(system, code) is True


@lru_cache(maxsize=1)
def _terminology() -> Terminology:
    return Terminology()


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
