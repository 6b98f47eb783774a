"""Reads the settings from environment variables, once at start.

What arrives: a mapping of environment variables.  What leaves: :class:`Settings`, and warnings.  An invalid value, or a
conflict between values, raises :class:`InvalidSetting` and stops the start.  An unknown `IPF_*` or
`SUBSCRIPTION_SERVICE_*` name is a warning that suggests the nearest known name.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from ipf.config.conflicts import conflicts
from ipf.config.console import console_variables
from ipf.config.parsers import endpoint_patterns, message_types, words
from ipf.config.partners import ineffective
from ipf.config.secret_files import SUFFIX, UnreadableSecret, with_secret_files
from ipf.config.settings import Settings, Variable, variables

T = TypeVar("T")

_LONGEST = 200  # characters of a value in an error
_UNITS = {"_MS": "milliseconds", "_SECONDS": "seconds", "_BYTES": "bytes", "_DAYS": "days", "_HOURS": "hours"}
_LISTS = (words, message_types, endpoint_patterns)


class InvalidSetting(Exception):
    """A variable with an invalid value.  The text names it and what is expected, and never shows a secret."""


def read(environ: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Settings and warnings from environment variables.  InvalidSetting names the first invalid one."""
    settings, warnings = read_rows(Settings, environ)
    conflict = next(conflicts(settings), None)
    if conflict is not None:
        raise InvalidSetting(conflict)
    return settings, [*_warnings(environ), *warnings, *ineffective(settings)]


def read_rows(declared: type[T], environ: Mapping[str, str]) -> tuple[T, list[str]]:
    """A dataclass of `settings.variable` rows from environment variables and secret files, and warnings."""
    rows: dict[str, Variable] = {one.name: one.metadata["variable"] for one in fields(declared)}  # type: ignore[arg-type]  # a dataclass
    try:
        environ, warnings = with_secret_files(environ, [row.name for row in rows.values() if row.secret])
    except UnreadableSecret as unreadable:
        raise InvalidSetting(str(unreadable)) from None
    values = {}
    for name, row in rows.items():
        value = environ.get(row.name)
        if value is not None and (value.strip() or row.parse in _LISTS):  # a blank list is empty
            values[name] = _parse(row, value)
    return declared(**values), warnings


def _parse(row: Variable, value: str) -> Any:
    try:
        return row.parse(value)
    except ValueError as error:
        rule = f"{error}{_unit(row.name)}"
        if row.secret:  # rules name no part of a value; this makes sure that none ever does
            rule = "the value is invalid" if value.strip() in rule else rule
            raise InvalidSetting(f"{row.name}: {rule} (the value is not shown)") from None
        shown = value if len(value) <= _LONGEST else value[:_LONGEST] + "..."
        raise InvalidSetting(f"{row.name}: {rule} (it is {shown!r})") from None


def _unit(name: str) -> str:
    """The unit of a number, as the end of its name says."""
    return next((f" {unit}" for end, unit in _UNITS.items() if name.endswith(end)), "")


def _warnings(environ: Mapping[str, str]) -> list[str]:
    known = variables() | console_variables()
    known |= {name + SUFFIX: row for name, row in known.items() if row.secret}
    found = []
    for name in sorted(environ):
        if name.startswith(("IPF_", "SUBSCRIPTION_SERVICE_")) and name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            found.append(f"{name} is not a setting of ipf{hint}")
    mode = environ.get("SUBSCRIPTION_SERVICE_CHANNEL_SECURITY", "strict").strip().lower()
    if mode not in ("strict", "relaxed", "permissive", ""):
        text = "SUBSCRIPTION_SERVICE_CHANNEL_SECURITY: expected one of strict, relaxed, permissive"
        found.append(f"{text} (it is {mode[:_LONGEST]!r}): strict is used")
    return found
