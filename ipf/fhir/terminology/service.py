"""Code systems and value sets by url, from packages, the store and the shipped tables.

Resources of packages and of the store precede the shipped tables.  Results are cached.  Lookups do no IO; the result is
None when the loaded definitions do not decide it.

Source: https://hl7.org/fhir/R4/terminology-service.html
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ipf.fhir.profiles.tables import CODE_SYSTEMS, VALUE_SETS, tables
from ipf.fhir.terminology import codesystem, valueset
from ipf.fhir.terminology.codesystem import CodeSystem
from ipf.fhir.terminology.open_systems import OPEN_SYSTEMS
from ipf.fhir.terminology.valueset import Membership

Json = dict[str, Any]
DEEPEST = 50  # value sets that include one another
Find = Callable[[str, str], Json | None]  # resource type, canonical -> resource


class Terminology:
    """Lookups in code systems and value sets.  `find` gives the resources of packages and the store."""

    def __init__(self, find: Find | None = None) -> None:
        self._find = find
        self._systems: dict[str, CodeSystem | None] = {}
        self._sets: dict[str, Membership | None] = {}
        self._begun = threading.local()

    def system(self, url: str) -> CodeSystem | None:
        """The code system with this url; None when it is not loaded."""
        if url not in self._systems:
            self._systems[url] = self._load_system(url)
        return self._systems[url]

    def members(self, value_set: str) -> Membership | None:
        """The members of a value set; None when it is not loaded or contains itself."""
        if value_set in self._sets:
            return self._sets[value_set]
        begun: set[str] = self._begun.__dict__.setdefault("value_sets", set())  # by this thread
        if value_set in begun:
            return None
        if len(begun) >= DEEPEST:
            return Membership(unknown={""}, errors={f"value sets include each other more than {DEEPEST} deep"})
        begun.add(value_set)
        try:
            facts = self._load_set(value_set)
            found = None if facts is None else valueset.expansion_of(facts, self.system, self.members)
        finally:
            begun.remove(value_set)
        self._sets[value_set] = found
        return found

    def contains(self, value_set: str, system: str | None, code: str) -> bool | None:
        """Whether a code is in a value set; None when it cannot be decided."""
        members = self.members(value_set)
        return None if members is None else members.contains(system, code)

    def has(self, system: str, code: str) -> bool | None:
        """Whether the system has the code; None when the system is not completely loaded."""
        known = self.system(system)
        if known is None or not known.concepts:
            test = OPEN_SYSTEMS.get(system)
            return None if test is None else test(code)
        if known.find(code) is not None:
            return True
        return False if known.complete else None

    def display(self, system: str, code: str) -> str | None:
        """The display of a code; None when it is unknown."""
        known = self.system(system)
        concept = known.find(code) if known is not None else None
        return concept.display if concept is not None else None

    def is_value_set(self, url: str) -> bool:
        """Whether this is the url of a loaded value set, and not also of a code system."""
        return self.system(url) is None and self.members(url) is not None

    def subsumes(self, system: str, above: str, below: str) -> bool | None:
        """Whether `above` is `below` or an ancestor of it; None when it cannot be decided."""
        known = self.system(system)
        if known is None or known.find(above) is None or known.find(below) is None:
            return above == below or None
        return above == below or known.is_below(below, above)

    def _load_system(self, url: str) -> CodeSystem | None:
        resource = self._find("CodeSystem", url) if self._find is not None else None
        if resource is not None:
            return CodeSystem(url, codesystem.facts_of(resource), resource.get("version", ""))
        facts = _row(CODE_SYSTEMS, url)
        return CodeSystem(url, facts) if facts is not None else None

    def _load_set(self, url: str) -> Json | None:
        resource = self._find("ValueSet", url) if self._find is not None else None
        if resource is not None:
            return valueset.facts_of(resource)
        return _row(VALUE_SETS, url)


def _row(kind: str, url: str) -> Json | None:
    bare = url.partition("|")[0]
    for _, table in tables(kind):
        facts = table.get(bare)
        if facts is not None:
            return facts
    return None
