"""The functions on definitions: `elementDefinition`, `slice`, `conformsTo`, `checkModifiers`.

The `Host` provides the definitions.  Without them `elementDefinition` and `slice` are errors, and `conformsTo` knows
R4's own types only.
Source: https://hl7.org/fhir/R4/fhirpath.html#functions
"""

from __future__ import annotations

from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.evaluation.code import Code, operand_of
from ipf.fhir.fhirpath.evaluation.context import LOOKUP_STEPS, Context
from ipf.fhir.fhirpath.evaluation.registry import Arguments, Compiling, plain_function, shaped_function
from ipf.fhir.fhirpath.functions.fhir import answer, json_of
from ipf.fhir.fhirpath.functions.text import text_of
from ipf.fhir.fhirpath.items.model import Model
from ipf.fhir.fhirpath.items.nodes import FhirNode, Items, member
from ipf.fhir.fhirpath.language import ast

_CORE = "http://hl7.org/fhir/StructureDefinition/"
_KEEPS_PLACE = frozenset(
    ("where", "first", "last", "tail", "skip", "take", "single", "distinct", "trace", "ofType", "as")
)


@shaped_function("elementDefinition")
def element_definition(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """The ElementDefinition of each item, from the definition of the type that the path goes through.

    The path must say where the items are: names, after a focus of known type, and filters.
    """
    source, place = operand_of(compiler, focus, kind), _place(compiler, focus, kind)

    def run(context: Context, this: Items) -> Items:
        items = source.run(context, this)
        if not items:
            return []
        if context.host.element_definition is None:
            raise FhirPathError("elementDefinition() needs definitions, and none are loaded")
        found = context.host.element_definition(place) if place is not None else None
        if found is None:
            raise FhirPathError("elementDefinition() needs a path of names from an element of known type")
        return [FhirNode(found, "ElementDefinition") for _ in items]

    return Code(run)


def _place(compiler: Compiling, node: ast.Node | None, kind: str | None) -> str | None:
    """The path of the element that an expression selects in its type (`HumanName.family`); None: it is not known."""
    model = compiler.model
    match node:
        case None | ast.This("this"):
            return kind if kind is not None and model.is_resource(kind) else None
        case ast.Member(None, name) if name[:1].isupper() and model.is_known(name):
            return name
        case ast.Member(focus, name):
            return _element_path(model, operand_of(compiler, focus, kind).kind, name)
        case ast.Function(focus, "extension", _):
            return _element_path(model, operand_of(compiler, focus, kind).kind, "extension")
        case ast.Function(focus, name, _) if name in _KEEPS_PLACE:
            return _place(compiler, focus, kind)
        case ast.Index(focus, _) | ast.TypeTest("as", focus, _):
            return _place(compiler, focus, kind)
    return None


def _element_path(model: Model, parent: str | None, name: str) -> str | None:
    step = model.step(parent, name) if parent is not None else None
    return None if step is None else f"{parent}.{name}{'[x]' if step.choices else ''}"


@plain_function("slice", 2, reads="nodes")
def slice_function(context: Context, focus: Items, structure: Items, name: Items) -> Items:
    """The items that belong to a slice of a profile; an error when the profile has no such slice."""
    url, slice_name = text_of(structure, "slice"), text_of(name, "slice")
    if not focus:
        return []
    if context.host.in_slice is None:
        raise FhirPathError("slice() needs profiles, and none are loaded")
    if url is None or slice_name is None:
        raise FhirPathError("slice() needs a profile and the name of a slice")
    found: Items = []
    for item in focus:
        context.spend(LOOKUP_STEPS)
        context.spend_on([item])
        belongs = context.host.in_slice(item, url, slice_name)
        if belongs is None:
            raise FhirPathError("slice(): whether an item belongs to it cannot be decided")
        if belongs:
            found.append(item)
    return found


@plain_function("conformsTo", 1, reads="nodes")
def conforms_to(context: Context, focus: Items, profile: Items) -> Items:
    """Whether the one item conforms to the profile; without a host only R4's own types are known."""
    url = text_of(profile, "conformsTo")
    if len(focus) > 1:
        raise FhirPathError("conformsTo() of several items")
    if not focus or url is None:
        return []
    item = focus[0]
    context.spend(LOOKUP_STEPS)
    context.spend_on(focus)
    if context.host.conforms_to is not None:
        known = context.host.conforms_to(json_of(item), url)
        if known is not None:
            return answer(known)
    name = url.removeprefix(_CORE)
    if not url.startswith(_CORE) or not context.model.is_known(name):
        raise FhirPathError("conformsTo() does not know this profile")
    return [type(item) is FhirNode and item.type is not None and context.model.is_a(item.type, name)]


@shaped_function("checkModifiers", 0, 20)
def check_modifiers(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """The focus; an error when an item has a modifier extension that the argument does not list."""
    source = operand_of(compiler, focus, kind)
    nodes = source.nodes()
    understood = [compiler.compile(arg, kind).values() for arg in args]

    def run(context: Context, this: Items) -> Items:
        urls = {text_of(each(context, this), "checkModifiers") for each in understood}
        for found in member(nodes(context, this), "modifierExtension", context.model):
            url = found.value.get("url") if isinstance(found.value, dict) else None
            if url is None or url not in urls:
                raise FhirPathError("checkModifiers(): a modifier extension that is not understood")
        return source.run(context, this)

    return Code(run, source.kind)
