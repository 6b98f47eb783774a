"""Variables of a map at compile time: each name gets a slot in the frame, so no name is looked up at run time."""

from __future__ import annotations

from dataclasses import dataclass, field

from ipf.mapping.compiler.kinds import Kind


@dataclass(frozen=True, slots=True)
class Variable:
    """A name in scope: its place in the frame, what is known of it, and whether it belongs to the source side.

    `is_json`: an item of a JSON source, which may be a primitive with extensions (`FhirNode`).
    """

    slot: int
    kind: Kind
    is_source: bool
    is_json: bool = False


@dataclass(slots=True)
class Layout:
    """Places in the frame of one group.  Place 0 is the Run."""

    size: int = 1

    def new_slot(self) -> int:
        """The number of a new slot."""
        self.size += 1
        return self.size - 1


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that a rule sees, and how its map names itself in errors."""

    layout: Layout
    names: dict[str, Variable] = field(default_factory=dict)

    def child(self) -> Scope:
        """A scope for a rule: what it adds is not seen outside."""
        return Scope(self.layout, dict(self.names))

    def declare(self, name: str, kind: Kind, *, is_source: bool, is_json: bool = False) -> Variable:
        """A new variable; an older one of the same name is hidden."""
        return self.bind(name, self.layout.new_slot(), kind, is_source=is_source, is_json=is_json)

    def bind(self, name: str, slot: int, kind: Kind, *, is_source: bool, is_json: bool = False) -> Variable:
        """A name for a place that is there already.  Without a name it can only be used by its place."""
        variable = Variable(slot, kind, is_source, is_json)
        if name:
            self.names[name] = variable
        return variable
