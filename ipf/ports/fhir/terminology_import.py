"""A code system that is about to be imported, as the readers of release formats make it and the store takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ipf.ports.fhir.terminology import Designation

Progress = Callable[[str, int], None]
"""Called with a step and how many rows it has done."""


@dataclass(slots=True)
class NewConcept:
    """One concept.  `parents`: codes of the same system.  `properties`: name and value."""

    code: str
    display: str = ""
    is_active: bool = True
    is_abstract: bool = False
    definition: str = ""
    parents: list[str] = field(default_factory=list)
    properties: list[tuple[str, str]] = field(default_factory=list)
    designations: list[Designation] = field(default_factory=list)


@dataclass(slots=True)
class NewSystem:
    """One version of a code system.  `properties`: code -> type; `concepts`: code -> concept."""

    url: str
    version: str
    name: str
    is_case_sensitive: bool = True
    properties: dict[str, str] = field(default_factory=dict)
    concepts: dict[str, NewConcept] = field(default_factory=dict)
