"""Characters that change the direction of text: U+202E makes `gnp.exe` look like `exe.png`.

Source: https://www.unicode.org/reports/tr9/#Directional_Formatting_Characters
"""

from __future__ import annotations

import re

CONTROLS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""The members of a character class of a pattern."""
_CONTROL = re.compile(f"[{CONTROLS}]")


def escaped(text: str) -> str:
    """A text for files and terminals, with an escape sequence such as `\\u202e` instead of each of them."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
