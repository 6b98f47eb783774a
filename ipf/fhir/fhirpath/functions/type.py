"""`is`, `as` and `ofType()`.

Source: http://hl7.org/fhirpath/N1/#types
"""

from __future__ import annotations

from collections.abc import Callable

from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.evaluation.code import Code, itself, nothing, operand_of, tested
from ipf.fhir.fhirpath.evaluation.context import Context
from ipf.fhir.fhirpath.evaluation.reading import typed
from ipf.fhir.fhirpath.evaluation.registry import Arguments, Compiling, Shape, shaped_function
from ipf.fhir.fhirpath.items.model import RESOURCE_ROOTS, SYSTEM_TYPES, Model
from ipf.fhir.fhirpath.items.nodes import FhirNode, Items, is_type, resource_type
from ipf.fhir.fhirpath.language import ast


def type_of_syntax(node: ast.Node) -> str:
    """`Patient` or `FHIR.Patient`, written as an argument."""
    if isinstance(node, ast.Member):
        return node.name if node.focus is None else f"{type_of_syntax(node.focus)}.{node.name}"
    if isinstance(node, ast.Literal) and isinstance(node.value, str):
        return node.value
    raise FhirPathError("a type name is needed", kind="semantic")


def read_type(model: Model, written: str) -> tuple[str, str]:
    """(namespace or "", name); a type that neither FHIR nor System has is an error."""
    namespace, mark, name = written.rpartition(".")
    if mark and namespace not in ("FHIR", "System"):
        return "", written
    known = model.is_known(name) or (name in SYSTEM_TYPES and namespace != "FHIR")
    if not known and namespace != "System":
        raise FhirPathError(f"unknown type '{written}'", kind="semantic")
    return namespace, name


def type_test(compiler: Compiling, operand: ast.Node | None, written: str, kind: str | None) -> Code:
    """`is`."""
    model = compiler.model
    namespace, name = read_type(model, written)
    source = operand_of(compiler, operand, kind)
    by_name = source.kind in RESOURCE_ROOTS and namespace != "System" and model.is_resource(name)
    items_of = source.run if by_name else source.nodes()

    def test(context: Context, this: Items) -> bool | None:
        items = items_of(context, this)
        if len(items) > 1:
            raise FhirPathError(f"'is' needs one item, got {len(items)}")
        if by_name and items:
            return bool(items[0].get("resourceType") == name)
        return is_type(items[0], namespace, name, model) if items else None

    return tested(test)


def type_filter(compiler: Compiling, operand: ast.Node | None, written: str, kind: str | None) -> Code:
    """`as`: like ofType(), but more than one item is an error in strict mode.

    R4's own search parameters use `as` on collections, so it is not refused otherwise.
    """
    chosen = of_type(compiler, operand, written, kind)
    if not compiler.strict:
        return chosen
    every = operand_of(compiler, operand, kind).run

    def run(context: Context, this: Items) -> Items:
        items = every(context, this)
        if len(items) > 1:
            raise FhirPathError(f"'as' needs one item, got {len(items)}")
        return chosen.run(context, this)

    return Code(run, chosen.kind)


def of_type(compiler: Compiling, operand: ast.Node | None, written: str, kind: str | None) -> Code:
    """The items of the type; of a primitive type only those of exactly this type."""
    model = compiler.model
    namespace, name = read_type(model, written)
    if namespace != "System":
        found = _of_choice(compiler, operand, name, kind)
        if found is not None:
            return found
    source = operand_of(compiler, operand, kind)
    if source.kind is None:
        return _of_nodes(source, namespace, name, model)
    if source.kind in RESOURCE_ROOTS:
        return _of_resources(source, name, model) if namespace != "System" else Code(nothing)
    fits = is_type(FhirNode({}, source.kind), namespace, name, model, exact_primitive=True)
    return source if fits else Code(nothing)


def _of_nodes(source: Code, namespace: str, name: str, model: Model) -> Code:
    items_of = source.run
    known: dict[str, bool] = {}  # the type of a node -> whether it is the wanted one

    def run(context: Context, this: Items) -> Items:
        found: Items = []
        for item in context.spend_on_items(items_of(context, this)):
            kind = item.type if type(item) is FhirNode else None
            fits = known.get(kind) if kind is not None else None
            if fits is None:
                fits = is_type(item, namespace, name, model, exact_primitive=True)
                if kind is not None:
                    known[kind] = fits
            if fits:
                found.append(item)
        return found

    return Code(run)


def _of_choice(compiler: Compiling, operand: ast.Node | None, name: str, kind: str | None) -> Code | None:
    """`value.ofType(Quantity)` is the property valueQuantity; None when it is not one property."""
    if not isinstance(operand, ast.Member):
        return None
    model = compiler.model
    source = Code(itself, kind) if operand.focus is None else compiler.compile(operand.focus, kind)
    if source.kind is None or source.kind in RESOURCE_ROOTS or model.is_primitive(source.kind):
        return None
    step = model.step(source.kind, operand.name)
    exact = model.is_primitive(name)
    choices = step.choices.items() if step is not None else ()
    keys = [key for key, each in choices if each == name or (not exact and model.is_a(each, name))]
    return typed(source, keys[0], dict(choices)[keys[0]], model) if len(keys) == 1 else None


def _of_resources(source: Code, name: str, model: Model) -> Code:
    items_of = source.run
    if model.is_resource(name):

        def named(context: Context, this: Items) -> Items:
            items = context.spend_on_items(items_of(context, this))
            return [one for one in items if one.get("resourceType") == name]

        return Code(named, name)

    def run(context: Context, this: Items) -> Items:
        items = context.spend_on_items(items_of(context, this))
        return [one for one in items if type(one) is dict and model.is_a(resource_type(one) or "Resource", name)]

    return Code(run, source.kind)


def _written(build: Callable[[Compiling, ast.Node | None, str, str | None], Code]) -> Shape:
    def shape(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
        return build(compiler, focus, type_of_syntax(args[0]), kind)

    return shape


shaped_function("is", 1)(_written(type_test))
shaped_function("as", 1)(_written(type_filter))
shaped_function("ofType", 1)(_written(of_type))
