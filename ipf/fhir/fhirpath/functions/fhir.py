"""The functions that FHIR adds: extensions, references, terminology, narrative.  `profiles` has those on definitions.

The `Host` provides other resources and value sets.
Source: https://hl7.org/fhir/R4/fhirpath.html#functions
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree
from xml.parsers.expat import ExpatError

from ipf.errors import Problem
from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.evaluation.code import Code, operand_of, tested
from ipf.fhir.fhirpath.evaluation.context import LOOKUP_STEPS, Context
from ipf.fhir.fhirpath.evaluation.reading import path
from ipf.fhir.fhirpath.evaluation.registry import Arguments, Compiling, plain_function, shaped_function
from ipf.fhir.fhirpath.functions.text import text_of
from ipf.fhir.fhirpath.items import operators as op
from ipf.fhir.fhirpath.items.nodes import FhirNode, Items, plain, wrap
from ipf.fhir.fhirpath.language import ast
from ipf.fhir.model.xml_pieces import narrative_tree

_XHTML = "{http://www.w3.org/1999/xhtml}"
_HTML_ELEMENTS = """
    a abbr acronym b big blockquote br caption cite code col colgroup dd dfn div dl dt em h1 h2 h3 h4 h5 h6 hr i
    img li map area ol p pre q samp small span strong sub sup table tbody td tfoot th thead tr tt ul var bdo kbd
    del ins
"""
_HTML_ATTRIBUTES = """
    abbr accesskey align alt axis bgcolor border cellhalign cellpadding cellspacing cellvalign char charoff
    charset cite class colspan compact coords dir frame headers height href hreflang hspace id lang longdesc
    name nowrap rel rev rowspan rules scope shape span src start style summary tabindex title type usemap valign
    value vspace width
"""
_ELEMENTS = HTML_ELEMENTS = frozenset(_HTML_ELEMENTS.split())
_ATTRIBUTES = frozenset(_HTML_ATTRIBUTES.split())


@shaped_function("extension", 1)
def extension(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """The extensions with this url, including those of a primitive (`_name`)."""
    every = path(operand_of(compiler, focus, kind), ("extension",), compiler.model)
    items_of, url = every.run, compiler.compile(args[0], kind).values()

    def run(context: Context, this: Items) -> Items:
        wanted = text_of(url(context, this), "extension")
        if wanted is None:
            return []
        return [item for item in context.spend_on_items(items_of(context, this)) if _url(item) == wanted]

    return Code(run, every.kind)


def _url(item: Any) -> Any:
    value = item.value if type(item) is FhirNode else item
    return value.get("url") if type(value) is dict else None


@shaped_function("hasExtension", 1)
def has_extension(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """Whether there is such an extension (R4's own search parameter `item-subject` uses it)."""
    items_of = extension(compiler, focus, args, kind).run
    return tested(lambda context, this: bool(items_of(context, this)))


@plain_function("hasValue")
def has_value(context: Context, focus: Items) -> Items:
    """Whether the focus is one primitive that has a value."""
    return [bool(get_value(context, focus))]


@plain_function("getValue")
def get_value(context: Context, focus: Items) -> Items:
    """The value of the one primitive."""
    if len(focus) != 1:
        return []
    item = focus[0]
    if type(item) is FhirNode and isinstance(item.value, (dict, list)):
        return []
    value = plain(item)
    return [] if value is None else [value]


@plain_function("resolve", reads="nodes")
def resolve(context: Context, focus: Items) -> Items:
    """The targets of References and uris: contained, in the Bundle, or resolved by the host."""
    found: Items = []
    for item in focus:
        reference = _reference(item)
        target = _target(context, reference) if reference else None
        if target is not None:
            found.append(wrap(target))
    return found


def _reference(item: Any) -> str | None:
    value = item.value if type(item) is FhirNode else plain(item)
    if isinstance(value, dict):
        value = value.get("reference")
    return value if isinstance(value, str) else None


def _target(context: Context, reference: str) -> Any:
    roots = [item.value for item in context.variable("rootResource") if isinstance(item.value, dict)]
    if roots and reference.startswith("#"):
        return _contained(context, roots[0], reference[1:])
    if context.entries is None:
        context.entries = _entries(context, roots)
    if reference in context.entries:
        return context.entries[reference]
    context.spend()
    return context.host.resolve(reference) if context.host.resolve is not None else None


def _contained(context: Context, root: dict[str, Any], identifier: str) -> Any:
    if not identifier or root.get("id") == identifier:
        return root
    contained = root.get("contained", ())
    context.spend(1 + len(contained))
    return next((each for each in contained if isinstance(each, dict) and each.get("id") == identifier), None)


def _entries(context: Context, roots: list[dict[str, Any]]) -> dict[str, Any]:
    """The resources of the Bundles by fullUrl and by `Type/id`, the first of equal ones; made once an evaluation."""
    found: dict[str, Any] = {}
    for root in roots:
        entries = root.get("entry", ()) if root.get("resourceType") == "Bundle" else ()
        context.spend(len(entries))
        for entry in entries:
            if not isinstance(entry, dict):
                continue
            resource, full_url = entry.get("resource"), entry.get("fullUrl")
            if isinstance(full_url, str):
                found.setdefault(full_url, resource)
            if isinstance(resource, dict):
                found.setdefault(f"{resource.get('resourceType')}/{resource.get('id')}", resource)
    return found


@plain_function("memberOf", 1, reads="nodes")
def member_of(context: Context, focus: Items, value_set: Items) -> Items:
    """Whether the one code, Coding or CodeableConcept is in the value set; empty when the host cannot decide."""
    url = text_of(value_set, "memberOf")
    if len(focus) != 1 or url is None:
        return []
    if context.host.member_of is None:
        raise FhirPathError("memberOf() needs value sets, and none are loaded")
    context.spend(LOOKUP_STEPS)
    context.spend_on(focus)
    return answer(context.host.member_of(json_of(focus[0]), url))


def _subsumption(name: str, swap: bool) -> None:
    def run(context: Context, focus: Items, other: Items) -> Items:
        if len(focus) != 1 or len(other) != 1:
            return []
        if context.host.subsumes is None:
            raise FhirPathError(f"{name}() needs code systems, and none are loaded")
        context.spend(LOOKUP_STEPS)
        context.spend_on(focus, other)
        a, b = (other[0], focus[0]) if swap else (focus[0], other[0])
        return answer(context.host.subsumes(json_of(a), json_of(b)))

    plain_function(name, 1, reads="nodes")(run)


_subsumption("subsumes", swap=False)
_subsumption("subsumedBy", swap=True)


def json_of(item: Any) -> Any:
    """An item as the JSON for a function of the host."""
    return item.value if type(item) is FhirNode else plain(item)


def answer(known: bool | None) -> Items:
    """What a function of the host tells, as a collection; None is empty."""
    return [] if known is None else [known]


@plain_function("htmlChecks", reads="nodes")
def html_checks(context: Context, focus: Items) -> Items:
    """Whether the one xhtml is a valid narrative (txt-1 and txt-2): permitted elements only, and not empty.

    Empty for an element of another type.
    """
    if len(focus) == 1 and (type(focus[0]) is not FhirNode or focus[0].type not in ("xhtml", None)):
        return []
    text = text_of(focus, "htmlChecks")
    return [] if text is None else [_is_narrative(text)]


def _is_narrative(text: str) -> bool:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return False
    try:
        root = narrative_tree(text)
    except (ElementTree.ParseError, ExpatError, ValueError, Problem):
        return False
    content = False
    for part in root.iter():
        name = str(part.tag).removeprefix(_XHTML)
        if name not in _ELEMENTS or any(not _is_allowed_attribute(key) for key in part.attrib):
            return False
        content = content or name == "img" or bool((part.text or "").strip() or (part.tail or "").strip())
    return content and root.tag == _XHTML + "div"


def is_html_attribute(name: str) -> bool:
    """Whether a narrative may have this attribute."""
    return _is_allowed_attribute(name)


def _is_allowed_attribute(name: str) -> bool:
    return name in _ATTRIBUTES or name.startswith("{http://www.w3.org/XML/1998/namespace}")


def boolean_of(items: Items) -> bool:
    """Whether a result counts as true: used by invariants and `where` clauses of maps."""
    return op.truth(items) is True
