"""Characters that change the direction of text, made visible: a name must not make a page show other words than it has.

`isolated` works on a rendered page: outside of tags each of these characters becomes a visible sign, and a text with
one, or with a letter that is written from right to left, is in an element `bdi` of its own, so that it moves nothing
beside it.  Texts that a browser shows without elements (`title`, `option`, tooltips) get the sign alone.  What people
edit and what scripts read (`textarea`, values of fields, addresses) stays as it is, since it is sent again.

Sources: https://www.unicode.org/reports/tr9/#Directional_Formatting_Characters;
https://html.spec.whatwg.org/multipage/text-level-semantics.html#the-bdi-element
"""

from __future__ import annotations

import re
import unicodedata

from ipf.hl7.direction import CONTROLS

_CONTROL = re.compile(f"[{CONTROLS}]")
_RIGHT_TO_LEFT = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff"
_ANY = re.compile(f"[{CONTROLS}{_RIGHT_TO_LEFT}]")
_TAG = re.compile(r"(<[^<>]*>)")
_SHOWN = re.compile(r'(?:title|aria-label)="[^"]*"')
_NAME = re.compile(r"</?([A-Za-z]+)")
_WORDS_ONLY, _AS_IT_IS = frozenset(("title", "option")), frozenset(("textarea", "script", "style"))


def isolated(html: str) -> str:
    """A page, or a part of one, with these characters marked."""
    if _ANY.search(html) is None:
        return html
    parts, inside = _TAG.split(html), ""
    for number, part in enumerate(parts):
        if number % 2:
            name = _name_of(part)
            if name in _WORDS_ONLY or name in _AS_IT_IS:
                inside = "" if part.startswith("</") else name
            parts[number] = _SHOWN.sub(lambda shown: _CONTROL.sub(_sign, shown[0]), part)
        elif inside in _WORDS_ONLY:
            parts[number] = _CONTROL.sub(_sign, part)
        elif not inside and _ANY.search(part):
            parts[number] = f"<bdi>{_CONTROL.sub(_marked, part)}</bdi>"
    return "".join(parts)


def _name_of(tag: str) -> str:
    found = _NAME.match(tag)
    return found[1].lower() if found else ""


def _sign(found: re.Match[str]) -> str:
    return f"[U+{ord(found[0]):04X}]"


def _marked(found: re.Match[str]) -> str:
    return f'<span class="direction" title="{unicodedata.name(found[0])}">{_sign(found)}</span>'
