"""XML Patch: a patch document in, a function on resources out.

The resource is written as XML, patched, and read again, so that it has the structure of R4 afterwards.  The operations
are the `add`, `replace` and `remove` elements below the root of the patch, whatever the root is called (`diff` in the
examples of FHIR).  Namespace declarations can be added; they are not replaced or removed, since a resource has no use
for them.  A DOCTYPE is refused, so there are no entities and nothing is loaded from elsewhere.

Problem MALFORMED for an invalid patch, INVALID for one that does not fit the resource; both name the operation.

Sources: RFC 5261, https://hl7.org/fhir/R4/http.html#patch
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from lxml import etree

from ipf.errors import Category, Problem
from ipf.fhir.budget import Budget
from ipf.fhir.patch.xml_selector import Selector, selector
from ipf.fhir.xml.reader import from_xml
from ipf.fhir.xml.writer import to_xml
from ipf.ports import Json

_MOST_OPERATIONS = 2000
MOST_STEPS = 100_000_000
"""Nodes of the document times parts of selectors, of all operations: about a second, in C and without the lock."""
_NAME = re.compile(r"[^\W\d][\w.-]*")
_TYPE = re.compile(r"(@|namespace::)((?:[^\W\d][\w.-]*:)?[^\W\d][\w.-]*)")
_ALLOWED: dict[str, dict[str, tuple[str, ...] | None]] = {
    "add": {"sel": None, "pos": ("before", "after", "prepend"), "type": None},
    "replace": {"sel": None},
    "remove": {"sel": None, "ws": ("before", "after", "both")},
}


def xml_patch(text: bytes) -> Callable[[Json], Json]:
    """The patch of an XML Patch document, for resources as parsed JSON."""
    change = patch_document(text)

    def apply(resource: Json) -> Json:
        try:
            written = to_xml(resource)
        except Problem as problem:
            raise Problem(Category.INVALID, f"the resource has no XML form: {problem.text}") from problem
        return from_xml(change(written))

    return apply


def patch_document(text: bytes) -> Callable[[bytes], bytes]:
    """The patch of an XML Patch document, for XML documents."""
    operations = list(_operations(_parsed(text, "the patch")))
    if not operations:
        raise Problem(Category.MALFORMED, "the XML Patch has no operation")

    def apply(document: bytes) -> bytes:
        target = _Target(_parsed(document, "the document"), Budget(MOST_STEPS, "the XML Patch"))
        target.nodes = 1 + len(operations) + sum(1 for _ in target.root.iter())
        for operation in operations:
            _PERFORM[operation.name](target, operation)
        return bytes(etree.tostring(target.root, encoding="UTF-8", with_tail=False))

    return apply


@dataclass(frozen=True, slots=True)
class _Operation:
    """One operation, read; `place` names it in messages."""

    name: str
    element: Any
    selector: Selector
    place: str

    def refuse(self, text: str, category: Category = Category.INVALID) -> Problem:
        """The Problem of an operation that does not fit the document, or that is malformed."""
        return Problem(category, f"{self.name}: {text}", self.place)

    @property
    def text(self) -> str:
        """Its content as text."""
        if len(self.element):
            raise self.refuse("the content must be text", Category.MALFORMED)
        return self.element.text or ""

    @property
    def node(self) -> Any:
        """Its content as one element, comment or processing instruction."""
        around = [self.element.text, *(child.tail for child in self.element)]
        if len(self.element) != 1 or any(text and text.strip() for text in around):
            raise self.refuse("the content must be one element, comment or processing instruction", Category.MALFORMED)
        found = deepcopy(self.element[0])
        found.tail = None
        return found


def _parsed(text: bytes, what: str) -> Any:
    """The root element of an XML text.  Problem MALFORMED, also for a DOCTYPE and an encoding other than UTF-8."""
    try:
        if "<!DOCTYPE" in text.decode():
            raise Problem(Category.MALFORMED, f"{what} must not have a DOCTYPE")
        parser = etree.XMLParser(
            encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False
        )
        return etree.fromstring(text, parser)
    except (UnicodeDecodeError, etree.XMLSyntaxError, ValueError) as wrong:
        line, column = getattr(wrong, "position", (0, 0))
        where = f" at line {line} column {column}" if line else ""
        raise Problem(Category.MALFORMED, f"{what} is not XML in UTF-8{where}") from None


def _operations(root: Any) -> Iterator[_Operation]:
    elements = [child for child in root if isinstance(child.tag, str)]
    if len(elements) > _MOST_OPERATIONS:
        raise Problem(Category.MALFORMED, f"an XML Patch has at most {_MOST_OPERATIONS} operations")
    for number, element in enumerate(elements):
        place, name = f"operation[{number}]", etree.QName(element).localname
        allowed = _ALLOWED.get(name)
        if allowed is None:
            raise Problem(Category.MALFORMED, "an operation is add, replace or remove", place)
        for attribute, value in element.attrib.items():
            values = allowed.get(attribute)
            if attribute not in allowed or (values is not None and value not in values):
                raise Problem(Category.MALFORMED, f"{name} has no {attribute[:60]}={value[:60]!r}", place)
        if "sel" not in element.attrib:
            raise Problem(Category.MALFORMED, f"{name} needs sel", place)
        yield _Operation(name, element, selector(element.get("sel"), element.nsmap, place), place)


@dataclass(slots=True)
class _Target:
    """The document that is patched.  `left`: for selectors, each part of which may look at all `nodes`."""

    root: Any
    left: Budget
    nodes: int = 0

    def find(self, operation: _Operation) -> Any:
        """The one node that the selector names: an element or comment, or the text of an attribute or text node."""
        chosen = operation.selector
        self.left.spend(self.nodes * (chosen.expression.count("/") + chosen.expression.count("[")))
        try:
            found = self.root.getroottree().xpath(chosen.expression, namespaces=dict(chosen.namespaces))
        except etree.XPathError:
            raise operation.refuse("sel has a prefix that the patch does not declare", Category.MALFORMED) from None
        if len(found) != 1:
            raise operation.refuse("sel matches nothing" if not found else f"sel matches {len(found)} nodes")
        return found[0]

    def swap(self, old: Any, new: Any) -> None:
        """Put a node in the place of another."""
        parent = old.getparent()
        if parent is None:
            self.root = new
            return
        new.tail = old.tail
        parent.replace(old, new)


def _add(target: _Target, operation: _Operation) -> None:
    node, type_, pos = target.find(operation), operation.element.get("type"), operation.element.get("pos")
    if isinstance(node, str):
        raise operation.refuse("sel must name an element or comment")
    if type_ is not None:
        _add_named(target, operation, node, type_)
        return
    if pos in ("before", "after"):
        parent = node.getparent()
        if parent is None:
            raise operation.refuse("nothing stands beside the root")
        _insert(operation, parent, parent.index(node) + (pos == "after"), begins=pos == "after")
        return
    if not isinstance(node.tag, str):
        raise operation.refuse("sel must name an element")
    _insert(operation, node, 0 if pos == "prepend" else len(node), begins=pos == "prepend")


def _add_named(target: _Target, operation: _Operation, element: Any, type_: str) -> None:
    """Add an attribute or a namespace declaration."""
    read = _TYPE.fullmatch(type_)
    if read is None or not isinstance(element.tag, str) or "pos" in operation.element.attrib:
        raise operation.refuse("type is @name or namespace::prefix, of an element, without pos", Category.MALFORMED)
    if read[1] == "@":
        prefix, _, name = read[2].rpartition(":")
        uri = operation.selector.namespaces.get(prefix) if prefix else None
        if prefix and uri is None:
            raise operation.refuse("type has a prefix that the patch does not declare", Category.MALFORMED)
        name = f"{{{uri}}}{name}" if uri else name
        if name in element.attrib:
            raise operation.refuse("the attribute is there already")
        element.set(name, operation.text)
        return
    if read[2] in element.nsmap or not _NAME.fullmatch(read[2]):
        raise operation.refuse("the prefix is declared already")
    made = etree.Element(element.tag, dict(element.attrib), nsmap={**element.nsmap, read[2]: operation.text.strip()})
    made.text = element.text
    target.swap(element, made)
    made.extend(list(element))


def _insert(operation: _Operation, parent: Any, index: int, *, begins: bool) -> None:
    """Insert the content before child `index`; `begins`: before the text that stands there, else behind it."""
    left = _text_before(parent, index)
    head, rest = ("", left) if begins else (left, "")
    nodes = [deepcopy(child) for child in operation.element]
    head += operation.element.text or ""
    _set_text_before(parent, index, head if nodes else head + rest)
    for number, node in enumerate(nodes):
        tail = node.tail
        parent.insert(index + number, node)
        node.tail = (tail or "") + (rest if number == len(nodes) - 1 else "") or None


def _replace(target: _Target, operation: _Operation) -> None:
    node = target.find(operation)
    if isinstance(node, str):
        _set_string(node, operation.text)
        return
    new = operation.node
    if isinstance(node.tag, str) != isinstance(new.tag, str):
        raise operation.refuse("the content must be a node of the same kind")
    target.swap(node, new)


def _remove(target: _Target, operation: _Operation) -> None:
    node, ws = target.find(operation), operation.element.get("ws")
    if len(operation.element) or (operation.element.text or "").strip():
        raise operation.refuse("remove has no content", Category.MALFORMED)
    if isinstance(node, str):
        if ws is not None:
            raise operation.refuse("ws is for elements, comments and processing instructions", Category.MALFORMED)
        _set_string(node, None)
        return
    parent = node.getparent()
    if parent is None:
        raise operation.refuse("the root cannot be removed")
    index = parent.index(node)
    before, after = _text_before(parent, index), node.tail or ""
    for side, text in (("before", before), ("after", after)):
        if ws in (side, "both") and (not text or text.strip()):
            raise operation.refuse(f"there is no white space {side} the node")
    parent.remove(node)
    kept = ("" if ws in ("before", "both") else before) + ("" if ws in ("after", "both") else after)
    _set_text_before(parent, index, kept)


def _set_string(node: Any, text: str | None) -> None:
    """Set the attribute or text node that a selector found; None removes it."""
    parent = node.getparent()
    if node.is_attribute:
        if text is None:
            del parent.attrib[node.attrname]
        else:
            parent.set(node.attrname, text)
    elif node.is_tail:
        parent.tail = text
    else:
        parent.text = text


def _text_before(parent: Any, index: int) -> str:
    """The text in front of child `index`."""
    return (parent.text if index == 0 else parent[index - 1].tail) or ""


def _set_text_before(parent: Any, index: int, text: str) -> None:
    if index == 0:
        parent.text = text or None
    else:
        parent[index - 1].tail = text or None


_PERFORM: dict[str, Callable[[_Target, _Operation], None]] = {"add": _add, "replace": _replace, "remove": _remove}
