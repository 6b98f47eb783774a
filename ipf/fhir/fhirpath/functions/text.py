"""Functions on texts.

Sources: http://hl7.org/fhirpath/N1/#string-manipulation, #additional-string-functions (trial use).
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
from typing import Any

from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.evaluation.context import Context
from ipf.fhir.fhirpath.evaluation.registry import plain_function
from ipf.fhir.fhirpath.functions import patterns
from ipf.fhir.fhirpath.items import operators as op
from ipf.fhir.fhirpath.items.nodes import FhirNode, Items, is_foreign, plain


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


def _on_texts(name: str, call: Any, arguments: int = 1, most: int | None = None) -> None:
    """Register a function of texts only: empty when any of them is empty."""

    def run(context: Context, focus: Items, *args: Items) -> Items:
        text = text_of(focus, name)
        texts = [text_of(items, name) for items in args]
        if text is None or None in texts:
            return []
        context.spend_on_text(text)
        answer = call(text, *texts)
        return context.text(answer) if isinstance(answer, str) else [answer]

    plain_function(name, arguments, most, reads="texts")(run)


def _bounded_replace(text: str, old: str, new: str) -> str:
    """str.replace, refused before it fills the memory."""
    times = text.count(old)
    if len(text) + times * len(new) > op.MAX_TEXT:
        raise FhirPathError(f"a text of more than {op.MAX_TEXT} characters")
    return text.replace(old, new)


_on_texts("indexOf", lambda text, part: text.find(part))
_on_texts("lastIndexOf", lambda text, part: text.rfind(part))
_on_texts("startsWith", lambda text, part: text.startswith(part))
_on_texts("endsWith", lambda text, part: text.endswith(part))
_on_texts("contains", lambda text, part: part in text)
_on_texts("upper", str.upper, 0)
_on_texts("lower", str.lower, 0)
_on_texts("trim", str.strip, 0)
_on_texts("length", len, 0)
_on_texts("replace", _bounded_replace, 2)
_on_texts("matches", lambda text, pattern, flags="": patterns.search(pattern, text, flags), 1, 2)
_on_texts("matchesFull", lambda text, pattern, flags="": patterns.full_match(pattern, text, flags), 1, 2)
_on_texts("replaceMatches", lambda text, pattern, new, flags="": patterns.replace(pattern, text, new, flags), 2, 3)


@plain_function("substring", 1, 2, reads="texts")
def substring(context: Context, focus: Items, start: Items, length: Items | None = None) -> Items:
    """From `start` (from 0) on, or `length` characters of it; empty when the start is outside."""
    text, first = text_of(focus, "substring"), _integer(start, "substring")
    if text is None or first is None or not 0 <= first < len(text):
        return []
    size = _integer(length, "substring") if length is not None else None
    return context.text(text[first:] if size is None else text[first : first + max(size, 0)])


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
        return [raw.hex()]
    if kind not in ("base64", _URL_SAFE):
        raise FhirPathError(f"encode() knows hex, base64, {_URL_SAFE} and ascii")
    return [(base64.b64encode(raw) if kind == "base64" else base64.urlsafe_b64encode(raw)).decode()]


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
