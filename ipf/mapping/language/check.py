"""Type check of the records of a map that was read from JSON.

The grammar guarantees these types; a JSON file does not.  ValueError names the record and the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from ipf.mapping.language.grammar import MODES
from ipf.mapping.language.grammar_rules import SOURCE_LIST_MODES, TARGET_LIST_MODES, TRANSFORMS
from ipf.mapping.language.model import Group, Input, Rule, Source, Structure, Target

_WORDS: Mapping[tuple[type, str], frozenset[str]] = {
    (Structure, "mode"): frozenset(MODES),
    (Input, "mode"): frozenset(("source", "target")),
    (Group, "type_mode"): frozenset(("none", "types", "type-and-types")),
    (Source, "list_mode"): frozenset(("", *SOURCE_LIST_MODES)),
    (Target, "transform"): frozenset(("", *TRANSFORMS)),
}


def check(record: Any) -> None:
    """Check a record and all records in it.  ValueError."""
    kind = type(record)
    for one in fields(record):
        value = getattr(record, one.name)
        if one.type == "str" and not isinstance(value, str):
            raise ValueError(f"{one.name} of a {kind.__name__.lower()} is no text")
        allowed = _WORDS.get((kind, one.name))
        if allowed is not None and value not in allowed:
            raise ValueError(f"{one.name} of a {kind.__name__.lower()} cannot be {value[:40]!r}")
        for part in value if isinstance(value, tuple) else (value,):
            if is_dataclass(part):
                check(part)
    _check_numbers(record)


def _check_numbers(record: Any) -> None:
    """Constraints beyond the types of the fields."""
    if isinstance(record, Rule) and not record.sources:
        raise ValueError("a rule has no source")
    if isinstance(record, Source):
        if record.minimum is not None and (type(record.minimum) is not int or record.minimum < 0):
            raise ValueError("min of a source is no number")
        if (
            record.minimum is not None
            and record.maximum != "*"
            and not (record.maximum.isdecimal() and len(record.maximum) < 10)
        ):
            raise ValueError("max of a source is no number and not '*'")
    if isinstance(record, Target) and not set(record.list_modes) <= set(TARGET_LIST_MODES):
        raise ValueError("listMode of a target is none of " + ", ".join(TARGET_LIST_MODES))
