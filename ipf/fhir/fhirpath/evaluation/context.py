"""The state of one evaluation, and the functions of its host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from ipf.fhir.fhirpath.errors import BudgetError, FhirPathError
from ipf.fhir.fhirpath.items.model import Model
from ipf.fhir.fhirpath.items.nodes import FhirNode, Items, wrap_all, wrapped
from ipf.fhir.fhirpath.items.operators import text, truth

MAX_STEPS = 1_000_000
MAX_ITEMS = 1_000_000
LOOKUP_STEPS = 100
"""What a call of a function of the host counts: a lookup, or a validation, is no step of a path."""
CHARACTERS_OF_A_STEP = 64
FEW = 8
"""So many items are part of the step that reads them."""
_UNORDERED = 1000
_CONSTANTS = {
    "sct": "http://snomed.info/sct",
    "loinc": "http://loinc.org",
    "ucum": "http://unitsofmeasure.org",
    "vs": "http://hl7.org/fhir/ValueSet/",
    "ext": "http://hl7.org/fhir/StructureDefinition/",
}


def _now() -> datetime:
    return datetime.now(UTC)


def _size(value: Any) -> int:
    """The number of values in JSON; `~` may compare the items of a list each with each."""
    if type(value) is dict:
        return 1 + sum(map(_size, value.values()))
    if type(value) is list:
        return len(value) + pairs(len(value)) + sum(map(_size, value))
    return 1


def pairs(items: int) -> int:
    """What the comparison of so many items each with each counts."""
    return min(items, _UNORDERED) ** 2 // 10


class Budget(Protocol):
    """Steps that several evaluations share, such as those of one run of a map."""

    steps_left: int


@dataclass(frozen=True, slots=True)
class Host:
    """The functions of the environment that an expression may call.  Each may be absent.

    `resolve(reference)` gives a resource or None.  `member_of(json, value_set)` and `conforms_to(json, profile)` give
    True, False or None (cannot be known).  `subsumes(coding_a, coding_b)` likewise.  `element_definition(path)` gives
    the ElementDefinition of `Patient.contact` or `HumanName.family`, None when there is none.  `in_slice(node, profile,
    name)` says whether an item belongs to a slice; FhirPathError for an unknown one.  `trace(name, values)` receives
    what `trace()` shows (it may hold patients' data: never log it).  `clock` gives the time of `now()`.  `steps`: how
    many an evaluation may take.

    `several_are_true`: several items where a boolean is needed count as true, as in the engine of Firely, with which
    published topics are tested.  Otherwise they are an error, as the specification has it
    (https://hl7.org/fhirpath/N1/#singleton-evaluation-of-collections).
    """

    resolve: Callable[[str], Any] | None = None
    member_of: Callable[[Any, str], bool | None] | None = None
    conforms_to: Callable[[Any, str], bool | None] | None = None
    subsumes: Callable[[Any, Any], bool | None] | None = None
    element_definition: Callable[[str], Any] | None = None
    in_slice: Callable[[Any, str, str], bool | None] | None = None
    trace: Callable[[str, list[Any]], None] | None = None
    clock: Callable[[], datetime] = _now
    several_are_true: bool = False
    steps: int = MAX_STEPS


class Context:
    """The values of `%name`, `$index` and `$total`, and the step limit.  One instance per evaluation.

    `items`: what is evaluated, of type `kind` as in `Code`.  `entries`: the resources of its Bundle, for `resolve()`.
    `limit`: the steps at the start; `steps`: those that are left.  The evaluation sets the slots: a call of a
    constructor, or attributes in a dict, would take as long as a short expression.
    """

    __slots__ = ("entries", "host", "index", "items", "kind", "limit", "model", "moment", "steps", "total", "variables")

    entries: dict[str, Any] | None
    items: Items
    kind: str | None
    model: Model
    limit: int
    variables: Mapping[str, Any]
    host: Host
    steps: int
    index: int | None
    total: Items
    moment: datetime | None

    @property
    def focus(self) -> Items:
        """The items that are evaluated, with their types."""
        return wrapped(self.items, self.kind)

    def spend(self, steps: int = 1) -> None:
        """Count steps; FhirPathError beyond the limit, so that every evaluation ends."""
        self.steps -= steps
        if self.steps < 0:
            raise BudgetError(f"the budget of {self.limit} steps of an expression is used up")

    def spend_on_items(self, items: Items) -> Items:
        """Count the work on items, if they are many; returns them."""
        if len(items) > FEW:
            self.spend(len(items))
        return items

    def spend_on(self, *collections: Items) -> None:
        """Count a comparison by content: a structure counts with all that it contains."""
        for items in collections:
            self.spend_on_items(items)
            for item in items:
                if type(item) is FhirNode and type(item.value) is dict:
                    self.spend(_size(item.value))

    def text(self, value: str) -> Items:
        """A text as a result, of bounded length; all texts of an evaluation are bounded, too."""
        if len(value) <= CHARACTERS_OF_A_STEP:
            return [value]
        self.spend_on_text(value)
        return text(value)

    def spend_on_text(self, value: str) -> None:
        """Count the work on a text."""
        if len(value) > CHARACTERS_OF_A_STEP:
            self.spend(len(value) // CHARACTERS_OF_A_STEP)

    def truth(self, items: Items) -> bool | None:
        """A collection as a boolean: empty is None, one item that is no boolean counts as true."""
        if len(items) > 1 and self.host.several_are_true:
            return True
        return truth(items)

    def now(self) -> datetime:
        """The time of this evaluation; constant during it."""
        if self.moment is None:
            self.moment = self.host.clock()
        return self.moment

    def variable(self, name: str) -> Items:
        """The value of `%name`; an unknown name is an error."""
        if name in self.variables:
            return self.spend_on_items(wrap_all(self.variables[name]))
        if name == "context":
            return self.spend_on_items(self.focus)
        if name in ("resource", "rootResource"):
            return [item for item in self.spend_on_items(self.focus) if type(item) is FhirNode]
        constant = _CONSTANTS.get(name)
        if constant is not None:
            return [constant]
        prefix, mark, rest = name.partition("-")
        if mark and prefix in ("vs", "ext"):
            return [_CONSTANTS[prefix] + rest]
        raise FhirPathError(f"unknown variable %{name}")
