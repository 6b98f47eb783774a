"""The search parameters of one resource type as the text of one Python function, compiled.

A walk of closures spends most of its time on calling them.  Here all positions are nested blocks of one function, and
what is done most often (codes, identifiers, references, texts, dates) is written out where it is done; every other
value goes to its closure of `index_values.py`.  The function takes a resource as R4 has it: where a list stands instead
of a single value, or the other way round, it says so and the walk of `index_tree.py` takes the resource, which is the
same for all but speed.  Of definitions only names and codes enter the text, as literals.

Source: https://hl7.org/fhir/R4/search.html#ptypes
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ipf.fhir.index.paths import Guard, MemberIs
from ipf.fhir.index.tree import Tree
from ipf.fhir.index.values import (
    CODES,
    DATES,
    PARTS,
    STRINGS,
    SYSTEMS,
    TOKENS,
    Codes,
    Sink,
    leaf,
)
from ipf.fhir.model.dates import FOREVER
from ipf.fhir.model.definitions import definitions

Lines = list[str]
Write = Callable[[Any, Sink], bool]
"""Whether the resource could be written this way; if not, what it wrote so far is to be thrown away.  TypeError: no."""

_SURELY_SHORT = 300  # characters take four bytes at most, see `entries.PART_LIMIT`
_DEEPEST = 12  # Python nests twenty loops
_HEAD = ["add = sink.texts.append"]
_GLOBALS: dict[str, Any] = {
    "CODES": CODES,
    "DATES": DATES,
    "FOREVER": FOREVER,
    "STRINGS": STRINGS,
    "SYSTEMS": SYSTEMS,
    "TOKENS": TOKENS,
}


def function_of(tree: Tree, resource_type: str) -> Write:
    """The function that does with a resource of this type what `tree.finished()` does."""
    writer = _Writer()
    lines = [*_HEAD, *writer.position(tree, "r", resource_type), "return True"]
    names = {**_GLOBALS, **writer.constants}
    exec(compile("\n".join(["def write(r, sink):", *_inside(lines)]), f"<index {resource_type}>", "exec"), names)
    made: Write = names["write"]
    return made


def _inside(lines: Iterable[str]) -> Lines:
    return [f" {line}" for line in lines]


def _block(head: str, lines: Lines) -> Lines:
    """A block with these lines; nothing when there are none."""
    return [head, *_inside(lines)] if lines else []


def _put(codes: Codes, text: str) -> Lines:
    return [f"add(({code!r}, {text}))" for code in codes]


class _Writer:
    """Writes the statements.  `constants`: what they name beside `_GLOBALS`."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}
        self._count = 0
        self._depth = 0

    def position(self, tree: Tree, value: str, type_path: str) -> Lines:
        """All that is done with a value that is no list; `value`: the variable that has it."""
        self._depth += 1
        lines: Lines = []
        of_object: Lines = []
        if self._depth > _DEEPEST:
            lines.append(f"{self._constant(tree.finished())}({value}, sink)")
        else:
            for (kind, type_name, rest), codes in tree.codes.items():
                self._values(kind, type_name, rest, tuple(codes), value, lines, of_object)
            lines += [f"{self._constant(one)}({value}, sink)" for one in tree.leaves]
            for guard, inner in tree.guarded:
                of_object += _block(f"if {self._passes(guard, value)}:", self.position(inner, value, type_path))
            for name, inner in tree.members.items():
                of_object += self._member(value, type_path, name, inner)
        self._depth -= 1
        return lines + _block(f"if type({value}) is dict:", of_object)

    def _member(self, value: str, type_path: str, name: str, inner: Tree) -> Lines:
        element = definitions().element(type_path, name)
        of = element.types[0] if element is not None and len(element.types) == 1 else ""
        return self._each(value, type_path, name, lambda one: self.position(inner, one, of))

    def _each(self, value: str, type_path: str, name: str, body: Callable[[str], Lines]) -> Lines:
        """`body` for the value of a member, or for each in its list."""
        element = definitions().element(type_path, name)
        held, one = self._name(), self._name()
        if element is None:  # `_birthDate`: single and list are both right for somebody
            lines = _block(f"for {one} in {held} if type({held}) is list else ({held},):", body(one))
        elif element.many:
            inner = _block(f"for {one} in {held}:", body(one))
            lines = [f"if type({held}) is not list: return False", *inner] if inner else []
        else:
            inner = body(held)
            lines = [f"if type({held}) is list: return False", *inner] if inner else []
        # Most members are not there, and to look whether one is costs half of asking for it.
        return _block(f"if {name!r} in {value} and ({held} := {value}[{name!r}]) is not None:", lines)

    def _passes(self, guard: Guard, value: str) -> str:
        if isinstance(guard, MemberIs):
            return f"{value}.get({guard.name!r}) == {guard.text!r}"
        return f"{self._constant(guard)}({value})"

    def _values(
        self, kind: str, type_name: str, rest: Codes, codes: Codes, value: str, lines: Lines, of_object: Lines
    ) -> None:
        """Write what one kind of parameter wants of a value to `lines`, or to `of_object` when it must be one."""
        if kind == "string" and type_name in PARTS:
            for part in PARTS[type_name]:
                if part not in rest:
                    of_object += self._each(value, type_name, part, lambda one: _string(one, codes))
        elif (kind, type_name) in _OF_OBJECTS:
            of_object += _OF_OBJECTS[kind, type_name](self, value, codes)
        elif (kind, type_name) in _OF_PRIMITIVES:
            lines += _OF_PRIMITIVES[kind, type_name](value, codes)
        else:
            name = self._leaf(kind, type_name, codes, rest)
            lines += [f"{name}({value}, sink)"] if name else []

    # -- what is written out

    def coding(self, value: str, codes: Codes) -> Lines:
        """A Coding as tokens."""
        text = self._name()
        found = f"{text} = TOKENS[{value}.get('code'), {value}.get('system')]"
        return [found, *_block(f"if {text}:", _put(codes, text))]

    def concept(self, value: str, codes: Codes) -> Lines:
        """A CodeableConcept as tokens."""
        held, one = self._name(), self._name()
        each = _block(f"for {one} in {held}:", _block(f"if type({one}) is dict:", self.coding(one, codes)))
        return [f"{held} = {value}.get('coding')", *_block(f"if type({held}) is list:", each)]

    def identifier(self, value: str, codes: Codes) -> Lines:
        """An Identifier or a ContactPoint as tokens; most have a value that nobody else has."""
        held, text = self._name(), self._name()
        return [
            f"{held} = {value}.get('value')",
            f"if type({held}) is str and 0 < len({held}) < {_SURELY_SHORT} and {held}.isprintable():",
            *_inside([f"{text} = {held} + SYSTEMS[{value}.get('system')]", *_put(codes, text)]),
            f"else: {self._leaf('token', 'Identifier', codes)}({value}, sink)",
        ]

    def reference(self, value: str, codes: Codes) -> Lines:
        """A Reference by its text and by its identifier."""
        text, identifier = self._name(), self._name()
        usual = f"type({text}) is str and 0 < len({text}) < {_SURELY_SHORT} and {text}[0] != '#'"
        return [
            f"{text} = {value}.get('reference')",
            f"if {usual} and '/_history/' not in {text} and {text}.isprintable():",
            *_inside(_put(codes, text)),
            f"elif {text} is not None: {self._leaf('reference', 'Reference', codes)}({value}, sink)",
            *_block(
                f"if 'identifier' in {value} and type({identifier} := {value}['identifier']) is dict:",
                self.identifier(identifier, codes),
            ),
        ]

    def period(self, value: str, codes: Codes) -> Lines:
        """A Period as a range of time."""
        start, end = self._name(), self._name()
        lo, hi = f"{start}[0] if {start} else -FOREVER", f"{end}[1] if {end} else FOREVER"
        puts = [f"sink.dates.append(({code!r}, {lo}, {hi}))" for code in codes]
        return [
            f"{start} = DATES[{value}.get('start')]",
            f"{end} = DATES[{value}.get('end')]",
            *_block(f"if {start} or {end}:", puts),
        ]

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _leaf(self, kind: str, type_name: str, codes: Codes, rest: Codes = ()) -> str:
        """The name of the closure for what is not written out; "" when there is nothing to write."""
        made = leaf(kind, type_name, codes, rest)
        return "" if made is None else self._constant(made)

    def _constant(self, value: Any) -> str:
        self._count += 1
        self.constants[f"c{self._count}"] = value
        return f"c{self._count}"


def _string(value: str, codes: Codes) -> Lines:
    return _block(f"if type({value}) is str and {value}:", _put(codes, f"STRINGS[{value}]"))


def _code(value: str, codes: Codes) -> Lines:
    return _block(f"if type({value}) is str:", _put(codes, f"CODES[{value}]"))


def _date(value: str, codes: Codes) -> Lines:
    puts = [f"sink.dates.append(({code!r}, *DATES[{value}]))" for code in codes]
    return _block(f"if type({value}) is str and DATES[{value}]:", puts)


_OF_OBJECTS: dict[tuple[str, str], Callable[[_Writer, str, Codes], Lines]] = {
    ("token", "Coding"): _Writer.coding,
    ("token", "CodeableConcept"): _Writer.concept,
    ("token", "Identifier"): _Writer.identifier,
    ("token", "ContactPoint"): _Writer.identifier,
    ("reference", "Reference"): _Writer.reference,
    ("date", "Period"): _Writer.period,
}
_OF_PRIMITIVES: dict[tuple[str, str], Callable[[str, Codes], Lines]] = {
    ("token", "code"): _code,
    ("string", "string"): _string,
    ("date", "date"): _date,
    ("date", "dateTime"): _date,
    ("date", "instant"): _date,
}
