"""Characters and escapes."""

from __future__ import annotations

import codecs

from twisted.trial.unittest import TestCase

from ipf.hl7.charset import codec_of, decode, decode_with
from ipf.hl7.escape import Separators, escape, separators_of, unescape

NAMES = {
    "8859/1": "iso8859-1",
    "8859/15": "iso8859-15",
    "UNICODE UTF-8": "utf-8",
    "unicode utf-8": "utf-8",
    "UTF-8": "utf-8",
    "UTF8": "utf-8",
    "ISO-8859-1": "iso8859-1",
    "windows-1252": "cp1252",
    "ASCII": "utf-8",
    "ISO IR87": "iso2022_jp_ext",
    "JAS2020": "iso2022_jp_ext",
    "GB 18030-2000": "gb18030",
    "BIG-5": "big5",
    "": None,
    "KLINGON": None,
    "hex": None,
    "\x00": None,
}

# sent, names in MSH-18 -> text, codec, whether there is a warning
DECODED = [
    (b"abc", [], "abc", "utf-8", False),
    ("Müller".encode(), [], "Müller", "utf-8", False),
    ("Müller".encode("latin-1"), [], "Müller", "iso8859-1", True),
    ("Müller".encode("latin-1"), ["8859/1"], "Müller", "iso8859-1", False),
    ("Müller".encode("latin-1"), ["UNICODE UTF-8"], "Müller", "iso8859-1", True),
    ("Müller".encode(), ["ASCII"], "Müller", "utf-8", False),
    ("Łódź".encode("iso8859-2"), ["8859/2"], "Łódź", "iso8859-2", False),
    ("山田".encode("iso2022_jp"), ["ISO IR87"], "山田", "iso2022_jp_ext", False),
    ("山田".encode("iso2022_jp"), ["", "ISO IR87"], "山田", "iso2022_jp_ext", False),
    ("山田".encode("iso2022_jp"), ["ASCII", "ISO IR14", "ISO IR87"], "山田", "iso2022_jp_ext", False),
    ("丂ﾔ".encode("iso2022_jp_ext"), ["8859/1", "ISO IR159"], "丂ﾔ", "iso2022_jp_ext", False),
    (b"Doe", ["8859/1", "ISO IR87"], "Doe", "iso8859-1", False),
    ("Müller\x1b.".encode("latin-1"), ["8859/1", "ISO IR87"], "Müller\x1b.", "iso8859-1", True),
    (b"a\x1bb", ["8859/1", "8859/2"], "a\x1bb", "iso8859-1", False),
    ("山田".encode("gb18030"), ["GB 18030-2000"], "山田", "gb18030", False),
    ("ü".encode(), ["KLINGON"], "ü", "utf-8", True),
    (b"abc", ["KLINGON"], "abc", "utf-8", True),
]

# as sent -> what it means
ESCAPES = {
    "plain": "plain",
    "a\\F\\b\\S\\c\\T\\d\\R\\e\\E\\f": "a|b^c&d~e\\f",
    "one\\.br\\two": "one\ntwo",
    "one\\.sp2\\two\\.SP\\three": "one\n\ntwo\nthree",
    "\\.in+4\\x\\.ce\\y\\.ti-2\\z\\.nf\\\\.fi\\!": "x\nyz!",
    "\\H\\loud\\N\\ quiet": "loud quiet",
    "\\X41\\\\X4243\\": "ABC",
    "\\Xc3bc\\": "ü",
    "\\X4\\": "\\X4\\",
    "\\C2842\\a\\M2442\\b\\M244243\\c": "abc",
    "\\Zown\\kept": "\\Zown\\kept",
    "C:\\temp\\file": "C:\\temp\\file",
    "50\\50": "50\\50",
    "end\\": "end\\",
    "\\\\\\": "\\\\\\",
    "a\\\\F\\b": "a\\|b",
    "\\P\\": "\\P\\",
}


class CharsetTests(TestCase):
    def test_names(self) -> None:
        for name, codec in NAMES.items():
            found = codec_of(name)
            self.assertEqual(found and codecs.lookup(found).name, codec and codecs.lookup(codec).name, name)

    def test_decoding(self) -> None:
        for raw, names, text, codec, warned in DECODED:
            found = decode(raw, names)
            self.assertEqual((found.text, found.codec, found.warning is not None), (text, codec, warned), (raw, names))

    def test_invalid_bytes_become_replacement_characters(self) -> None:
        found = decode(b"a\xff\x81b", [], "cp1252")
        self.assertEqual((found.text[0], found.text[-1], found.warning is not None), ("a", "b", True))
        self.assertIsNotNone(decode_with(b"\xff", "utf-8").warning)
        self.assertEqual(decode_with(b"\xff", "no such codec").text, "ÿ")


class EscapeTests(TestCase):
    def test_unescape(self) -> None:
        for sent, meant in ESCAPES.items():
            self.assertEqual(unescape(sent), meant, sent)

    def test_truncation_character_of_v2_7(self) -> None:
        self.assertEqual(unescape(r"a\P\b", separators_of("|", r"^~\&#")), "a#b")

    def test_hexadecimal_is_in_the_character_set_of_the_message(self) -> None:
        """The bytes of one character may stand in several; others fall back."""
        for sent, codec, meant in (
            ("\\Xfc\\", "iso8859-1", "ü"), ("\\Xfc\\", "utf-8", "ü"), ("caf\\XE9\\ ", "utf-8", "café "),
            ("\\Xc3\\\\Xbc\\", "utf-8", "ü"), ("a\\X41\\\\X42\\\\X43\\b", "utf-8", "aABCb"),
            ("\\Xc3\\ \\Xbc\\", "utf-8", "Ã ¼"),
            ("\\E\\\\X41\\", "utf-8", "\\A"), ("\\X41\\\\F\\", "utf-8", "A|"),
        ):  # fmt: skip
            self.assertEqual(unescape(sent, codec=codec), meant, sent)

    def test_escape_and_back(self) -> None:
        for separators in (Separators(), separators_of("#", "!*?@")):
            for text in ("a|b^c~d\\e&f", "#!*?@", "line\r\nline\nline", "\x0b\x1c", ""):
                written = escape(text, separators)
                self.assertFalse(set(written) & set("\r\n\x0b\x1c" + separators.field + separators.component))
                self.assertEqual(unescape(written, separators), text.replace("\r\n", "\n"))

    def test_without_an_escape_character(self) -> None:
        none = Separators(escape="")
        self.assertEqual((unescape(r"a\F\b", none), escape("a|b\rc", none)), (r"a\F\b", "a b c"))
