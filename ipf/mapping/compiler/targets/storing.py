"""The target side of a rule: closures and statements that store values in their elements.

A `Store` takes the parent object and the value.  Repetition and the JSON name of a choice of types are resolved at
compile time.  New elements are recorded in `Run.created`, since they may stay empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ipf.fhir.model.definitions import definitions
from ipf.mapping.compiler.emit import Block, Writer, function, var
from ipf.mapping.compiler.kinds import Kind, Member
from ipf.mapping.compiler.models import Models
from ipf.mapping.compiler.targets.values import TypedValue
from ipf.mapping.compiler.values import text_source, value_source
from ipf.mapping.runtime.budget import LONG
from ipf.mapping.runtime.mending import rules_of
from ipf.mapping.runtime.run import Frame, Run
from ipf.ports import Json

Store = Callable[[Json, Any], None]
Make = Callable[[Frame], Json]
Choose = Callable[[Run, str, str, Any, str], "Chosen | None"]
"""The run, FHIR type, name of an element, value and its type: what a choice holds; None: the element is none."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """An element of a choice: its JSON name ("": the value has no clear type), the value, and the other names."""

    key: str
    value: Any
    others: frozenset[str]


@dataclass(frozen=True, slots=True)
class TargetElement:
    """The element for values of one kind: `key` of the object in slot `parent`.

    `many`: a list.  `others`: the other names of a choice, which a new value replaces, and those of their extensions.
    `is_open`: the model is unknown, so a second value makes it a list.  `path`: `Patient.gender`, `HumanName.family`;
    `defaults`: the literals that maps write to this path.  `text_key`: the name of a choice of a resource for text
    (`valueString`), which keeps what is no value of its type.  `source`: the HL7 v2 fields that its values come from.
    Of an open one `kind`: the FHIR type of its values, if known; `choose`: finds the JSON name in an object whose type
    is known only at run time.
    """

    parent: int
    key: str
    many: bool = False
    others: frozenset[str] = frozenset()
    is_open: bool = False
    path: str = ""
    defaults: Sequence[Any] = ()
    text_key: str = ""
    source: str = ""
    kind: str = ""
    choose: Choose | None = None


def target_element(member: Member | None, name: str, kind: Kind, parent: int) -> TargetElement:
    """The element `name` for a value of `kind`; without a member the model is unknown."""
    if member is None:
        return TargetElement(parent, name, is_open=True, kind=kind.name if kind.model == "fhir" else "")
    if not member.is_choice:
        return TargetElement(parent, member.key, member.many)
    key = member.keys.get(kind.name, member.key)
    others = frozenset(member.keys.values()) - {key}
    return TargetElement(parent, key, member.many, others | {f"_{one}" for one in others})


def store_function(element: TargetElement) -> Store:
    """A closure that stores a value in a given object."""
    key, others = element.key, element.others
    if element.is_open:
        return _store_unknown(key)
    if element.many:
        return _append(key)
    return _replace_choice(key, others) if others else _replace(key)


def _replace(key: str) -> Store:
    def store(parent: Json, value: Any) -> None:
        parent[key] = value

    return store


def _replace_choice(key: str, others: frozenset[str]) -> Store:
    def store(parent: Json, value: Any) -> None:
        for name in [name for name in parent if name in others]:
            del parent[name]
        parent[key] = value

    return store


def _append(key: str) -> Store:
    def store(parent: Json, value: Any) -> None:
        held = parent.get(key)
        if held is None:
            parent[key] = [value]
        else:
            held.append(value)

    return store


def store_open(run: Run, parent: Json, key: str, value: Any) -> None:
    """Store a value in an object of unknown model: a second one makes the element a list, unless it is single."""
    if type(parent.get(key)) is not list and _repeats(run, parent, key) is False:
        parent[key] = value
    elif key not in parent and _repeats(run, parent, key):
        parent[key] = [value]
    else:
        _store_unknown(key)(parent, value)


def name_open(run: Run, parent: Json, key: str, value: Any, element: TargetElement) -> Chosen:
    """The JSON name of an open element in this object, for this value; other values of a choice are removed."""
    kind = _type_of(run, parent)
    found = element.choose(run, kind, key, value, element.kind) if kind and element.choose is not None else None
    if found is None:
        return Chosen(key, value, frozenset())
    if found.key:
        for name in [name for name in parent if name in found.others]:
            del parent[name]
    return found


def put_open(run: Run, parent: Json, key: str, value: Any, element: TargetElement) -> None:
    """Store a value in an open element: of a choice under the name of its type, which never repeats."""
    found = name_open(run, parent, key, value, element)
    if found.others and found.key:
        parent[found.key] = found.value
    elif found.key:
        store_open(run, parent, key, value)


def held_open(run: Run, parent: Json, key: str, element: TargetElement) -> Any:
    """The structure in a single element of such an object, which a map goes on with; None: make a new one."""
    found = name_open(run, parent, key, {}, element)
    name = found.key or next((one for one in found.others if type(parent.get(one)) is dict), key)
    held = parent.get(name)
    if type(held) is not dict or not (found.others or _repeats(run, parent, key) is False):
        return None
    note_type(run, parent, name, held)
    return held


def holds_references(run: Run, parent: Json, key: str) -> bool:
    """Whether an element of an object whose type is known only at run time is a Reference."""
    kind = _type_of(run, parent)
    known = definitions().element(kind, key) if kind else None
    return known is not None and not known.choice and known.types[:1] == ("Reference",)


def note_type(run: Run, parent: Json, key: str, made: Json) -> None:
    """Record the FHIR type of a structure in an object of known type, so that its elements get their forms too."""
    kind = _type_of(run, parent)
    of = _type_of_member(kind, key) if kind else ""
    if of:
        run.copied[id(made)] = (made, of, frozenset(made))


@lru_cache(maxsize=4096)
def _type_of_member(type_path: str, key: str) -> str:
    """The FHIR type of a JSON member: its path for an inner structure; empty for none, and for any resource."""
    for one in definitions().members(type_path).values():
        for kind in one.types:
            if (one.json_name(kind) if one.choice else one.name) == key:
                return f"{type_path}.{key}" if kind in ("BackboneElement", "Element") else kind
    return ""


def _name_of_new(run: Run, parent: Json, key: str, value: Json, element: TargetElement) -> str:
    return name_open(run, parent, key, value, element).key or key


def _repeats(run: Run, parent: Json, key: str) -> bool | None:
    """Whether an element repeats: a FHIR resource says it by its type, a copy by what it has; None: not known."""
    kind = _type_of(run, parent)
    known = definitions().element(kind, key) if kind else None
    if known is not None:
        return known.many
    _, _, names = run.copied.get(id(parent), (parent, "", ()))
    return False if key in names else None


def _type_of(run: Run, parent: Json) -> str:
    """The FHIR type of an object: that of a resource, or of a copy."""
    _, kind, _ = run.copied.get(id(parent), (parent, "", ()))
    kind = parent.get("resourceType", kind)
    return kind if type(kind) is str else ""


def _store_unknown(key: str) -> Store:
    """In an unknown model a second value makes the element a list."""

    def store(parent: Json, value: Any) -> None:
        held = parent.get(key)
        if held is None:
            parent[key] = value
        elif type(held) is list:
            held.append(value)
        else:
            parent[key] = [held, value]

    return store


def store_source(writer: Writer, element: TargetElement, value: str) -> None:
    """Write the statements that store the value of an expression."""
    owner, key = f"{var(element.parent)}", repr(element.key)
    if element.is_open:
        writer.line(f"{writer.constant(put_open)}(r, {owner}, {key}, {value}, {writer.constant(element)})")
    elif element.others:
        writer.line(f"{writer.constant(store_function(element))}({owner}, {value})")
    elif element.many:
        writer.line(f"h = {owner}.get({key})")
        writer.line(f"if h is None: {owner}[{key}] = [{value}]")
        writer.line(f"else: h.append({value})")
    else:
        writer.line(f"{owner}[{key}] = {value}")
    note_source(writer, element, value)


def note_source(writer: Writer, element: TargetElement, value: str) -> None:
    """Write the statement that records the fields of a stored value."""
    if element.source:
        entry = f"{var(element.parent)}, {element.key!r}, {value}, {element.source!r}"
        writer.line(f"r.sources.append(({entry}))")


def put_constant(element: TargetElement, value: Any) -> Block:
    """`tgt.x = 'text'`"""
    return lambda writer: store_source(writer, element, writer.constant(value))


def put(element: TargetElement, typed: TypedValue) -> Block:
    """`tgt.x = value`; nothing for None."""

    def write(writer: Writer) -> None:
        with write_value(writer, typed, element):
            _write_check_of_overwriting(writer, element)
            store_source(writer, element, "v")

    return write


def _write_check_of_overwriting(writer: Writer, element: TargetElement) -> None:
    """Note that a value of the message replaces another one; a literal of a map is a default, which may be replaced."""
    if element.many or element.is_open or not element.path:
        return
    owner, defaults = f"{var(element.parent)}", writer.constant(element.defaults)
    writer.line(f"h = {owner}.get({element.key!r}, v)")
    writer.line(f"if h is not v and h != v and h not in {defaults}: r.dropped.append({element.path!r})")
    _write_check_of_choice(writer, element)


def _write_check_of_choice(writer: Writer, element: TargetElement) -> None:
    """Note that a value of one type replaces a value of the message of another type in the same choice."""
    if element.others and element.path:
        given = f"{var(element.parent)}, {writer.constant(element.others)}, {writer.constant(element.defaults)}"
        writer.line(f"if {writer.constant(_has_other)}({given}): r.dropped.append({element.path!r})")


def _has_other(owner: Json, others: frozenset[str], defaults: Sequence[Any]) -> bool:
    return not others.isdisjoint(owner) and any(name in owner and owner[name] not in defaults for name in others)


@contextmanager
def write_value(writer: Writer, typed: TypedValue, element: TargetElement | None = None) -> Iterator[None]:
    """Write a value as `v`; the lines written inside run when there is one.

    `element`: where a text that is no value of its type is kept (`Run.refuse`), or dropped (`Run.dropped`).
    """
    if not typed.type_name:
        writer.line(f"v = {value_source(writer, typed.value)}")
        if typed.value.is_variable:
            writer.line(f"if type(v) is str and len(v) > {LONG}: r.spend_on_text(len(v))")
        with writer.inside("if v is not None"):
            yield
        return
    writer.line(f"t = {text_source(writer, typed.value, typed.text)}")
    with writer.inside("if t"):
        writer.line(f"if len(t) > {LONG}: r.spend_on_text(len(t))")
        writer.line(f"v = {writer.constant(typed.convert)}(t)")
        with writer.inside("if v is not None"):
            yield
        warning = f"a value that is no {typed.type_name} was omitted"
        with writer.inside("elif not t.isspace()"):
            writer.line(f"r.warnings.append({warning!r})")
            if element is not None and not element.many and not element.is_open and typed.type_name != "id":
                place = f"{var(element.parent)}, {element.key!r}, t, {writer.constant(element.others)}"
                writer.line(f"r.refuse({place}, {element.path!r}, {element.text_key!r})")
            elif element is not None and element.path:
                writer.line(f"r.dropped.append({element.path!r})")


def make_element(models: Models, element: TargetElement, kind: Kind, slot: int, *, is_part: bool = False) -> Block:
    """Make an empty element and bind it to `slot`.

    A repeating element gets a new item; any other element is made once and reused, unless it is a resource.  `is_part`:
    a logical model as the type of an element, without a resourceType.
    """
    typed = models.is_resource(kind) and not (is_part and not kind.model.startswith("fhir"))
    template = f"{{'resourceType': {kind.name!r}}}" if typed else "{}"
    owner, key, made = f"{var(element.parent)}", repr(element.key), f"{var(slot)}"
    is_found_again = template == "{}" and not element.many and not element.is_open

    def write_new(writer: Writer) -> None:
        _write_check_of_choice(writer, element)
        writer.line(f"{made} = v = {template}")
        if element.is_open:
            named = f"{writer.constant(_name_of_new)}(r, {owner}, {key}, v, {writer.constant(element)})"
            writer.line(f"k = {named}")
            writer.line(f"{writer.constant(store_open)}(r, {owner}, k, v)")
            writer.line(f"{writer.constant(note_type)}(r, {owner}, k, v)")
            writer.line(f"r.created.append(({owner}, k, v))")
            return
        store_source(writer, element, "v")
        writer.line(f"r.created.append(({owner}, {key}, v))")

    def write(writer: Writer) -> None:
        if is_found_again:
            writer.line(f"{made} = {owner}.get({key})")
            with writer.inside(f"if {made} is None"):
                write_new(writer)
        elif element.is_open and template == "{}":
            writer.line(f"{made} = {writer.constant(held_open)}(r, {owner}, {key}, {writer.constant(element)})")
            with writer.inside(f"if {made} is None"):
                write_new(writer)
        else:
            write_new(writer)
        write_check(writer, kind, made)

    return write


def write_check(writer: Writer, kind: Kind, value: str) -> None:
    """Write the statement that has an element checked at the end of the run, if R4 has rules for its type."""
    if kind.model != "fhir":
        return
    rules = rules_of(kind.name)
    if kind.name == "Extension":
        writer.line(f"r.extensions.append({value})")
    elif rules is not None:
        writer.line(f"r.checked.append(({writer.constant(rules)}, {value}))")


def element_maker(models: Models, element: TargetElement, kind: Kind, *, is_part: bool = False) -> Make:
    """The same as a function that returns the element."""
    inner_element = TargetElement(1, element.key, element.many, element.others, element.is_open)
    make = function(make_element(models, inner_element, kind, 2, is_part=is_part))

    def run(frame: Frame) -> Json:
        inner = [frame[0], frame[element.parent], None]
        make(inner)
        made: Json = inner[2]
        return made

    return run


def reusing_maker(make: Make, element: TargetElement) -> Make:
    """List modes `collate` (R4) and `single` (R5): the first item of the list, made if absent."""
    parent, key = element.parent, element.key

    def reuse(frame: Frame) -> Json:
        held = frame[parent].get(key)
        found = held[0] if type(held) is list and held else held
        return found if type(found) is dict else make(frame)

    return reuse


def merging_store(element: TargetElement) -> Store:
    """The same for a value: merged into the first item; a primitive replaces it."""
    key = element.key

    def store(parent: Json, value: Any) -> None:
        held = parent.get(key)
        if type(held) is not list or not held:
            parent[key] = [value] if element.many else value
        elif type(held[0]) is dict and type(value) is dict:
            _merge(held[0], value)
        else:
            held[0] = value

    return store


def _merge(first: Json, value: Json) -> None:
    for name, one in value.items():
        held = first.get(name)
        if type(held) is list and type(one) is list:
            held += one
        else:
            first[name] = one
