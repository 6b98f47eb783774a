"""Values whose type is known only at run time, and structures of one type copied to another by the names of elements.

An item of a choice of the source has the type that its JSON name says (`valueQuantity`); a result of FHIRPath has the
type that FHIRPath gives it; any other value is typed by its content, where just one type of the element fits.  A value
without such a type is omitted, with a warning.

`src.a -> tgt.b` between different types without a default group copies the elements that both types have, converted to
the type of the target; elements that the target does not have are named in a warning.

Source: https://hl7.org/fhir/R4/mapping-language.html (default mappings), https://hl7.org/fhir/R4/formats.html#choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from ipf.fhir.fhirpath.items.nodes import FhirNode
from ipf.mapping.compiler.conversions import Convert, as_text
from ipf.mapping.compiler.kinds import Kind, Member
from ipf.mapping.compiler.models import Models
from ipf.mapping.compiler.scope import Origin
from ipf.mapping.compiler.targets.storing import Chosen, store_function, target_element
from ipf.mapping.compiler.targets.values import ALREADY, QUANTITIES, copy_of
from ipf.mapping.runtime.run import Frame, Get, Run
from ipf.ports import Json

_TEXTS = ("string", "markdown", "code", "uri", "url", "canonical", "dateTime", "date", "instant", "time", "id", "oid")
_NUMBERS = ("decimal", "integer", "positiveInt", "unsignedInt")
_COMMON = frozenset(("id", "extension", "resourceType"))


def type_in_name(owner: Any, element: str) -> str:
    """The type in the JSON name of a choice: `Quantity` for `valueQuantity` of `owner`; empty when there is none."""
    for key in owner if type(owner) is dict else ():
        name = str(key).removeprefix("_")
        rest = name[len(element) :]
        if name.startswith(element) and rest[:1].isupper():
            return rest
    return ""


class RuntimeTypes:
    """Chooses types and converts values at run time."""

    def __init__(self, models: Models, conversions: Mapping[str, Convert]) -> None:
        self._models = models
        self._conversions = conversions

    def choose(self, member: Member, value: Any, stated: str) -> Kind | None:
        """The type of an element for a value.  `stated`: the type of the value, where that is known."""
        if len(member.kinds) == 1:
            return member.kinds[0]
        for kind in member.kinds:
            if stated and stated[:1].lower() + stated[1:] == kind.name[:1].lower() + kind.name[1:]:
                return kind
        plain = value.value if type(value) is FhirNode else value
        fitting = [kind for kind in member.kinds if self._fits(kind, plain)]
        if type(plain) is str:
            fitting.sort(key=lambda kind: _TEXTS.index(kind.name) if kind.name in _TEXTS else len(_TEXTS))
            return fitting[0] if fitting else None
        general = [kind for kind in fitting if kind.name not in QUANTITIES - {"Quantity"}] or fitting
        is_number = type(plain) is not dict
        return general[0] if len(general) == 1 or (general and is_number) else None

    def in_choice(self, run: Run, type_name: str, name: str, value: Any, stated: str) -> Chosen | None:
        """See `Choose`.  A structure stays the object that it is; a text is converted to the type that it fits."""
        member = self._models.member(Kind("fhir", type_name), name)
        if member is None or not member.is_choice:
            return None
        keys = frozenset(member.keys.values())
        kind = self.choose(member, value, stated)
        if kind is None:
            if value != {}:
                run.warnings.append(f"a value for {name} was omitted: its type is not clear")
            return Chosen("", None, keys)
        key = member.keys[kind.name]
        made = value if type(value) is dict or kind.name == stated else self.convert(run, value, kind)
        return Chosen(key if made is not None else "", made, (keys | {f"_{one}" for one in keys}) - {key})

    def _fits(self, kind: Kind, value: Any) -> bool:
        if self._models.is_primitive(kind):
            if type(value) is bool or kind.name == "boolean":
                return type(value) is bool and kind.name == "boolean"
            if isinstance(value, (int, float, Decimal)):
                convert = self._conversions.get(kind.name)
                return kind.name in _NUMBERS and convert is not None and convert(as_text(value) or "") is not None
            convert = self._conversions.get(kind.name)
            return type(value) is str and convert is not None and convert(value) is not None
        if type(value) is not dict:
            return False
        return all(self._has(kind, name, one) for name, one in value.items() if name not in _COMMON)

    def _has(self, kind: Kind, name: str, value: Any) -> bool:
        """Whether a type has an element for this value."""
        member = self._member(kind, name.removeprefix("_"))
        if member is None:
            return False
        first = value[0] if type(value) is list and value else value
        is_text = self._models.is_primitive(member.kinds[0]) if member.kinds else False
        return name.startswith("_") or (type(first) is not dict) is is_text

    def _member(self, kind: Kind, name: str) -> Member | None:
        """The element with this JSON name; of a choice with the one type that the name says."""
        found = self._models.member(kind, name)
        if found is not None and not found.is_choice:
            return found
        for end in range(len(name) - 1, 0, -1):
            if name[end].isupper():
                member = self._models.member(kind, name[:end])
                if member is not None:
                    return self._narrowed(member, name[end:])
        return None

    def _narrowed(self, member: Member, stated: str) -> Member | None:
        """A choice with the one type `stated`; an element of one type as it is."""
        if not member.is_choice:
            return member
        for kind in member.kinds:
            if kind.name[:1].upper() + kind.name[1:] == stated:
                return Member(member.keys[kind.name], member.many, (kind,), {})
        return None

    def convert(self, run: Run, value: Any, kind: Kind) -> Any:
        """The value as `kind`; None when that has nothing of it."""
        if self._models.is_primitive(kind):
            return self._primitive(run, value, kind)
        if type(value) is not dict:
            text = as_text(value)
            if kind.name == "Reference" and text:
                return {"reference": text}
            run.warnings.append(f"a value that is no {kind.name} was omitted")
            return None
        if not self._models.is_modelled(kind):
            return copy_of(value, run)
        return self._by_name(run, value, kind) or None

    def _primitive(self, run: Run, value: Any, kind: Kind) -> Any:
        if type(value) in ALREADY.get(kind.name, ()) or (isinstance(value, Decimal) and kind.name == "decimal"):
            return value
        convert, text = self._conversions.get(kind.name), as_text(value)
        found = text if convert is None else convert(text) if text else None
        if found is None:
            run.warnings.append(f"a value that is no {kind.name} was omitted")
        return found

    def _by_name(self, run: Run, value: Json, kind: Kind) -> Json:
        made: Json = {}
        for name, one in value.items():
            if name == "resourceType" or name.startswith("_"):
                continue
            member = self._member(kind, name) or self._chosen(kind, name, one)
            if member is None:
                run.warnings.append(f"{kind.name} has no element {name}: it was omitted")
                continue
            given = one if type(one) is list else [one]
            run.spend(len(given))
            items = [self.convert(run, item, member.kinds[0]) for item in given]
            kept = [item for item in items if item is not None]
            if kept:
                made[member.key] = kept if member.many else kept[0]
            if kept and len(kept) == len(items) and "_" + name in value:
                made["_" + member.key] = copy_of(value["_" + name], run)
        return made

    def _chosen(self, kind: Kind, name: str, value: Any) -> Member | None:
        """The element `name[x]` for a value of one type in the source."""
        member = self._models.member(kind, name)
        found = None if member is None else self.choose(member, value, "")
        return None if member is None or found is None else Member(member.keys[found.name], member.many, (found,), {})


Put = Callable[[Frame], Any]


def typed_putter(
    types: RuntimeTypes,
    member: Member,
    name: str,
    slot: int,
    get: Get,
    source: tuple[str, Origin],
    *,
    is_named: bool,
) -> Put:
    """Stores a value, whose type is chosen at run time, in the element `name` of the object in `slot`.

    `source`: the type of the value where it is known, and the origin of its variable.  `is_named`: a variable names it,
    so it may get further elements.  Returns the stored value.
    """
    stores = {kind.name: target_element(member, name, kind, slot) for kind in member.kinds}
    known, (owner_slot, element) = source

    def put(frame: Frame) -> Any:
        given, run, owner = get(frame), frame[0], frame[slot]
        if given is None:
            return None
        if hasattr(given, "children") and type(given) is not FhirNode:
            given = given.text
        stated = known or (type_in_name(frame[owner_slot], element) if owner_slot else "")
        kind = types.choose(member, given, stated)
        if kind is None:
            run.warnings.append(f"a value for {name} was omitted: its type is not clear")
            return None
        target, plain = stores[kind.name], given.value if type(given) is FhirNode else given
        made = None if plain is None else types.convert(run, plain, kind)
        if made is not None:
            store_function(target)(owner, made)
            if is_named and type(made) is dict:
                run.note_copy(made, kind.name if kind.model == "fhir" else "")
        if type(given) is FhirNode and not target.many:
            owner["_" + target.key] = copy_of(given.extra, run)
        return made

    return put
