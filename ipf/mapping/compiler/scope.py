"""Variables of a map at compile time: each name gets a slot in the frame, so no name is looked up at run time."""

from __future__ import annotations

from dataclasses import dataclass, field

from ipf.mapping.compiler.kinds import UNKNOWN, Kind

Origin = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Variable:
    """A name in scope: its slot in the frame, its kind, and its side.

    `is_json`: an item of a JSON source, which may be a primitive with extensions (`FhirNode`).  `origin`: slot and
    element of the object that it was found in, which tell the type of a choice at run time; slot 0 = not known.
    `choice`: of a target of unknown kind the kinds that it may have.  `field`: the HL7 v2 field that it is, or is
    inside of (`PID-13`); empty = not known.
    """

    slot: int
    kind: Kind
    is_source: bool
    is_json: bool = False
    origin: Origin = (0, "")
    choice: tuple[Kind, ...] = ()
    field: str = ""


@dataclass(slots=True)
class Layout:
    """Slots in the frame of one group.  Slot 0 is the Run."""

    size: int = 1

    def new_slot(self) -> int:
        """The number of a new slot."""
        self.size += 1
        return self.size - 1


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that a rule can use.  `fields`: the HL7 v2 fields that the rules around it take their values from."""

    layout: Layout
    names: dict[str, Variable] = field(default_factory=dict)
    fields: tuple[str, ...] = ()

    def child(self, fields: tuple[str, ...] = ()) -> Scope:
        """A scope for a rule, with its own additions.  `fields`: of the rule; empty = those around it."""
        return Scope(self.layout, dict(self.names), fields or self.fields)

    def declare(
        self,
        name: str,
        kind: Kind,
        *,
        is_source: bool,
        is_json: bool = False,
        origin: Origin = (0, ""),
        field: str = "",
    ) -> Variable:
        """A new variable; it hides an earlier one of the same name."""
        slot = self.layout.new_slot()
        return self.bind(name, slot, kind, is_source=is_source, is_json=is_json, origin=origin, field=field)

    def declare_choice(self, name: str, kinds: tuple[Kind, ...]) -> Variable:
        """A new variable for a target that has one of these kinds at run time."""
        variable = Variable(self.layout.new_slot(), UNKNOWN, is_source=False, choice=kinds)
        self.names[name] = variable
        return variable

    def bind(
        self,
        name: str,
        slot: int,
        kind: Kind,
        *,
        is_source: bool,
        is_json: bool = False,
        origin: Origin = (0, ""),
        field: str = "",
    ) -> Variable:
        """A name for an existing slot; an empty name declares the slot only."""
        variable = Variable(slot, kind, is_source, is_json, origin, field=field)
        if name:
            self.names[name] = variable
        return variable
