"""Which numbers of a Patient identify: a table per installation, by assigning authority and type (table 0203).

What arrives: a TOML file (`IPF_IDENTITY_FILE`) with rows `[[identifier]]`; without one the built-in rows alone.  The
first row that fits counts, those of the file before the built-in ones.  Problem MAPPING names file, row and rule.

- `always`: the number identifies whatever else a message says.
- `domain`: it identifies only when its authority is the one of the message: that of the medical record number (MR),
  else that of the first repetition of PID-3 of such a kind.  From any other authority it is stored with `use:
  secondary`.
- `never`: it is stored, and a Patient is found by it only when the message has no better number.

Rows `[[update]]` name senders (MSH-3) whose messages are complete: what such a message leaves out is deleted.  `types`
limits a row to message types (`ADT_A08`).

`overlay` says how many of family name, birth date and sex must differ before an equal number is another person's (1 to
3, 0 = never; default 3).

Numbers of PID-2 and PID-4 are secondary: a row counts for them only with `secondary = true`.

Source: HL7 v2 table 0203, https://terminology.hl7.org/CodeSystem-v2-0203.html
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ipf.errors import Category, Problem
from ipf.ports.identity import OVERLAY

_ANY = "*"
_NAMED = "urn:ipf:authority:"
_NAMES = frozenset(("authority", "type", "identifies", "secondary", "overlay"))
_MOST_CACHED = 10_000


class Identifies(StrEnum):
    """When a number identifies a Patient."""

    ALWAYS = "always"
    DOMAIN = "domain"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Row:
    """`authority`: namespace, OID or URI of CX.4; `type`: code of table 0203, "" = none, `NN*` = all that begin so.

    `secondary`: the row counts for secondary numbers too.  `overlay`: how many of family name, birth date and sex must
    differ before an equal number is a conflict; 0 = never.
    """

    authority: str
    type: str
    identifies: Identifies
    secondary: bool = False
    overlay: int = OVERLAY

    def fits(self, systems: frozenset[str], type_code: str) -> bool:
        """Whether the row is about numbers of an authority (by any of its names) and type."""
        if self.authority != _ANY and self.authority not in systems:
            return False
        if self.type.endswith(_ANY):
            return type_code.startswith(self.type[:-1])
        return self.type == type_code


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A sender (MSH-3, `*` = any) whose messages are complete.  `types`: message types; none = all."""

    sender: str
    types: frozenset[str] = frozenset()


def _rows(identifies: Identifies, types: str) -> tuple[Row, ...]:
    return tuple([Row(_ANY, one, identifies) for one in types.split()])


# MR medical record; NI, NN* national person identifier; MC, MA Medicare and Medicaid; SS, SB social security; PPN
# passport; JHN health number of a jurisdiction; IND indigenous identifier; PRC permanent resident card; CZ citizenship
# card; MI military ID; PE enterprise number of a person; RI the id that a FHIR server gave the Patient.
_ALWAYS = _rows(Identifies.ALWAYS, "MR NI NN* MC MA SS SB PPN JHN IND PRC CZ MI PE RI")
# Accounts and visits (AN, VN, AM, ACSN, AC): mother and child may share them.  Cards and policies that a family shares
# (HC, MB, SN, BC, GN, GI); licenses (DL, LN), which are often misread; what an employer gives (EI, EN); anonymous
# numbers.
_NEVER = _rows(Identifies.NEVER, "AN VN AM AC ACSN HC MB SN BC GN GI DL LN EI EN ANON WC WCN VS BCT")
BUILT_IN = (*_ALWAYS, *_NEVER, Row(_ANY, _ANY, Identifies.DOMAIN))
"""All other kinds (PI, PT, no type, local codes) identify within the domain of the message."""


_NO_ROW = Row(_ANY, _ANY, Identifies.NEVER)


class IdentityTable:
    """The rows of an installation, before the built-in ones."""

    def __init__(self, rows: Iterable[Row] = (), snapshots: Iterable[SnapshotRow] = ()) -> None:
        self._rows = (*rows, *BUILT_IN)
        self._snapshots = tuple(snapshots)
        self._found: dict[tuple[str, str, str, bool], Row] = {}

    def sends_snapshots(self, source_system: str, message_type: str) -> bool:
        """Whether messages of this sender and type are complete."""
        return any(
            one.sender in (source_system, _ANY) and (not one.types or message_type in one.types)
            for one in self._snapshots
        )

    def identifies(self, system: str, name: str, type_code: str, *, is_secondary: bool = False) -> Identifies:
        """Whether numbers of an authority (system of the identifier, namespace of CX.4) and type identify."""
        return self.row(system, name, type_code, is_secondary=is_secondary).identifies

    def row(self, system: str, name: str, type_code: str, *, is_secondary: bool = False) -> Row:
        """The row for numbers of an authority and type."""
        key = system, name, type_code, is_secondary
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _MOST_CACHED:
                self._found.clear()
            found = self._found[key] = self._look_up(*key)
        return found

    def _look_up(self, system: str, name: str, type_code: str, is_secondary: bool) -> Row:
        systems = frozenset(one for one in (system, system.removeprefix(_NAMED), name) if one)
        for row in self._rows:
            if (row.secondary or not is_secondary) and row.fits(systems, type_code):
                return row
        return _NO_ROW


def read_table(path: Path) -> IdentityTable:
    """The table of a file.  Problem MAPPING names file, row and rule."""
    file = path.as_posix()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Problem(Category.MAPPING, f"cannot be read: {error.strerror}", file) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Problem(Category.MAPPING, f"is not TOML: {error}", file) from error
    unknown = sorted(set(content) - {"identifier", "update"})
    rows, updates = content.get("identifier", []), content.get("update", [])
    if unknown or not isinstance(rows, list) or not isinstance(updates, list):
        text = f"has {unknown[0]}: " if unknown else ""
        raise Problem(Category.MAPPING, f"{text}only rows [[identifier]] and [[update]] are allowed", file)
    return IdentityTable(
        [_row(one, f"{file}: row {number}") for number, one in enumerate(rows, 1)],
        [_snapshot_row(one, f"{file}: [[update]] {number}") for number, one in enumerate(updates, 1)],
    )


def _snapshot_row(one: Any, place: str) -> SnapshotRow:
    if not isinstance(one, Mapping):
        raise Problem(Category.MAPPING, "a row is written [[update]]", place)
    unknown = sorted(set(one) - {"sender", "types", "mode"})
    if unknown:
        raise Problem(Category.MAPPING, f"{unknown[0]} is not known; use mode, sender, types", place)
    if one.get("mode") != "snapshot":
        raise Problem(Category.MAPPING, 'mode must be "snapshot"', place)
    sender, types = one.get("sender"), one.get("types", [])
    if not isinstance(sender, str) or not sender:
        raise Problem(Category.MAPPING, 'sender is missing; "*" is any', place)
    if not isinstance(types, list) or not all(isinstance(name, str) and "_" in name for name in types):
        raise Problem(Category.MAPPING, "types is a list of message types such as ADT_A08", place)
    return SnapshotRow(sender, frozenset(types))


def _row(one: Any, place: str) -> Row:
    if not isinstance(one, Mapping):
        raise Problem(Category.MAPPING, "a row is written [[identifier]]", place)
    unknown = sorted(set(one) - _NAMES)
    if unknown:
        raise Problem(Category.MAPPING, f"{unknown[0]} is not known; use {', '.join(sorted(_NAMES))}", place)
    for name in ("authority", "type", "identifies"):
        if not isinstance(one.get(name), str):
            raise Problem(Category.MAPPING, f"{name} is missing, or is no text", place)
    if not one["authority"]:
        raise Problem(Category.MAPPING, 'authority is empty; "*" is any', place)
    if one["identifies"] not in list(Identifies):
        raise Problem(Category.MAPPING, f"identifies must be {', '.join(Identifies)}", place)
    if not isinstance(one.get("secondary", False), bool):
        raise Problem(Category.MAPPING, "secondary must be true or false", place)
    overlay = one.get("overlay", OVERLAY)
    if type(overlay) is not int or not 0 <= overlay <= OVERLAY:
        raise Problem(Category.MAPPING, f"overlay must be a whole number from 0 to {OVERLAY}", place)
    if _ANY in one["type"][:-1]:
        raise Problem(Category.MAPPING, "type may have * at its end only", place)
    authority = _system(one["authority"])
    return Row(authority, one["type"], Identifies(one["identifies"]), one.get("secondary", False), overlay)


def _system(authority: str) -> str:
    """An OID as the system that the maps make of it; a URI, a namespace or `*` as it is."""
    if authority[0].isdigit() and authority.replace(".", "").isdigit() and "." in authority:
        return f"urn:oid:{authority}"
    return authority
