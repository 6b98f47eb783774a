"""The format of each primitive type, as a table."""

from __future__ import annotations

from time import process_time
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import loads
from ipf.fhir.structure import primitives
from ipf.fhir.structure.primitives import PRIMITIVES, is_id
from ipf.fhir.structure.required_codes import is_media_type, required_codes

MEBIBYTE = 1024 * 1024

GOOD: dict[str, tuple[Any, ...]] = {
    "boolean": (True, False),
    "integer": (0, -(2**31), 2**31 - 1),
    "unsignedInt": (0, 2**31 - 1),
    "positiveInt": (1, 2**31 - 1),
    "decimal": (1, -3, loads(b"1.10"), loads(b"1e-30"), loads(b"123456789012345678.5")),
    "string": ("a", " a\tb\r\nc ", " ", "\u00a0", "å\U0001f600", "x" * MEBIBYTE),
    "markdown": ("# a\n\n* b",),
    "xhtml": ('<div xmlns="http://www.w3.org/1999/xhtml">a &amp; b<br/></div>', "<div>&#160;</div>"),
    "base64Binary": ("YQ==", "YWI=", "YWJj", "YWJj\r\nYWJj", " YW Jj ", "A" * 4096),
    "code": ("a", "a b", "a b c", "<=", "text/plain; charset=utf-8"),
    "uri": ("a", "http://x.test/a?b=c#d", "urn:uuid:1", "urn:oid:1.2", "#", "é"),
    "url": ("mailto:a@b.test", "mllp://10.0.0.1:2575"),
    "canonical": ("http://x.test/a|1.0#b",),
    "oid": ("urn:oid:1.2.840.0", "urn:oid:2.16"),
    "uuid": ("urn:uuid:c757873d-ec9a-4326-a141-556f43239520",),
    "id": ("a", "A-1.b", "x" * 64),
    "date": ("2024", "2024-02", "2024-02-29", "0001-01-01", "9999-12-31", "1900"),
    "dateTime": (
        "2024", "2024-02", "2024-02-29", "2024-02-29T23:59:59Z", "2024-02-29T00:00:00.123456-11:00",
        "2016-12-31T23:59:60Z", "2024-02-29T12:00:00+14:00",
    ),
    "instant": ("2015-02-07T13:28:17.239+02:00", "2017-01-01T00:00:00Z", "2016-12-31T23:59:60Z"),
    "time": ("00:00:00", "23:59:60", "12:00:00.5"),
}  # fmt: skip
BAD: dict[str, tuple[Any, ...]] = {
    "boolean": ("true", 1, 0, None, []),
    "integer": ("1", True, loads(b"1.0"), loads(b"1e2"), 2**31, -(2**31) - 1),
    "unsignedInt": (-1, 2**31),
    "positiveInt": (0, -1),
    "decimal": ("1", True, None),
    "string": ("", "\x00", "a\x0bb", "\x1f", 1, None, "x" * (MEBIBYTE + 1)),
    "markdown": ("", "\x07"),
    "xhtml": ("", "a", "<div>", "<div>a & b</div>", "<div>&nbsp;</div>", "<div/><div/>",
              "<!DOCTYPE div [<!ENTITY a 'a'>]><div>&a;</div>", "<div>\x00</div>"),
    "base64Binary": ("", " ", "%%%", "YQ", "YQ=", "Y", "====", "YQ==YQ==", "YWJj-", "YWJé", 1),
    "code": ("", " a", "a ", "a  b", "a\tb", "a\nb", "\x00", " ", 1),
    "uri": ("", "a b", " a", "a\n", "\x00", "a\tb"),
    "url": ("a b",),
    "canonical": ("a b|1",),
    "oid": ("1.2.3", "urn:oid:3.1", "urn:oid:1.01", "urn:oid:1", "urn:oid:"),
    "uuid": ("urn:uuid:C757873D-EC9A-4326-A141-556F43239520", "c757873d-ec9a-4326-a141-556f43239520", "urn:uuid:"),
    "id": ("", "a_b", "x" * 65, "a b", "é", "a\n"),
    "date": (
        "yesterday", "Invalid Date Format", "2020-13-45", "2020-13", "2021-02-30", "2023-02-29", "1900-02-29",
        "0000", "0000-01-01", "20240101", "2024-1-01", "24-01-01", "2024-01-01T00:00:00Z", "2024-01-01\n", " 2024",
        "٢٠٢٤", "02024", "", 2024,
    ),
    "dateTime": (
        "yesterday", "2024-02-30", "2024-02-29T23:59:59", "2024-02-29T23:59Z", "2024-02-29T24:00:00Z",
        "2024-02-29T12:60:00Z", "2024-02-29T12:00:61Z", "2024-02-29T12:00:00+15:00", "2024-02-29T12:00:00+1400",
        "2024-02-29 12:00:00Z", "2024-02-29T12:00:00z", "2024-02T12:00:00Z", "2024-02-29T",
    ),
    "instant": ("2017-01-01", "2017-01-01T00:00:00", "2015-02-30T13:28:17Z", "2017"),
    "time": ("24:00:00", "1:00:00", "12:00", "12:00:00Z", "12:00:00."),
}  # fmt: skip


class PrimitiveTests(TestCase):
    def test_every_type_has_rows(self) -> None:
        self.assertEqual({*GOOD}, set(definitions().primitive_types))
        self.assertEqual({*BAD}, {*PRIMITIVES})

    def test_good(self) -> None:
        for kind, values in GOOD.items():
            for value in values:
                self.assertIsNone(PRIMITIVES[kind](value), (kind, str(value)[:80]))

    def test_bad(self) -> None:
        """Each is named; the text does not repeat the value."""
        for kind, values in BAD.items():
            for value in values:
                error = PRIMITIVES[kind](value)
                self.assertIsNotNone(error, (kind, str(value)[:80]))
                if isinstance(value, str) and kind in ("date", "dateTime", "code", "id") and value.strip():
                    self.assertNotIn(f"{value}'", str(error), kind)

    def test_time_is_linear_in_the_text(self) -> None:
        """Texts that make backtracking patterns slow: ten times the text takes less than fifty times the time."""
        parts = ("a ", " ", "YWJj ", "1.", "urn:oid:1." + "1." * 5, "2024-", "\n", "<a>", "a/b;a= ")
        for kind in ("string", "xhtml", "base64Binary", "code", "uri", "oid", "uuid", "id", "date", "dateTime", "time"):
            for part in parts:
                spent = []
                for size in (20_000, 200_000):
                    text, began = part * (size // len(part)) + "\x01", process_time()
                    PRIMITIVES[kind](text)
                    spent.append(process_time() - began)
                self.assertLess(spent[1], 50 * spent[0] + 0.2, (kind, part))

    def test_ids(self) -> None:
        self.assertTrue(is_id("a"))
        self.assertFalse(is_id(1))


class RequiredCodeTests(TestCase):
    def test_codes(self) -> None:
        for path, code, expected in (
            ("Patient.gender", "female", True),
            ("Patient.gender", "F", False),
            ("Observation.status", "final", True),
            ("Observation.status", "FINAL", False),
            ("HumanName.use", "old", True),
            ("Money.currency", "NOK", True),
            ("Money.currency", "nok", False),
            ("Attachment.contentType", "text/plain; charset=utf-8", True),
            ("Attachment.contentType", "AP", False),
            ("Bundle.entry.request.method", "PATCH", True),
            ("Composition.confidentiality", "N", True),
            ("SubscriptionTopic.status", "active", True),
        ):
            required = required_codes(path)
            assert required is not None, path
            self.assertIs(required.contains(code), expected, (path, code))

    def test_every_required_binding_of_a_code_is_covered(self) -> None:
        """The definitions of R4 have 348; the topics of R4B add one.  Other bindings are validation's."""
        from ipf.fhir.profiles.tables import STRUCTURES, tables

        bound = {
            path
            for guide, table in tables(STRUCTURES)
            if guide in ("r4", "topics")
            for url in table
            if (facts := table.get(url)) is not None and facts["derivation"] != "constraint"
            for path, element in facts["elements"]
            if element.get("binding", ("",))[0] == "required" and element.get("types") == ["code"]
        }
        self.assertEqual(len(bound), 349)
        self.assertEqual([path for path in sorted(bound) if required_codes(path) is None], [])
        self.assertIsNone(required_codes("Observation.code"))
        self.assertIsNone(required_codes("Resource.language"))

    def test_media_types(self) -> None:
        for text in ("text/plain", "application/fhir+json;fhirVersion=4.0", 'a/b; c="d;e"', "image/*", "json"):
            self.assertTrue(is_media_type(text), text)
        for text in ("", "text", "a/b;", "a/b; c", "a/b\n", "/b", "a/b;a=" + " " * 900 + '"', "a/b" * 1000):
            self.assertFalse(is_media_type(text), text[:20])


class LongBase64Tests(TestCase):
    def test_the_result_does_not_depend_on_pieces(self) -> None:
        """With pieces of eight characters, texts that are and are not Base64 are told apart as in one piece."""
        check = primitives.PRIMITIVES["base64Binary"]
        texts = [("YWJj" * 8)[:size] for size in range(1, 30)]
        ends = ("", "=", "==", "YQ==", "YWI=", "Y", "====", "YQ==YQ==", "é", "-", " YWJj")
        made = [f"{text}{end}" for text in texts for end in ends] + [f"{end}{text}" for text in texts for end in ends]
        whole = [check(one) for one in made]
        self.patch(primitives, "_PIECE", 8)
        for text, expected in zip(made, whole, strict=True):
            self.assertEqual(check(text), expected, text)
        self.assertEqual(set(whole), {None, "not valid Base64"})
        for text in ("YWJj=", "YWJjYWJj=", "YWJj====", "YWJjYQ======"):
            self.assertIsNotNone(check(text), text)
