"""A large XML text does not keep the interpreter lock, and is refused by count before it is built.

Holding the lock is counted in bytes that the XML parser gets at once, not in time.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from xml.parsers import expat

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model import xml_pieces, xml_values
from ipf.fhir.model.json import dumps
from ipf.fhir.xml import reader
from ipf.fhir.xml.reader import from_xml
from tests.rest.world import World

START = b'<Patient xmlns="http://hl7.org/fhir"'
DIV = b'<text><status value="generated"/><div xmlns="http://www.w3.org/1999/xhtml">'
LARGE = 3_000_000


def attributes(count: int, form: bytes = b' a%d="1"') -> bytes:
    return b"".join([form % number for number in range(count)])


REFUSED = {
    "attributes": START + attributes(200_000) + b"/>",
    "attributes in apostrophes": START + attributes(200_000, b" a%d = '1'") + b"/>",
    "namespaces": START + attributes(200_000, b' xmlns:a%d="urn:a"') + b"/>",
    "attributes of the narrative": START + b">" + DIV + b"<p" + attributes(200_000) + b"/></div></text></Patient>",
    "a comment": START + b"><!--" + b"a" * LARGE + b"--></Patient>",
    "an instruction": START + b"><?a " + b"a" * LARGE + b"?></Patient>",
    "a name": START + b"><" + b"a" * LARGE + b"/></Patient>",
    "an attribute with entities": START + b'><language value="&amp;' + b"a" * LARGE + b'"/></Patient>',
    "elements": START + b">" + DIV + b"<b/>" * 1_000_001 + b"</div></text></Patient>",
    "comments": START + b">" + b"<!---->" * 1_000_001 + b"</Patient>",
    "instructions": START + b">" + b"<?a?>" * 1_000_001 + b"</Patient>",
}
ACCEPTED = {
    "a document": START + b'><photo><data value="' + b"QUJD" * (LARGE // 4) + b'"/></photo></Patient>',
    "spaces": START + b">" + b" " * LARGE + b'<language value="de"/></Patient>',
    "names": START + b">" + b'<name><text value="a"/></name>' * 50_000 + b"</Patient>",
    "a narrative": START + b">" + DIV + b"a" * LARGE + b"</div></text></Patient>",
    "a text of a megabyte": START + b'><name><text value="&lt;' + b"a" * 1_000_000 + b'"/></name></Patient>',
    "text that looks like attributes": START
    + b'><name><text value="&#10;'
    + b"a='b'\n" * 150
    + b'"/></name></Patient>',
}


class Pieces:
    """Notes the sizes of what parsers get."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def parser(self, *given: Any) -> Any:
        """In place of `expat.ParserCreate`."""
        return _Noting(expat.ParserCreate(*given), self.sizes)


class _Noting:
    def __init__(self, parser: Any, sizes: list[int]) -> None:
        self.__dict__.update(_parser=parser, _sizes=sizes)

    def Parse(self, text: bytes, is_final: bool) -> None:
        self._sizes.append(len(text))
        self._parser.Parse(text, is_final)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_parser"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_parser"], name, value)


class LargeXmlTests(TestCase):
    def setUp(self) -> None:
        self.pieces = Pieces()
        made = type("Made", (), {name: getattr(expat, name) for name in ("ExpatError", "errors")})
        made.ParserCreate = staticmethod(self.pieces.parser)  # type: ignore[attr-defined]  # a stand-in for a module
        self.patch(reader, "expat", made)

    def test_what_is_refused_by_count(self) -> None:
        for name, text in REFUSED.items():
            problem = self.assertRaises(Problem, from_xml, text)
            self.assertIs(problem.category, Category.TOO_LARGE, name)

    def test_the_parser_gets_pieces(self) -> None:
        for name, text in {**REFUSED, **ACCEPTED}.items():
            try:
                from_xml(text)
            except Problem:
                self.assertIn(name, REFUSED)
            else:
                self.assertIn(name, ACCEPTED)
        self.assertLessEqual(max(self.pieces.sizes), 128 * 1024)

    def test_a_document_keeps_every_character(self) -> None:
        found = from_xml(ACCEPTED["a document"])
        self.assertEqual(found["photo"][0]["data"], "QUJD" * (LARGE // 4))
        self.assertLess(sum(self.pieces.sizes), 1000, "the parser has not read it")


class SmallPieceTests(TestCase):
    """With pieces and windows of a few bytes, texts are read as with large ones."""

    def test_the_result_does_not_depend_on_pieces(self) -> None:
        texts = list(variants())
        expected = [dumps(from_xml(text)) for text in texts]
        found_marks = 0
        for piece, window in ((64, 30), (77, 40), (200, 64)):
            self.patch(xml_pieces, "PIECE", piece)
            self.patch(xml_pieces, "MOST_PIECES", 1000)
            self.patch(xml_values, "_WINDOW", window)
            for text, whole in zip(texts, expected, strict=True):
                self.assertEqual(dumps(from_xml(text)), whole, text)
                found_marks += len(xml_values.without_long_values(text)[1])
        self.assertGreater(found_marks, 500)


def variants() -> Iterator[bytes]:
    """Patients with Base64 of many lengths in every place where a quotation mark can stand."""
    random = Random(7)
    letters = b"QUJDabc012+/=: "

    def long() -> bytes:
        return bytes(random.choices(letters, k=random.choice((1, 7, 60, 63, 64, 65, 90, 127, 129, 300))))

    places = (
        b'<photo><data value="%b"/></photo>', b"<photo><data value='%b'/></photo>",
        b'<photo><data value = "%b"/><url value="%b"/></photo>', b'<!-- value="%b" -->',
        b"<name><text value='a=\"%b\"'/></name>", b'<name id="%b"><text value="%b&amp;%b"/></name>',
        b'<extension url="%b"><valueString value="%b &lt; %b"/></extension>',
    )  # fmt: skip
    div = b'div xmlns="http://www.w3.org/1999/xhtml"'
    narratives = (
        b'<text><status value="generated"/><' + div + b'><img src="%b" alt=\'="%b"\'/>="%b"</div></text>',
        b'<text><status value="generated"/><h:'
        + div.replace(b"ns=", b"ns:h=")
        + b'><h:p class="%b">="%b"</h:p></h:div></text>',
        b'<text><status value="generated"/><' + div + b'><![CDATA[="%b"]]></div></text>',
        b"",
    )
    order = (b"<extension", b"<photo", b"<name", b"<!--")
    for _ in range(300):
        chosen = sorted(random.choices(places, k=4), key=lambda one: [one.startswith(start) for start in order])
        body = b"".join([filled(one, long) for one in (random.choice(narratives), *chosen)])
        yield START + b">" + body + b"</Patient>"


def filled(form: bytes, make: Any) -> bytes:
    return form % tuple(make() for _ in range(form.count(b"%b")))


class RequestTests(TestCase):
    async def test_such_a_body_is_answered_413(self) -> None:
        headers = {"content_type": "application/fhir+xml"}
        for name in ("attributes", "a comment", "comments"):
            for method, path in (("POST", "Patient"), ("PUT", "Patient/a")):
                answer = await World().send(method, path, REFUSED[name], **headers)
                self.assertEqual(answer.status, 413, (name, path, answer.body[:200]))
                self.assertIn(b"too-costly", answer.body)
