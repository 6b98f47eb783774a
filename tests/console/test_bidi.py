"""Characters that change the direction of text: in pages, in parts of pages, in files."""

from __future__ import annotations

import re
import unicodedata

from markupsafe import escape
from twisted.trial.unittest import TestCase

from ipf.console.html.bidi import isolated
from ipf.console.html.rendering import Renderer
from ipf.console.html.static import StaticFiles
from ipf.console.serving.lists import Column, Kind, ListPage, cell

CONTROLS = [chr(code) for code in range(0x11000) if unicodedata.bidirectional(chr(code)) in (
    "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")] + ["\u061c", "\u200e", "\u200f"]  # fmt: skip
NAME = "Hansen\u202egnp.exe"
SIGN = '<span class="direction" title="RIGHT-TO-LEFT OVERRIDE">[U+202E]</span>'


class IsolatedTests(TestCase):
    def test_every_control_character_is_a_sign(self) -> None:
        """Those of the Unicode database, none forgotten, also beside the marks of HTML."""
        self.assertEqual(len(CONTROLS), 12)
        for control in CONTROLS:
            for text in (f"a{control}b", control, f"{control}<script>", f'"{control}&'):
                page = isolated(f"<td>{escape(text)}</td>")
                self.assertNotIn(control, page)
                self.assertIn(f"[U+{ord(control):04X}]", page)
                self.assertTrue(page.startswith("<td><bdi>") and page.endswith("</bdi></td>"), page)
                self.assertNotIn("<script>", page)

    def test_places(self) -> None:
        """Texts of elements get an element of their own; what has no elements gets the sign; what is edited stays."""
        cases = {
            f"<p>{NAME}</p>": f"<p><bdi>Hansen{SIGN}gnp.exe</bdi></p>",
            f"<td>{NAME}</td><td>Ola</td>": f"<td><bdi>Hansen{SIGN}gnp.exe</bdi></td><td>Ola</td>",
            f"<title>{NAME}</title>": "<title>Hansen[U+202E]gnp.exe</title>",
            f"<option selected>{NAME}</option><b>{NAME}</b>": (
                f"<option selected>Hansen[U+202E]gnp.exe</option><b><bdi>Hansen{SIGN}gnp.exe</bdi></b>"
            ),
            f"<textarea name=raw>{NAME}</textarea>": f"<textarea name=raw>{NAME}</textarea>",
            f'<input value="{NAME}" title="{NAME}">': f'<input value="{NAME}" title="Hansen[U+202E]gnp.exe">',
            f'<a href="/x?{NAME}" aria-label="{NAME}">x</a>': (
                f'<a href="/x?{NAME}" aria-label="Hansen[U+202E]gnp.exe">x</a>'
            ),
            "<td>\u05d0\u05d1</td>": "<td><bdi>\u05d0\u05d1</bdi></td>",
            "<td>\u0645\u062d\u0645\u062f 12</td>": "<td><bdi>\u0645\u062d\u0645\u062f 12</bdi></td>",
            "<td>Zürich – 東京</td>": "<td>Zürich – 東京</td>",
        }
        for html, expected in cases.items():
            self.assertEqual(isolated(html), expected)

    def test_a_row_of_a_list(self) -> None:
        """As the pages and the live tail show it: texts, codes, long texts, filters."""
        kinds = [
            Column(f"c{number}", kind) for number, kind in enumerate((Kind.TEXT, Kind.CODE, Kind.LONG, Kind.FILTER))
        ]
        values = {"list": ListPage("messages", "/admin/messages", kinds), "columns": kinds,
                  "item": {"id": 1, **{one.name: NAME for one in kinds}}}  # fmt: skip
        page = Renderer(StaticFiles()).page("list_row.html", "en", values).decode()
        self.assertEqual(page.count(SIGN), len(kinds), page)
        self.assertNotIn("\u202e", re.sub(r'(?:href|data-[a-z]+)="[^"]*"', "", page))

    def test_cells_of_files(self) -> None:
        """An escape sequence; a formula behind a control character is none."""
        for value, expected in (
            (NAME, "Hansen\\u202egnp.exe"), (["a\u2066b", "c"], "a\\u2066b, c"), ("\u202e=1+1", "\\u202e=1+1"),
            ("=1+1", "'=1+1"), ("\u05d0", "\u05d0"), (None, ""),
        ):  # fmt: skip
            self.assertEqual(cell(value), expected)
