"""The transforms of the mapping language: compiled arguments in, a compiled `Value` out.

The kind of a Value is the type of its result.  `create` makes an element in a target, and is in `targets.actions`.

Source: https://hl7.org/fhir/R4/terminologies-systems.html (map-transform), and
https://hl7.org/fhir/R4/mapping-language.html#transforms.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape as escape_html
from html import unescape as unescape_html
from json import dumps, loads
from operator import itemgetter
from typing import Any

from ipf.fhir.model.definitions import definitions
from ipf.mapping.compiler.conversions import Convert, as_text
from ipf.mapping.compiler.kinds import STRING, TEXT, Kind, fhir
from ipf.mapping.compiler.models import Models
from ipf.mapping.compiler.translation import TRANSLATED, code_translator, look_up_by_name, translator
from ipf.mapping.compiler.values import NOTHING, Value, text_source
from ipf.mapping.language.concepts import ConceptTables
from ipf.mapping.runtime.run import Frame, Get, Run, counted
from ipf.ports import Json


@dataclass(frozen=True, slots=True)
class Context:
    """Models, tables and conversions for transforms.  `fail(text)` raises the error with its place in the map."""

    models: Models
    tables: ConceptTables
    conversions: Mapping[str, Convert]
    fail: Callable[[str], Exception]


Arguments = Sequence[Value]
Transform = Callable[[Context, Arguments], Value]


def text_of(value: Value) -> Callable[[Frame], str | None]:
    """A closure for the text of a value."""
    if value.constant is not NOTHING:
        text = as_text(value.constant)
        return lambda frame: text
    get = value.get
    if value.kind.is_v2 and value.slot >= 0:
        slot = value.slot

        def text_of_node(frame: Frame) -> str | None:
            text: str | None = frame[slot].text
            return text

        return text_of_node
    if value.kind == TEXT and value.is_variable:
        return itemgetter(value.slot)
    if value.kind == STRING and not value.is_variable:
        return get
    return lambda frame: as_text(get(frame))


def _literal(context: Context, value: Value, what: str) -> str:
    if value.constant is NOTHING:
        raise context.fail(f"{what} must be a literal")
    return str(value.constant)


def _copy(context: Context, arguments: Arguments) -> Value:
    return arguments[0]


def _truncate(context: Context, arguments: Arguments) -> Value:
    text, digits = text_of(arguments[0]), _literal(context, arguments[1], "the length")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise context.fail("the length must be a whole number")
    length = int(digits)

    def truncate(frame: Frame) -> str | None:
        value = text(frame)
        return value[:length] if value else None

    return Value(truncate, STRING)


def _escape(context: Context, arguments: Arguments) -> Value:
    """`escape(x, 'to')`, `escape(x, 'from', 'to')`: text that is not valid in `from` is omitted, with a warning."""
    text = text_of(arguments[0])
    given = _literal(context, arguments[1], "the format") if len(arguments) > 2 else "text"
    wanted = _literal(context, arguments[-1], "the format")
    for one in (given, wanted):
        if one not in ENCODERS:
            raise context.fail(f"unknown format '{one}' (known: {', '.join(ENCODERS)})")
    decode, encode = DECODERS[given], ENCODERS[wanted]

    def escape(frame: Frame) -> str | None:
        value = text(frame)
        if not value:
            return None
        try:
            return counted(frame[0], encode(decode(value)))
        except ValueError:  # invalid UTF-8, hexadecimal or base64
            frame[0].warnings.append(f"a value that is no {given} was omitted")
            return None

    return Value(escape, STRING)


ENCODERS: dict[str, Callable[[bytes], str]] = {
    "text": bytes.decode,
    "xml": lambda content: escape_html(content.decode()),
    "html": lambda content: escape_html(content.decode()),
    "json": lambda content: dumps(content.decode(), ensure_ascii=False)[1:-1],
    "base64": lambda content: b64encode(content).decode(),
    "hex": bytes.hex,
}
DECODERS: dict[str, Callable[[str], bytes]] = {
    "text": str.encode,
    "xml": lambda text: unescape_html(text).encode(),
    "html": lambda text: unescape_html(text).encode(),
    "json": lambda text: str(loads(f'"{text}"')).encode(),
    "base64": lambda text: b64decode("".join(text.split()), validate=True),
    "hex": bytes.fromhex,
}
"""Formats of `escape`, from and to bytes."""


def _cast(context: Context, arguments: Arguments) -> Value:
    wanted = _literal(context, arguments[1], "the type") if len(arguments) > 1 else "string"
    name = wanted.removeprefix("FHIR.")
    name = name[:1].lower() + name[1:] if wanted.startswith("System.") else name
    convert = context.conversions.get(name)
    if convert is None:
        raise context.fail(f"'{wanted}' is no primitive type")
    return Value(converted(arguments[0], name, convert), fhir(name), given=arguments[0])


def converted(value: Value, name: str, convert: Convert) -> Get:
    """A closure for the value as the FHIR primitive `name`; an invalid value is omitted, with a warning."""
    text = text_of(value)

    def get(frame: Frame) -> Any:
        given = text(frame)
        if not given:
            return None
        result = convert(given)
        if result is None and not given.isspace():
            frame[0].warnings.append(f"a value that is no {name} was omitted")
        return result

    return get


def _append(context: Context, arguments: Arguments) -> Value:
    parts = [text_of(one) for one in arguments]

    def append(frame: Frame) -> str | None:
        return counted(frame[0], "".join([text for part in parts if (text := part(frame))]))

    return Value(append, STRING)


def _date_op(context: Context, arguments: Arguments) -> Value:
    """`dateOp(value, 'dateTime')`; the second argument defaults to dateTime."""
    wanted = _literal(context, arguments[-1], "the type") if len(arguments) > 1 else "dateTime"
    if wanted not in ("date", "dateTime", "instant", "time"):
        raise context.fail("dateOp makes 'date', 'dateTime', 'instant' or 'time'")
    get = converted(arguments[0], wanted, context.conversions[wanted])
    return Value(get, fhir(wanted), given=arguments[0])


def _translate(context: Context, arguments: Arguments) -> Value:
    wanted = _literal(context, arguments[2], "what is wanted of the translation") if len(arguments) > 2 else "code"
    kind = TRANSLATED.get(wanted)
    if kind is None:
        raise context.fail(f"translate gives {', '.join(TRANSLATED)}; not '{wanted}'")
    if arguments[1].constant is NOTHING:
        by_name = look_up_by_name(context.tables, wanted)
        code_text, name_text = text_of(arguments[0]), text_of(arguments[1])
        return Value(lambda frame: by_name(frame[0], code_text(frame), name_text(frame)), kind)
    name = _literal(context, arguments[1], "the ConceptMap")
    table = context.tables.find(name)
    if table is None:
        raise context.fail(f"no ConceptMap '{name}' is loaded")
    look_up = code_translator(table, name, wanted)
    if _may_be_structure(context, arguments[0]):
        get, of_codings = arguments[0].get, translator(table, name, wanted)

        def translate_any(frame: Frame) -> Any:
            given = get(frame)
            return of_codings(frame[0], given) if type(given) is dict else look_up(frame[0], as_text(given))

        return Value(translate_any, kind)
    text = text_of(arguments[0])
    return Value(
        lambda frame: look_up(frame[0], text(frame)),
        kind,
        write=lambda writer: f"{writer.constant(look_up)}(r, {text_source(writer, arguments[0], text)})",
    )


def _may_be_structure(context: Context, value: Value) -> bool:
    """Whether a value may be a Coding or a CodeableConcept."""
    return value.constant is NOTHING and not value.kind.is_text and not context.models.is_primitive(value.kind)


def _reference(context: Context, arguments: Arguments) -> Value:
    get, to_source = arguments[0].get, arguments[0].is_source

    def reference(frame: Frame) -> str | None:
        resource = get(frame)
        if type(resource) is not dict:
            return as_text(resource)
        run: Run = frame[0]
        return run.in_source.url_of(resource) if to_source else run.reference(resource)

    return Value(reference, REFERENCE_TEXT, slot=arguments[0].slot, is_source=to_source)


REFERENCE_TEXT = Kind("fhir", "uri-of-resource")
"""Kind of `reference` and `pointer`: text that is rewritten when resources are merged."""


def _uuid(context: Context, arguments: Arguments) -> Value:
    if not arguments:
        return Value(lambda frame: frame[0].uuid(), STRING)
    text = text_of(arguments[0])
    return Value(lambda frame: frame[0].uuid("name:" + (text(frame) or "")), STRING)


def _object(kind: str, names: Sequence[str], needed: str) -> Transform:
    """A transform that fills the elements `names` of a data type; None without the element `needed`."""

    def compile_object(context: Context, arguments: Arguments) -> Value:
        if not arguments or len(arguments) > len(names):
            raise context.fail(f"takes 1 to {len(names)} arguments: {', '.join(names)}")
        members = [(name, _part(context, kind, name, one)) for name, one in zip(names, arguments, strict=False)]

        def make(frame: Frame) -> Json | None:
            made = {name: value for name, text in members if (value := text(frame))}
            return made if needed in made else None

        return Value(make, fhir(kind))

    return compile_object


def _part(context: Context, kind: str, name: str, value: Value) -> Get:
    """The text of an element of a data type; a literal is taken as it is."""
    element = definitions().element(kind, name)
    if value.constant is not NOTHING or element is None:
        return text_of(value)
    type_name = element.types[0]
    return converted(value, type_name, context.conversions[type_name])


_make_coding = _object("Coding", ("system", "code", "display"), "code")
_make_contact = _object("ContactPoint", ("system", "value", "use"), "value")
_make_identifier = _object("Identifier", ("system", "value"), "value")


def _cc(context: Context, arguments: Arguments) -> Value:
    if len(arguments) == 1:
        text = _part(context, "CodeableConcept", "text", arguments[0])
        return Value(lambda frame: {"text": value} if (value := text(frame)) else None, fhir("CodeableConcept"))
    coding = _make_coding(context, arguments).get

    def make(frame: Frame) -> Json | None:
        made = coding(frame)
        return {"coding": [made]} if made else None

    return Value(make, fhir("CodeableConcept"))


def _c(context: Context, arguments: Arguments) -> Value:
    if len(arguments) < 2:
        raise context.fail("takes system, code and perhaps display")
    return _make_coding(context, arguments)


def _cp(context: Context, arguments: Arguments) -> Value:
    if len(arguments) > 1:
        return _make_contact(context, arguments)
    text = text_of(arguments[0])

    def make(frame: Frame) -> Json | None:
        value = text(frame)
        return {"system": _contact_system(value), "value": value} if value else None

    return Value(make, fhir("ContactPoint"))


def _contact_system(value: str) -> str:
    if "@" in value:
        return "email"
    return "url" if "://" in value else "phone" if any(one.isdigit() for one in value) else "other"


def _qty(context: Context, arguments: Arguments) -> Value:
    """`qty('5 mg')`, or `qty(value, unit, system, code)`."""
    texts = [text_of(one) for one in arguments]
    number = context.conversions["decimal"]

    def make(frame: Frame) -> Json | None:
        given = [text(frame) for text in texts]
        if len(given) == 1 and given[0]:
            given = list(given[0].strip().split(" ", 1))
        value = number(given[0]) if given and given[0] else None
        if value is None:
            return None
        rest = {name: text for name, text in zip(("unit", "system", "code"), given[1:], strict=False) if text}
        return {"value": value, **rest}

    return Value(make, fhir("Quantity"))


def _id(context: Context, arguments: Arguments) -> Value:
    identifier = _make_identifier(context, arguments[:2]).get
    if len(arguments) < 3:
        return Value(identifier, fhir("Identifier"))
    type_code = text_of(arguments[2])

    def make(frame: Frame) -> Json | None:
        made: Json | None = identifier(frame)
        given = type_code(frame)
        if made is not None and given:
            made["type"] = {"coding": [{"system": IDENTIFIER_TYPES, "code": given}]}
        return made

    return Value(make, fhir("Identifier"))


IDENTIFIER_TYPES = "http://terminology.hl7.org/CodeSystem/v2-0203"

TRANSFORMS: dict[str, tuple[Transform, int, int]] = {
    "copy": (_copy, 1, 1),
    "truncate": (_truncate, 2, 2),
    "escape": (_escape, 2, 3),
    "cast": (_cast, 1, 2),
    "append": (_append, 1, 99),
    "translate": (_translate, 2, 3),
    "reference": (_reference, 1, 1),
    "pointer": (_reference, 1, 1),
    "dateOp": (_date_op, 1, 3),
    "uuid": (_uuid, 0, 1),
    "cc": (_cc, 1, 3),
    "c": (_c, 2, 3),
    "qty": (_qty, 1, 4),
    "id": (_id, 2, 3),
    "cp": (_cp, 1, 3),
}
"""Transform by name, with the minimum and maximum number of arguments."""


def compile_transform(context: Context, name: str, arguments: Arguments) -> Value:
    """The value of `name(arguments)`."""
    transform, least, most = TRANSFORMS[name]
    if not least <= len(arguments) <= most:
        count = str(least) if least == most else f"{least} to {most}"
        raise context.fail(f"{name} takes {count} argument(s), not {len(arguments)}")
    return transform(context, arguments)


__all__ = ["REFERENCE_TEXT", "Context", "compile_transform", "converted", "text_of"]
