"""Functions on texts.

Sources: http://hl7.org/fhirpath/N1/#string-manipulation, #additional-string-functions (trial use).
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
from collections.abc import Callable
from typing import Any

from ipf.fhir.fhirpath.errors import BudgetError, FhirPathError
from ipf.fhir.fhirpath.evaluation.code import Code, operand_of
from ipf.fhir.fhirpath.evaluation.context import CHARACTERS_OF_A_STEP, Context
from ipf.fhir.fhirpath.evaluation.registry import Arguments, Compiling, plain_function, shaped_function
from ipf.fhir.fhirpath.functions import patterns
from ipf.fhir.fhirpath.items import operators as op
from ipf.fhir.fhirpath.items.nodes import FhirNode, Items, is_foreign, plain
from ipf.fhir.fhirpath.language import ast


def text_of(items: Items, name: str) -> str | None:
    """The one text of a collection; dates of a resource count as their text; None when empty, an error for the rest."""
    if not items:
        return None
    item = items[0]
    if type(item) is str and len(items) == 1:
        return item
    if len(items) > 1 and not is_foreign(item):  # of repetitions in HL7 v2 the first counts, as in `op.single`
        raise FhirPathError(f"{name}() needs one text, got {len(items)} items")
    value = item.value if type(item) is FhirNode else plain(item)
    if value is None or isinstance(value, str):
        return value
    raise FhirPathError(f"{name}() needs a text")


def _integer(items: Items, name: str) -> int | None:
    value = op.single(items, name)
    if value is not None and type(value) is not int:
        raise FhirPathError(f"{name}() needs an integer")
    return value


def _on_text(
    name: str,
    call: Callable[..., Any],
    least: int = 0,
    most: int | None = None,
    *,
    of: Any = str,
    needed: int = 2,
    steps: Callable[..., int] | None = None,
) -> None:
    """Register `call(text, *arguments)`: empty when it is None, or the text or one of the `needed` arguments is empty.

    Arguments are of type `of`, str or int.  Literals are read once, when the expression is compiled.  `steps`: those
    that a call takes, of the text and the arguments; None: by the length of the text.
    """
    read = text_of if of is str else _integer

    def build(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
        items_of = operand_of(compiler, focus, kind).texts()
        codes = [compiler.compile(arg, kind) for arg in args]
        runs = [code.texts() for code in codes]
        literals = tuple(code.constant for code in codes)
        literal = all(type(each) is of for each in literals)

        def run(context: Context, this: Items) -> Items:
            items = items_of(context, this)
            text = items[0] if len(items) == 1 and type(items[0]) is str else text_of(items, name)
            given = literals if literal else tuple([read(each(context, this), name) for each in runs])
            if text is None or (not literal and None in given[:needed]):
                return []
            if len(text) > CHARACTERS_OF_A_STEP:
                context.spend_on_text(text)
            if steps is not None:
                context.spend(steps(text, *given))
            elif not literal:
                for one in given:
                    if type(one) is str:
                        context.spend_on_text(one)
            found = call(text, *given)
            if type(found) is str and len(found) > CHARACTERS_OF_A_STEP:
                return context.text(found)
            return [] if found is None else [found]

        return Code(run)

    shaped_function(name, least, most)(build)


def _bounded_replace(text: str, old: str, new: str) -> str:
    """str.replace, refused before it fills the memory."""
    times = text.count(old)
    if len(text) + times * len(new) > op.MAX_TEXT:
        raise BudgetError(f"the budget of {op.MAX_TEXT} characters of a text is used up")
    return text.replace(old, new)


def _substring(text: str, start: int, length: int | None = None) -> str | None:
    """From `start` (from 0) on, or `length` characters of it; None when the start is outside."""
    if not 0 <= start < len(text):
        return None
    return text[start:] if length is None else text[start : start + max(length, 0)]


_on_text("indexOf", str.find, 1)
_on_text("lastIndexOf", str.rfind, 1)
_on_text("startsWith", str.startswith, 1)
_on_text("endsWith", str.endswith, 1)
_on_text("contains", str.__contains__, 1)
_on_text("upper", str.upper)
_on_text("lower", str.lower)
_on_text("trim", str.strip)
_on_text("length", len)
_on_text("substring", _substring, 1, 2, of=int, needed=1)
_on_text("replace", _bounded_replace, 2)
_on_text("matches", patterns.search, 1, 2, steps=patterns.steps)
_on_text("matchesFull", patterns.full_match, 1, 2, steps=patterns.steps)
_on_text("replaceMatches", patterns.replace, 2, 3, needed=3, steps=patterns.steps_of_replace)


@plain_function("toChars", reads="texts")
def to_chars(context: Context, focus: Items) -> Items:
    """Each character as a text."""
    text = text_of(focus, "toChars")
    if text is None:
        return []
    context.spend(len(text))
    return list(text)


@plain_function("split", 1, reads="texts")
def split(context: Context, focus: Items, separator: Items) -> Items:
    """The parts between separators."""
    text, mark = text_of(focus, "split"), text_of(separator, "split")
    if text is None or mark is None:
        return []
    context.spend(len(text))
    return text.split(mark) if mark else list(text)


@plain_function("join", 0, 1, reads="texts")
def join(context: Context, focus: Items, separator: Items | None = None) -> Items:
    """All texts in one."""
    mark = text_of(separator or [], "join") or ""
    texts = [text for item in focus if (text := text_of([item], "join")) is not None]
    return context.text(mark.join(texts)) if texts else []


_URL_SAFE = "urlbase64"


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise FhirPathError(f"{name}() got a text that is not valid Unicode: half of a surrogate pair") from None


@plain_function("encode", 1, reads="texts")
def encode(context: Context, focus: Items, form: Items) -> Items:
    """As `hex`, `base64` or `urlbase64` of the UTF-8 bytes, or as `ascii` with `?` for other characters."""
    text, kind = text_of(focus, "encode"), text_of(form, "encode")
    if text is None or kind is None:
        return []
    context.spend_on_text(text)
    raw = _utf8(text, "encode")
    if kind == "ascii":
        return [text.encode("ascii", "replace").decode()]
    if kind == "hex":
        return context.text(raw.hex())
    if kind not in ("base64", _URL_SAFE):
        raise FhirPathError(f"encode() knows hex, base64, {_URL_SAFE} and ascii")
    return context.text((base64.b64encode(raw) if kind == "base64" else base64.urlsafe_b64encode(raw)).decode())


@plain_function("decode", 1, reads="texts")
def decode(context: Context, focus: Items, form: Items) -> Items:
    """The text of this `hex`, `base64` or `urlbase64` form; empty when the bytes are no UTF-8."""
    text, kind = text_of(focus, "decode"), text_of(form, "decode")
    if text is None or kind is None:
        return []
    context.spend_on_text(text)
    if kind not in ("hex", "base64", _URL_SAFE):
        raise FhirPathError(f"decode() knows hex, base64 and {_URL_SAFE}")
    try:
        if kind == "hex":
            return [bytes.fromhex(text).decode()]
        return [base64.b64decode(text, altchars=b"-_" if kind == _URL_SAFE else None, validate=True).decode()]
    except UnicodeDecodeError:
        return []
    except (ValueError, binascii.Error):
        raise FhirPathError(f"decode() got no {kind} of a text") from None


_JSON_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_JSON_CHARACTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@plain_function("escape", 1, reads="texts")
def escape(context: Context, focus: Items, form: Items) -> Items:
    """The text escaped for `html` or `json`."""
    text, kind = text_of(focus, "escape"), text_of(form, "escape")
    if text is None or kind is None:
        return []
    context.spend_on_text(text)
    if kind not in ("html", "json"):
        raise FhirPathError("escape() knows html and json")
    return context.text(html.escape(text) if kind == "html" else json.dumps(text, ensure_ascii=False)[1:-1])


@plain_function("unescape", 1, reads="texts")
def unescape(context: Context, focus: Items, form: Items) -> Items:
    """The opposite of escape()."""
    text, kind = text_of(focus, "unescape"), text_of(form, "unescape")
    if text is None or kind is None:
        return []
    context.spend_on_text(text)
    if kind == "html":
        return [html.unescape(text)]
    if kind == "json":
        return [_joined_pairs(_JSON_ESCAPE.sub(_json_character, text))]
    raise FhirPathError("unescape() knows html and json")


def _json_character(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _JSON_CHARACTERS.get(match[2], match[2])


def _joined_pairs(text: str) -> str:
    """The text with two escapes of one character joined; half of a pair is an error."""
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise FhirPathError("unescape() got half of a surrogate pair") from None
