"""Code systems and value sets by url, from packages, the store and the shipped tables.

Resources of packages and of the store that list codes precede imported systems, and these the shipped tables.  Results
are cached.  Lookups do no IO; the result is None when the loaded definitions do not decide it.  Of imported systems,
`remember` gets the facts of the concepts that will be asked for.

Source: https://hl7.org/fhir/R4/terminology-service.html
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipf.errors import Problem
from ipf.fhir.profiles.tables import CODE_SYSTEMS, VALUE_SETS, tables
from ipf.fhir.terminology import codesystem, valueset
from ipf.fhir.terminology.codesystem import CodeSystem
from ipf.fhir.terminology.implicit import implicit_set
from ipf.fhir.terminology.open_systems import OPEN_SYSTEMS
from ipf.fhir.terminology.valueset import Membership
from ipf.ports.fhir.terminology import Facts, ImportedSystem

Json = dict[str, Any]
DEEPEST = 50  # value sets that include one another
MOST_FACTS = 50_000  # concepts of imported systems that are remembered
MOST_URLS = 20_000
"""Systems, and value sets, whose results are remembered, also of URLs that clients make up; one more, and all are
forgotten."""
Find = Callable[[str, str], Json | None]  # resource type, canonical -> resource


class Terminology:
    """Lookups in code systems and value sets.  `find` gives the resources of packages and the store.

    `supplements`: CodeSystems that add to others.  `versions`: of systems where a value set names none; `forced`:
    whatever it names.
    """

    def __init__(
        self,
        find: Find | None = None,
        imported: Sequence[ImportedSystem] = (),
        supplements: Sequence[Json] = (),
        versions: Mapping[str, str] | None = None,
        forced: Mapping[str, str] | None = None,
    ) -> None:
        self._find = find
        self.imported_systems = tuple(imported)
        self._supplements = tuple(supplements)
        self._versions, self._forced = versions or {}, forced or {}
        self._facts: dict[tuple[int, str], Facts | None] = {}
        self._systems: dict[str, CodeSystem | None] = {}
        self._sets: dict[str, Membership | None] = {}
        self._begun = threading.local()

    def resource(self, resource_type: str, canonical: str) -> Json | None:
        """The resource of a client or a package with this canonical; None without one, or in another version."""
        return self._find(resource_type, canonical) if self._find is not None else None

    def system(self, canonical: str) -> CodeSystem | None:
        """The code system with this canonical; None when it is not loaded, or a resource of another version."""
        try:
            return self._systems[canonical]
        except KeyError:
            _make_room(self._systems)
            found = self._systems[canonical] = self._load_system(canonical)
            return found

    def imported(self, canonical: str) -> ImportedSystem | None:
        """The imported system that a canonical means; None when it is not imported, or a client stored its codes."""
        url, _, version = canonical.partition("|")
        found = [one for one in self.imported_systems if one.url == url]
        if not found or ((known := self.system(url)) is not None and known.is_resource and known.concepts):
            return None
        if not version:
            return next((one for one in found if one.is_current), None)
        exact = [one for one in found if one.version == version]
        of_edition = [one for one in found if one.version.startswith(f"{version}/")]
        return next(iter([*exact, *of_edition[::-1]]), None)

    def source(self, canonical: str) -> CodeSystem | ImportedSystem | None:
        """Where the codes of a system are; None when it is not loaded, or not in this version."""
        url, _, version = canonical.partition("|")
        wanted = self._forced.get(url) or version or self._versions.get(url, "")
        found = self.imported(f"{url}|{wanted}")
        if found is not None:
            return found
        if self.imported(url) is not None:
            return None
        known = (self.system(f"{url}|{wanted}") if wanted else None) or self.system(url)
        is_other = known is not None and url in self._forced and known.version not in ("", wanted)
        return None if is_other else known

    def with_versions(self, versions: Mapping[str, str], forced: Mapping[str, str]) -> Terminology:
        """The same definitions, with these versions of systems."""
        return Terminology(self._find, self.imported_systems, self._supplements, versions, forced)

    def with_resources(self, sent: Sequence[Json]) -> Terminology:
        """The same definitions, with these resources before all others of their canonical."""
        own = {(one["resourceType"], str(one.get("url", ""))): one for one in sent}
        own |= {(kind, f"{url}|{one['version']}"): one for (kind, url), one in own.items() if one.get("version")}
        supplements = [one for one in sent if one["resourceType"] == "CodeSystem" and "supplements" in one]

        def find(resource_type: str, canonical: str) -> Json | None:
            return own.get((resource_type, canonical)) or self.resource(resource_type, canonical)

        supplements = [*self._supplements, *supplements]
        return Terminology(find, self.imported_systems, supplements, self._versions, self._forced)

    def supplements(self, url: str) -> list[CodeSystem]:
        """The supplements of a code system, as code systems."""
        found = [one for one in self._supplements if str(one.get("supplements", "")).partition("|")[0] == url]
        return [CodeSystem(str(one.get("url", "")), codesystem.facts_of(one)) for one in found]

    def remember(self, system: ImportedSystem, codes: Sequence[str], found: Mapping[str, Facts]) -> None:
        """Keep what an imported system has of these codes."""
        if len(self._facts) + len(codes) > MOST_FACTS:
            self._facts.clear()
        for code in codes:
            self._facts[system.id, code] = found.get(code)

    def lacks(self, system: ImportedSystem, code: str) -> bool:
        """Whether nobody has asked for a code of an imported system."""
        return (system.id, code) not in self._facts

    def facts_of(self, system: ImportedSystem, code: str) -> Facts | bool | None:
        """Remembered facts of a concept; False: the system has no such code; None: nobody has asked for it."""
        found = self._facts.get((system.id, code), True)
        return False if found is None else None if found is True else found

    def members(self, value_set: str) -> Membership | None:
        """The members of a value set; None when it is not loaded or contains itself."""
        try:
            return self._sets[value_set]
        except KeyError:
            pass
        begun: set[str] = self._begun.__dict__.setdefault("value_sets", set())  # by this thread
        if value_set in begun:
            return None
        if len(begun) >= DEEPEST:
            return Membership(unknown={""}, errors={f"value sets include each other more than {DEEPEST} deep"})
        begun.add(value_set)
        try:
            facts = self._load_set(value_set)
            found = None if facts is None else self.expansion(facts)
        finally:
            begun.remove(value_set)
        _make_room(self._sets)
        self._sets[value_set] = found
        return found

    def expansion(self, facts: Json) -> Membership:
        """The members of a value set's facts, within the budget of the value set that includes it, if one does."""
        begun, around = self._begun, getattr(self._begun, "budget", None)
        if around is not None:
            return valueset.expansion_of(facts, self.source, self.members, self.facts_of, around)
        left = begun.budget = valueset.budget()
        try:
            return valueset.expansion_of(facts, self.source, self.members, self.facts_of, left)
        except Problem as problem:
            return valueset.costly(problem.text)
        finally:
            begun.budget = None

    def contains(self, value_set: str, system: str | None, code: str) -> bool | None:
        """Whether a code is in a value set; None when it cannot be decided."""
        members = self.members(value_set)
        return None if members is None else members.contains(system, code)

    def has(self, system: str, code: str) -> bool | None:
        """Whether the system has the code; None when the system is not completely loaded."""
        imported = self.imported(system)
        if imported is not None:
            facts = self.facts_of(imported, code)
            return None if facts is None else facts is not False
        known = self.system(system)
        if known is None or not known.concepts:
            test = OPEN_SYSTEMS.get(system)
            return None if test is None else test(code)
        if known.find(code) is not None:
            return True
        return False if known.complete else None

    def display(self, system: str, code: str) -> str | None:
        """The display of a code; None when it is unknown."""
        imported = self.imported(system)
        if imported is not None:
            facts = self.facts_of(imported, code)
            return facts.display if isinstance(facts, Facts) else None
        known = self.system(system)
        concept = known.find(code) if known is not None else None
        return concept.display if concept is not None else None

    def is_value_set(self, url: str) -> bool:
        """Whether this is the url of a loaded value set, and not also of a code system."""
        return self.system(url) is None and self.members(url) is not None

    def subsumes(self, system: str, above: str, below: str) -> bool | None:
        """Whether `above` is `below` or an ancestor of it; None when it cannot be decided."""
        imported = self.imported(system)
        if imported is not None:
            facts = self.facts_of(imported, below)
            return above in facts.ancestors if isinstance(facts, Facts) else above == below or None
        known = self.system(system)
        if known is None or known.find(above) is None or known.find(below) is None:
            return above == below or None
        return above == below or known.is_below(below, above)

    def above(self, system: str, code: str) -> set[str]:
        """The ancestors of a code, as far as they are known."""
        imported = self.imported(system)
        if imported is not None:
            facts = self.facts_of(imported, code)
            return set(facts.ancestors) - {code} if isinstance(facts, Facts) else set()
        known = self.system(system)
        return known.above(code) if known is not None else set()

    def _load_system(self, canonical: str) -> CodeSystem | None:
        resource, url = self.resource("CodeSystem", canonical), canonical.partition("|")[0]
        if resource is not None:
            return CodeSystem(url, codesystem.facts_of(resource), resource.get("version", ""), is_resource=True)
        facts = _row(CODE_SYSTEMS, url)
        return CodeSystem(url, facts) if facts is not None else None

    def _load_set(self, url: str) -> Json | None:
        resource = self.resource("ValueSet", url)
        if resource is not None:
            return valueset.facts_of(resource)
        return _row(VALUE_SETS, url) or implicit_set(url)


def _make_room(remembered: dict[str, Any]) -> None:
    if len(remembered) >= MOST_URLS:
        remembered.clear()


def _row(kind: str, url: str) -> Json | None:
    bare = url.partition("|")[0]
    for _, table in tables(kind):
        facts = table.get(bare)
        if facts is not None:
            return facts
    return None
