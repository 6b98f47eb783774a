"""Groups of maps, resolved: names of types and of groups, imports, default groups, and groups that extend others.

An unknown name is an FmlError with file, line and column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial

from ipf.fhir.fhirpath import Host
from ipf.mapping.compiler.components import Components
from ipf.mapping.compiler.conversions import Convert, conversions
from ipf.mapping.compiler.kinds import UNKNOWN, Kind
from ipf.mapping.compiler.models import ABSTRACT, Models
from ipf.mapping.compiler.v2 import field_count
from ipf.mapping.language.concepts import ConceptTables
from ipf.mapping.language.identity_table import IdentityTable
from ipf.mapping.language.lexer import FmlError
from ipf.mapping.language.model import NOWHERE, Group, Ignored, Place, Rule, StructureMap
from ipf.mapping.runtime.zone import Offset

MAX_GROUPS = 2000
"""Groups of one map; HL7's largest map has 60."""
MAX_PARTS = 2000
"""Sources, targets and calls of one group, which becomes one Python function; HL7's largest map has 400."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Models, tables and settings of an installation.  `offset`: zone of source times without an offset.

    `host`: what FHIRPath in maps may access beyond its data: value sets (`memberOf`), profiles, other resources.
    `identity`: which numbers of a Patient identify.  `without_patient`: message types that need no PID.
    """

    models: Models = field(default_factory=Models)
    tables: ConceptTables = field(default_factory=ConceptTables)
    offset: Offset = "Z"
    host: Host = field(default_factory=Host)
    identity: IdentityTable = field(default_factory=IdentityTable)
    without_patient: frozenset[str] = frozenset()


class Unit:
    """One map and its imports: resolves names of groups and types."""

    def __init__(
        self,
        content: StructureMap,
        maps: Mapping[str, StructureMap],
        environment: Environment,
        matching: Callable[[str], Sequence[str]],
    ) -> None:
        _check_groups(content)
        self.content = content
        self.models = environment.models
        self.tables = environment.tables
        if content.concept_tables:
            self.tables = environment.tables.with_local(content.concept_tables, content.url)
        self.visible = list(_visible(content, maps, matching))
        self._aliases = {one.alias: one.url for one in content.structures if one.alias}
        self._names = {one.url.rpartition("/")[2].rpartition(":")[2]: one.url for one in content.structures}

    def kind(self, name: str, place: Place, *, is_source: bool) -> Kind:
        """The kind that a type name means in this map."""
        if not name:
            return UNKNOWN
        url = self._aliases.get(name) or self._names.get(name)
        if url is not None:
            return self.models.kind_of_url(url)
        found = self.models.kind_of_name(name)
        if found is not None:
            return found
        if is_source:
            return Kind("v2", name)
        raise FmlError(f"unknown type '{name}': declare it with 'uses'", self.content.file, place)


def _check_groups(content: StructureMap) -> None:
    """FmlError for the second group of one name, and for more rules than one function is compiled from."""
    names: set[str] = set()
    if len(content.groups) > MAX_GROUPS:
        raise FmlError(f"has more than {MAX_GROUPS} groups: divide it", content.file, content.groups[MAX_GROUPS].place)
    for group in content.groups:
        if parts_of(group.rules) > MAX_PARTS:
            text = f"the group '{group.name}' has more than {MAX_PARTS} rules, sources and targets: divide it"
            raise FmlError(text, content.file, group.place)
        if group.name in names:
            raise FmlError(f"there is already a group '{group.name}' in this map", content.file, group.place)
        names.add(group.name)


def parts_of(rules: Sequence[Rule]) -> int:
    """Sources, targets, calls of groups and nested rules of these rules."""
    own = (len(one.sources) + len(one.targets) + len(one.dependents) for one in rules)
    return sum(own) + sum(parts_of(one.rules) for one in rules)


def _visible(
    content: StructureMap, maps: Mapping[str, StructureMap], matching: Callable[[str], Sequence[str]]
) -> Iterable[StructureMap]:
    """The map itself, then its imports in order, then theirs; each once.  FmlError: an import finds no map."""
    places = content.import_places or (NOWHERE,) * len(content.imports)
    for pattern, place in zip(content.imports, places, strict=True):
        if not any(url != content.url or "*" not in pattern for url in matching(pattern)):
            raise FmlError(f"no map is installed that '{pattern}' matches", content.file, place)
    seen: dict[str, StructureMap] = {content.url: content}
    queue = [content]
    while queue:
        current = queue.pop(0)
        for pattern in current.imports:
            for url in matching(pattern):
                if url not in seen:
                    seen[url] = maps[url]
                    queue.append(maps[url])
    return seen.values()


def _matching(maps: Mapping[str, StructureMap], pattern: str) -> list[str]:
    if "*" in pattern:
        return [url for url in maps if fnmatchcase(url, pattern.replace("[", "[[]").replace("?", "[?]"))]
    plain = pattern.partition("|")[0]
    return [plain] if plain in maps else []


class Groups:
    """The groups of a set of maps.  `traced`: the compiled rules write a trace."""

    def __init__(
        self,
        maps: Iterable[StructureMap] | Mapping[str, StructureMap],
        environment: Environment,
        *,
        traced: bool = False,
    ) -> None:
        self.maps = maps if isinstance(maps, Mapping) else {one.url: one for one in maps}
        self.environment = environment
        self.conversions: Mapping[str, Convert] = conversions(environment.offset)
        self.traced = traced
        self._matching = cache(partial(_matching, self.maps))  # all maps import the same few patterns
        self._units: dict[str, Unit] = {}
        self.defaults: dict[str, list[object]] = {}  # literals that compiled rules write, by path
        self.known_sources: dict[str, dict[str, frozenset[str]]] = {}  # fields by resource type and element
        self._groups: dict[str, dict[str, tuple[StructureMap, Group]]] = {}
        self._found: dict[tuple[str, str], tuple[StructureMap, Group] | None] = {}
        self.components = Components(self._named)

    def unit(self, content: StructureMap) -> Unit:
        """The map with its names resolved."""
        found = self._units.get(content.url)
        if found is None:
            check_ignored(content.ignored, self.environment.models)
            found = self._units[content.url] = Unit(content, self.maps, self.environment, self._matching)
        return found

    def find_group(self, unit: Unit, name: str, place: Place = NOWHERE) -> tuple[StructureMap, Group] | None:
        """A group by name, in the map itself, then in its imports.  `place`: where the map names it.

        FmlError: several imports have a group of this name.
        """
        key = (unit.content.url, name)
        if key not in self._found:  # a map uses few of the visible names
            self._found[key] = self._search(unit, name, place)
        return self._found[key]

    def _named(self, content: StructureMap, name: str) -> tuple[StructureMap, Group] | None:
        return self.find_group(self.unit(content), name)

    def _search(self, unit: Unit, name: str, place: Place) -> tuple[StructureMap, Group] | None:
        own = self._own(unit.content).get(name)
        if own is not None:
            return own
        found = [one for content in unit.visible if (one := self._own(content).get(name)) is not None]
        if len(found) > 1:
            maps = " and ".join(content.url for content, _ in found[:2])
            raise FmlError(f"two imported groups are named '{name}': in {maps}", unit.content.file, place)
        return found[0] if found else None

    def _own(self, content: StructureMap) -> Mapping[str, tuple[StructureMap, Group]]:
        """The groups of one map by name."""
        found = self._groups.get(content.url)
        if found is None:
            found = self._groups[content.url] = {one.name: (content, one) for one in content.groups}
        return found

    def typed_group(self, unit: Unit, source: Kind, target: Kind) -> tuple[StructureMap, Group] | None:
        """The default group for a pair of types (`<<types>>`, `<<type+>>`)."""
        for content in unit.visible:
            other = self.unit(content)
            for group in content.groups:
                if group.type_mode != "none" and len(group.inputs) > 1 and _fits(other, group, source, target):
                    return content, group
        return None

    def parameter_kinds(self, unit: Unit, group: Group, kinds: Sequence[Kind]) -> list[Kind]:
        """Kind of each parameter: of the argument, unless the declaration is more specific."""
        declared = [unit.kind(one.type, group.place, is_source=one.mode == "source") for one in group.inputs]
        return [_more_exact(given, wanted) for given, wanted in zip(kinds, declared, strict=False)]

    def lineage(self, unit: Unit, group: Group) -> list[tuple[Unit, Group]]:
        """The groups that this one extends, the most general first, then itself."""
        line = [(unit, group)]
        while line[0][1].extends:
            owner, part = line[0]
            found = self.find_group(owner, part.extends, part.place)
            if found is None:
                raise FmlError(f"no group '{part.extends}' in this map or its imports", owner.content.file, part.place)
            if any(found[1] is one for _, one in line):
                raise FmlError(f"group '{part.extends}' extends itself", owner.content.file, part.place)
            line.insert(0, (self.unit(found[0]), found[1]))
        return line


def check_ignored(declared: Iterable[Ignored], models: Models) -> None:
    """FmlError for a declaration about a segment or field that HL7 v2 does not have, or an element that FHIR has not.

    Z segments are a site's own.
    """
    for one in declared:
        owner, _, element = one.segment.rpartition(".")
        if owner and models.member(Kind("fhir", owner), element) is None:
            raise FmlError(f"there is no element {one.segment}", one.file, one.place)
        if owner or one.segment.startswith("Z"):
            continue
        if one.part and not one.number:  # a data type, of which some have no table
            continue
        count = field_count(one.segment)
        if not count:
            raise FmlError(f"there is no segment {one.segment}", one.file, one.place)
        if one.number > count:
            text = f"there is no field {one.segment}-{one.number}: {one.segment} has {count} fields"
            raise FmlError(text, one.file, one.place)


def _more_exact(given: Kind, declared: Kind) -> Kind:
    if not given.is_known:
        return declared if declared.is_known else given
    return declared if given.name in ABSTRACT and declared.is_known else given


def _fits(unit: Unit, group: Group, source: Kind, target: Kind) -> bool:
    first, second = group.inputs[0], group.inputs[1]
    if first.mode != "source" or second.mode != "target" or not first.type or not second.type:
        return False
    wanted = unit.kind(first.type, NOWHERE, is_source=True), unit.kind(second.type, NOWHERE, is_source=False)
    if wanted == (source, target):
        return True
    return group.type_mode == "type-and-types" and wanted[0] == source and not target.is_known
