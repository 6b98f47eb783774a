"""XML in pieces: the parser in C keeps Python's interpreter lock until it returns, so it gets a large text in pieces.

What it reads as a whole (a tag, a comment) has a limit, and long values are taken out before (`xml_values.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

from ipf.errors import Category, Problem
from ipf.fhir.model.xml_values import without_long_values

PIECE = 128 * 1024
MOST_PIECES = 8  # of one tag or comment
MOST_ATTRIBUTES = 1000  # in one piece that is the middle of a tag
MOST_TAGS = 200_000
"""Tags and comments of a narrative: 100,000 elements take about 0.3 s and 60 MB when they are validated."""


def feed(parser: Any, text: bytes, events: Callable[[], int]) -> None:
    """Parse a whole text.  `events`: how many elements, texts and comments the parser has reported so far.

    ExpatError; Problem TOO_LARGE for a tag or comment that is too long.
    """
    if len(text) <= PIECE:
        parser.Parse(text, True)
        return
    before = pieces = 0
    for start in range(0, len(text), PIECE):
        piece = text[start : start + PIECE]
        parser.Parse(piece, False)
        pieces = pieces + 1 if before == events() else 0
        before = events()
        if pieces > MOST_PIECES:
            raise too_large(f"a tag or comment is longer than {MOST_PIECES * PIECE // 1024} kB")
        if pieces and _attributes_in(piece) > MOST_ATTRIBUTES:
            raise too_large("an element has too many attributes")
    parser.Parse(b"", True)


def check_well_formed(text: str) -> None:
    """Nothing for a narrative that is XML without a DOCTYPE, so that there are no entities but those of XML itself.

    ExpatError, ValueError, Problem TOO_LARGE.
    """
    if len(text) > MOST_TAGS and text.count("<") > MOST_TAGS:
        raise too_large(f"the narrative has more than {MOST_TAGS} tags")
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = _refuse_doctype
    feed_narrative(parser, text)


def feed_narrative(parser: Any, text: str) -> None:
    """Parse a narrative with a parser that reports at most beginnings of elements.  Errors as `feed`."""
    events = 0

    def count(*_: object) -> None:
        nonlocal events
        events += 1

    if len(text) > PIECE:
        parser.CharacterDataHandler = parser.CommentHandler = parser.EndElementHandler = count
    feed(parser, without_long_values(text.encode())[0], lambda: events)


def narrative_tree(text: str) -> ElementTree.Element:
    """The elements of a narrative.  ElementTree.ParseError, ExpatError, ValueError, Problem TOO_LARGE."""
    check_well_formed(text)
    parser = ElementTree.XMLParser()
    for start in range(0, len(text), PIECE):
        parser.feed(text[start : start + PIECE])
    root: ElementTree.Element = parser.close()
    return root


def too_large(text: str) -> Problem:
    """The refusal of an XML text."""
    return Problem(Category.TOO_LARGE, text)


def _attributes_in(piece: bytes) -> int:
    """How many attributes a piece of a tag has at most: each has a sign and two quotation marks."""
    return min(piece.count(b"="), (piece.count(b'"') + piece.count(b"'")) // 2)


def _refuse_doctype(*declared: Any) -> None:
    raise ValueError("a narrative must not have a DOCTYPE")
