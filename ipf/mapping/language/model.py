"""A StructureMap as frozen records, for the grammar, the printer and the compiler.

The records follow the elements of the StructureMap resource, so text and JSON are two notations of one map.  `place`
(line and column) is not compared: a map read from JSON equals the same map read from text.

Source: https://hl7.org/fhir/R4/structuremap.html, https://hl7.org/fhir/R5/structuremap.html.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

AUTO_VARIABLE = "vvv"
"""Variable of both sides of a simple rule (`src.a -> tgt.b`) in the reference implementations."""


class Place(NamedTuple):
    """A position in the text of a map; counted from 1, 0 for a map from JSON."""

    line: int = 0
    column: int = 0


NOWHERE = Place()


def _nowhere() -> Place:
    return NOWHERE


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a transform or a group call.

    `kind`: `id` (a variable), `string`, `boolean`, `integer`, `decimal`, or a date kind (`date`, `dateTime`, `time`).
    """

    kind: str
    value: str | bool | int | Decimal


@dataclass(frozen=True, slots=True)
class Structure:
    """`uses "url" alias X as mode`; mode: source, queried, target or produced."""

    url: str
    mode: str
    alias: str = ""
    documentation: str = ""


@dataclass(frozen=True, slots=True)
class Constant:
    """`let name = expression;` (R5)."""

    name: str
    expression: str
    place: Place = field(default_factory=_nowhere, compare=False)


@dataclass(frozen=True, slots=True)
class Code:
    """`prefix:code`; `display` occurs only in ConceptMaps from JSON."""

    prefix: str
    code: str


@dataclass(frozen=True, slots=True)
class CodePair:
    """One row of a concept map: source code, relationship (an R4 equivalence), target code."""

    source: Code
    equivalence: str
    target: Code | None


@dataclass(frozen=True, slots=True)
class ConceptTable:
    """`conceptmap "#name" { ... }`: a ConceptMap contained in the map.

    `prefixes`: (prefix, system) in order.  `unmapped`: (source prefix, mode) in order.  `id`: of a contained ConceptMap
    whose url is another; rules name it `#id`.
    """

    url: str
    prefixes: tuple[tuple[str, str], ...]
    unmapped: tuple[tuple[str, str], ...]
    rows: tuple[CodePair, ...]
    id: str = ""

    @property
    def local_name(self) -> str:
        """The id of the contained ConceptMap: without `#`."""
        return self.id or self.url.removeprefix("#")


@dataclass(frozen=True, slots=True)
class Input:
    """One parameter of a group; mode source or target; type empty = not declared."""

    name: str
    mode: str
    type: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a rule: `context.element : type min..max default list_mode as variable ...`.

    `element` may be a dotted path.  `default`: a literal; `default_expression`: FHIRPath (R5).  `condition`, `check`
    and `log_message` are FHIRPath texts.
    """

    context: str
    element: str = ""
    type: str = ""
    minimum: int | None = None
    maximum: str = ""
    default: Parameter | None = None
    default_expression: str = ""
    list_mode: str = ""
    variable: str = ""
    condition: str = ""
    check: str = ""
    log_message: str = ""
    place: Place = field(default_factory=_nowhere, compare=False)


@dataclass(frozen=True, slots=True)
class Target:
    """The product of a rule: `context.element = transform(parameters) as variable list_modes`."""

    context: str = ""
    element: str = ""
    variable: str = ""
    transform: str = ""
    parameters: tuple[Parameter, ...] = ()
    list_modes: tuple[str, ...] = ()
    list_rule_id: str = ""
    place: Place = field(default_factory=_nowhere, compare=False)


@dataclass(frozen=True, slots=True)
class Dependent:
    """`then name(parameters)`."""

    name: str
    parameters: tuple[Parameter, ...]
    place: Place = field(default_factory=_nowhere, compare=False)


@dataclass(frozen=True, slots=True)
class Rule:
    """`sources -> targets then dependents { rules } "name";`."""

    name: str
    sources: tuple[Source, ...]
    targets: tuple[Target, ...] = ()
    rules: tuple[Rule, ...] = ()
    dependents: tuple[Dependent, ...] = ()
    documentation: str = ""
    place: Place = field(default_factory=_nowhere, compare=False)

    @property
    def is_simple(self) -> bool:
        """`src.a -> tgt.b`: the types of the two sides select the group."""
        return (
            len(self.sources) == 1
            and len(self.targets) == 1
            and not self.rules
            and not self.dependents
            and self.targets[0].transform == "create"
            and not self.targets[0].parameters
            and bool(self.sources[0].variable)
            and bool(self.targets[0].variable)
        )


@dataclass(frozen=True, slots=True)
class Group:
    """A group of rules.  `type_mode`: none, types or type-and-types."""

    name: str
    inputs: tuple[Input, ...]
    rules: tuple[Rule, ...]
    extends: str = ""
    type_mode: str = "none"
    documentation: str = ""
    place: Place = field(default_factory=_nowhere, compare=False)


@dataclass(frozen=True, slots=True)
class Ignored:
    """A field that a map ignores on purpose, and why.  `number` 0: the whole segment, or an element of a resource
    (`Encounter.status`) whose earlier value is replaced.  `part`: of the field, a component or REPETITIONS
    (`ipf.hl7.reads`); 0 = all of it.  Of a data type (`CX`) `number` is 0.
    """

    segment: str
    number: int
    reason: str
    file: str
    place: Place
    part: int = 0


@dataclass(frozen=True, slots=True)
class Deleted:
    """Fields (`PV1-45`) whose stored values an event (`A13`) deletes, unless its message has a value."""

    event: str
    field: str


@dataclass(frozen=True, slots=True)
class StructureMap:
    """A whole map.  `metadata`: the `///` pairs beyond url, name, title, status and description, in order.

    `file`: name of the text for error messages.  `ignored`, `initial` (rules, as `Group.rule`) and `deleted`: from
    comments (`language.notes`).  None of these is compared.
    """

    url: str
    name: str
    title: str = ""
    status: str = "draft"
    description: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    structures: tuple[Structure, ...] = ()
    imports: tuple[str, ...] = ()
    constants: tuple[Constant, ...] = ()
    concept_tables: tuple[ConceptTable, ...] = ()
    groups: tuple[Group, ...] = ()
    file: str = field(default="", compare=False)
    ignored: tuple[Ignored, ...] = field(default=(), compare=False)
    initial: frozenset[str] = field(default=frozenset(), compare=False)
    deleted: tuple[Deleted, ...] = field(default=(), compare=False)
    import_places: tuple[Place, ...] = field(default=(), compare=False)

    def meta(self, key: str) -> str:
        """Value of a `/// key = value` line; empty when absent."""
        return next((value for name, value in self.metadata if name == key), "")


def derived_rule_name(sources: tuple[Source, ...]) -> str:
    """Name of a rule without a name: the element of its first source, else the context."""
    first = sources[0]
    return first.element or first.context
