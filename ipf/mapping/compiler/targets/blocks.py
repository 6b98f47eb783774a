"""Blocks of targets: elements bound to names, values inserted into lists, references, primitives with extensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ipf.fhir.fhirpath.items.nodes import FhirNode
from ipf.mapping.compiler.conversions import as_text
from ipf.mapping.compiler.emit import FRAME, Block, Writer, var
from ipf.mapping.compiler.scope import Scope
from ipf.mapping.compiler.targets.storing import (
    Make,
    Store,
    TargetElement,
    holds_references,
    note_source,
    put_open,
    store_function,
    store_source,
    write_value,
)
from ipf.mapping.compiler.targets.values import TypedValue, copy_of
from ipf.mapping.compiler.transforms import text_of
from ipf.mapping.compiler.translation import first_code
from ipf.mapping.compiler.values import Value
from ipf.mapping.runtime.run import Act, Frame, Run
from ipf.mapping.runtime.trace import Translation
from ipf.ports import Json


def traced_translation(value: Value, arguments: Sequence[Value], step: int) -> Value:
    """A `translate` that records the code and the result in the trace step."""
    get, text, table, source = value.get, text_of(arguments[0]), str(arguments[1].constant), arguments[0].get

    def translate(frame: Frame) -> Any:
        given, found = text(frame) or first_code(source(frame)), get(frame)
        if given:
            frame[step].translations.append(Translation(table, given, found))
        return found

    return replace(value, get=translate, write=None)


def new_object(slot: int) -> Block:
    """An object for a primitive and its extensions."""
    return lambda writer: writer.line(f"{var(slot)} = {{}}")


def note_segments(scope: Scope, slot: int) -> Block:
    """Record the segments and groups that a resource of an entry is made from: what the rule knows by a name."""
    known = {one.slot for one in scope.names.values() if one.is_source and one.kind.is_v2 and not one.field}
    segments = ", ".join(f"{var(one)}" for one in sorted(known))
    return lambda writer: writer.line(f"r.made_from[id({var(slot)})] = ({segments},)" if segments else "pass")


def make_into(make: Make, slot: int) -> Block:
    """Make an element and bind it to a slot."""
    return lambda writer: writer.line(f"{var(slot)} = {writer.constant(make)}({FRAME})")


def make_shared(make: Block, rule_id: str, parent: int, slot: int) -> Block:
    """List mode `share`: one element for all rules of this id under the same parent; `make` binds it to `slot`."""

    def write(writer: Writer) -> None:
        writer.line(f"w = (id({var(parent)}), {writer.constant(rule_id)})")
        writer.line(f"{var(slot)} = r.shared.get(w)")
        with writer.inside(f"if {var(slot)} is None"):
            make(writer)
            writer.line(f"r.shared[w] = {var(slot)}")

    return write


def list_inserter(key: str, mode: str) -> Callable[[Frame, Json, Any], None]:
    """List modes `first` and `last` of a target: the position in the list."""

    def place_first(frame: Frame, parent: Json, value: Any) -> None:
        held = parent.setdefault(key, [])
        firsts = frame[0].firsts
        position = firsts.get(id(held), 0)
        frame[0].spend((len(held) - position) // 64)  # items that move up
        held.insert(position, value)
        firsts[id(held)] = position + 1

    def place_last(frame: Frame, parent: Json, value: Any) -> None:
        held = parent.setdefault(key, [])
        held.append(value)
        frame[0].lasts.append((held, value))

    return place_first if mode == "first" else place_last


def inserting_maker(element: TargetElement, mode: str) -> Make:
    """Makes an element at the position that its list mode states."""
    put_in_order, parent, key = list_inserter(element.key, mode), element.parent, element.key

    def make(frame: Frame) -> dict[str, Any]:
        made: dict[str, Any] = {}
        put_in_order(frame, frame[parent], made)
        frame[0].created.append((frame[parent], key, made))
        if element.source:
            frame[0].sources.append((frame[parent], key, made, element.source))
        return made

    return make


def insert_value(element: TargetElement, mode: str, typed: TypedValue) -> Block:
    """Store a value at the position that its list mode states."""
    put_in_order = list_inserter(element.key, mode)

    def write(writer: Writer) -> None:
        with write_value(writer, typed):
            writer.line(f"{writer.constant(put_in_order)}({FRAME}, {var(element.parent)}, v)")
            note_source(writer, element, "v")

    return write


def put_with_extensions(element: TargetElement, slot: int, plain: Act) -> Act:
    """Store an item of a JSON source; extensions of a primitive (`_birthDate`) are copied with it.

    `plain` stores the value in `slot`.
    """
    parent, key, extension_key = element.parent, element.key, "_" + element.key

    def put(frame: Frame) -> None:
        item = frame[slot]
        if type(item) is not FhirNode:
            plain(frame)
            return
        owner, extra = frame[parent], copy_of(item.extra, frame[0])
        if item.value is not None:
            frame[slot] = item.value
            plain(frame)
            frame[slot] = item
        elif element.many:
            owner.setdefault(key, []).append(None)
        held = owner.get(key)
        if type(held) is list:
            extras = owner.setdefault(extension_key, [])
            extras.extend([None] * (len(held) - len(extras) - 1))
            extras.append(extra)
        else:
            owner[extension_key] = extra

    return put


def put_with(store: Store, element: TargetElement, typed: TypedValue) -> Block:
    """Store a value by a closure."""

    def write(writer: Writer) -> None:
        with write_value(writer, typed):
            writer.line(f"{writer.constant(store)}({var(element.parent)}, v)")
            note_source(writer, element, "v")

    return write


def put_and_bind(element: TargetElement, slot: int, typed: TypedValue, absent: str, *, is_open: bool = False) -> Block:
    """Store a value and bind it to a slot; `absent`: the value of the slot when there is none.

    `is_open`: it may be a copy of a type that no model has.
    """

    def write(writer: Writer) -> None:
        writer.line(f"{var(slot)} = {absent}")
        with write_value(writer, typed, element):
            writer.line(f"{var(slot)} = v")
            if is_open:
                writer.line("r.note_copy(v)")
            store_source(writer, element, "v")

    return write


def buffer_primitive(slot: int, typed: TypedValue) -> Block:
    """Hold back a primitive until the rule is done, since it may get extensions."""

    def write(writer: Writer) -> None:
        writer.line(f"{var(slot)} = {{}}")
        with write_value(writer, typed):
            writer.line(f"{var(slot)}['value'] = v")

    return write


def put_reference(element: TargetElement, value: Value, slot: int, *, whole: bool, mode: str = "") -> Block:
    """Store a reference to a resource of this run, recorded so that it can be rewritten or removed with its resource.

    `slot`: slot for the reference, or 0.  `whole`: the element is a Reference, else its text.  `mode`: list mode.
    """
    named = f"{var(slot)} = " if slot else ""
    put = reference_putter(element, is_whole=whole, mode=mode)

    def write(writer: Writer) -> None:
        if value.slot >= 0 and not value.is_source:
            given = f"{var(element.parent)}, {var(value.slot)}"
        else:
            given = f"{var(element.parent)}, None, {writer.constant(value.get)}({FRAME})"
        writer.line(f"{named}{writer.constant(put)}(r, {given})")

    return write


def reference_putter(element: TargetElement, *, is_whole: bool, mode: str = "") -> Callable[..., Any]:
    """Stores a reference to a resource of this run, or a given text; returns the stored value."""
    key, plain = element.key, store_function(element)
    continues = mode in ("single", "collate") and (element.many or element.is_open)
    insert = list_inserter(key, mode) if element.many and mode in ("first", "last") else None

    def store(run: Run, owner: Json, value: Any) -> None:
        if insert is not None:
            insert([run], owner, value)
        elif element.is_open:
            put_open(run, owner, key, value, element)
        else:
            plain(owner, value)

    def put(run: Run, owner: Json, resource: Any, text: str | None = None) -> Any:
        is_ours, whole = type(resource) is dict, is_whole or (element.is_open and holds_references(run, owner, key))
        if is_ours:
            text = run.reference(resource)
        else:
            run.loose_references = run.loose_references or text is not None or resource is not None
            text = text if text is not None else as_text(resource)
        if text is None:
            return None
        if continues and (first := _first_reference(run, owner, key, text, whole=whole)) is not None:
            holder, made = (first, first) if whole else (owner, text)
            run.loose_references = run.loose_references or not whole
            if is_ours:
                run.references.append((holder, "reference" if whole else key, resource))
            return made
        holder = {"reference": text} if whole else owner
        made = holder if whole else text
        if whole and not element.many and key in owner and "resourceType" in owner:
            run.lost.append((owner, key, owner[key]))
        store(run, owner, made)
        if not whole and type(owner.get(key)) is list:
            run.loose_references = True  # a list holds other texts, so nothing else may write the element
        if element.source:
            run.sources.append((owner, key, made, element.source))
        if whole:
            run.created.append((owner, key, holder))
        if is_ours:
            run.references.append((holder, "reference" if whole else key, resource))
        return made

    return put


def _first_reference(run: Run, owner: Json, key: str, text: str, *, whole: bool) -> Any:
    """List modes `single` and `collate`: the first item of a list, now with this reference; None: there is none."""
    held = owner.get(key)
    items = held if type(held) is list else [held]
    if not items or items[0] is None or (type(items[0]) is dict) is not whole:
        return None
    if whole:
        first = items[0]
        first["reference"] = text
        run.spend(len(run.references) // 16)
        run.references[:] = [one for one in run.references if one[0] is not first]  # to another resource
        return first
    if items is held:
        items[0] = text
    else:
        owner[key] = text
    return text


def primitive_flusher(element: TargetElement, slot: int) -> Act:
    """Store a primitive that was held back, and its extensions under `_key`."""
    parent, key, many, store = element.parent, element.key, element.many, store_function(element)
    extension_key = "_" + key

    def close(frame: Frame) -> None:
        held, owner = frame[slot], frame[parent]
        value = held.pop("value", None)
        if value is None and not held:
            return
        if value is not None or many:
            store(owner, value)
        if element.source:
            frame[0].sources.append((owner, key, value, element.source))
        if held and not many:
            owner[extension_key] = held
            frame[0].created.append((owner, extension_key, held))
        elif held:
            extras = owner.setdefault(extension_key, [])
            extras.extend([None] * (len(owner[key]) - len(extras) - 1))
            extras.append(held)
            frame[0].extended.append((owner, key))

    return close
