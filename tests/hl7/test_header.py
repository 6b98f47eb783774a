"""MSH: values, and errors for missing parts."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.hl7.header import read_header, scan_header
from tests.hl7.samples import SAMPLES

GOOD = rb"MSH|^~\&|REG^1.2^ISO|HOSP|IPF|HUB|20240115||ADT^A01^ADT_A01|C1|P|2.5.1|||AL|NE||8859/1~UNICODE"

# bytes -> (category, place)
FAULTS = {
    b"": (Category.MALFORMED, "MSH"),
    b"hello": (Category.MALFORMED, "MSH"),
    b"PID|1": (Category.MALFORMED, "MSH"),
    b"MSH": (Category.MALFORMED, "MSH-1"),
    b"MSH|": (Category.MALFORMED, "MSH-1"),
    b"MSHA^~\\&A": (Category.MALFORMED, "MSH-1"),
    b"MSH|^^\\&|": (Category.MALFORMED, "MSH-1"),
    b"MSH|^~ &|": (Category.MALFORMED, "MSH-1"),
    b"FHS|^~\\&|": (Category.NOT_SUPPORTED, "MSH"),
    b"BHS|^~\\&|": (Category.NOT_SUPPORTED, "MSH"),
    b"MSH|^~\\&|A|||||||C1": (Category.REQUIRED, "MSH-9.1"),
    b"MSH|^~\\&|A||||||ADT|C1": (Category.REQUIRED, "MSH-9.2"),
    b'MSH|^~\\&|A||||||ADT^""|C1': (Category.REQUIRED, "MSH-9.2"),
    b"MSH|^~\\&|A||||||ADT^A01": (Category.REQUIRED, "MSH-10"),
    b"MSH|^~\\&|||||||ADT^A01|C1": (Category.REQUIRED, "MSH-3.1"),
    b'MSH|^~\\&|""||||||ADT^A01|C1': (Category.REQUIRED, "MSH-3.1"),
}

PATTERNS = (
    b"MSH|^~\\&|REG||||||ADT^A01|C1",
    b"MSH|^~\\&|REG||||||ADT^A01",
    b"MSH|^~\\&|REG||||2024||ADT^A01|C 1|P|2.3",
    b'MSH#*~!?#R!T!D##HUB##20240101##ADT*A01*X#""#P#2.5######UNICODE UTF-8~8859/1',
    "MSH|^~\\&|KÖLN||||2024||ADT^A01|C1|P|2.5||||||UNICODE UTF-8".encode(),
)


class HeaderTests(TestCase):
    def test_parts(self) -> None:
        header = read_header(GOOD + b"\rPID|1\r")
        self.assertEqual(
            (header.source_system, header.source_id, header.message_type, header.structure),
            ("REG", "C1", "ADT_A01", "ADT_A01"),
        )
        self.assertEqual((header.sending_application, header.receiving_facility), ("REG^1.2^ISO", "HUB"))
        self.assertEqual((header.version, header.processing_id), ("2.5.1", "P"))
        self.assertEqual((header.accept_ack, header.application_ack), ("AL", "NE"))
        self.assertEqual((header.charset_names, header.codec), (("8859/1", "UNICODE"), "iso8859-1"))

    def test_every_sample_can_be_read(self) -> None:
        for name, text in SAMPLES.items():
            header = read_header(text.encode())
            self.assertTrue(header.source_id and header.source_system == "REG", name)

    def test_faults_name_the_place(self) -> None:
        for raw, (category, place) in FAULTS.items():
            problem = self.assertRaises(Problem, read_header, raw)
            self.assertEqual((problem.category, problem.place), (category, place), raw)

    def test_a_universal_id_names_the_sender(self) -> None:
        """HD: the name, else the universal id."""
        for sent, meant in (
            ("LAB", "LAB"), ("LAB^1.2^ISO", "LAB"), ("^1.2.840.99^ISO", "1.2.840.99"), ('""^1.2^ISO', "1.2"), ("^", ""),
            ("^^ISO", ""), ("~LAB", ""), ("^a\\T\\b^L", "a&b"),
        ):  # fmt: skip
            for time in ("2026", "é"):  # cached, and read in full
                raw = f"MSH|^~\\&|{sent}|H|IPF|H|{time}||ADT^A01|1|P|2.5\r".encode()
                self.assertEqual(scan_header(raw).source_system, meant, sent)

    def test_line_ends(self) -> None:
        for end in (b"\r", b"\n", b"\r\n"):
            self.assertEqual(read_header(GOOD + end + b"PID|1").charset_names, ("8859/1", "UNICODE"), end)

    def test_escapes_and_characters_in_keys(self) -> None:
        header = read_header(b"MSH|^~\\&|R\\T\\D||||||ADT^A01|C\\F\\1")
        self.assertEqual((header.source_system, header.source_id, header.control_id), ("R&D", "C|1", "C\\F\\1"))
        latin = "MSH|^~\\&|KÖLN||||||ADT^A01|C1|P|2.5||||||8859/1".encode("latin-1")
        self.assertEqual((read_header(latin).source_system, read_header(latin).codec), ("KÖLN", "iso8859-1"))
        self.assertEqual(read_header("MSH|^~\\&|KÖLN||||||ADT^A01|C1".encode()).source_system, "KÖLN")
        self.assertEqual(read_header("MSH|^~\\&|KÖLN||||||ADT^A01|C1".encode("latin-1")).source_system, "KÖLN")

    def test_byte_order_marks_and_utf_16(self) -> None:
        text = "MSH|^~\\&|REG||||||ADT^A01|C1|P|2.5\rPID|1"
        for raw in (b"\xef\xbb\xbf" + text.encode(), b"\r\n " + text.encode(), text.encode("utf-16")):
            self.assertEqual(scan_header(raw).source_id, "C1", raw[:6])
        self.assertEqual(scan_header(text.encode("utf-16-be")).source_id, "C1")

    def test_cached_header_pattern(self) -> None:
        """Time and control id are those of the message; the rest is shared and not changed."""
        end = b"||ADT^A01|%s|P|2.5.1|||AL|NE||8859/1\rPID|1"
        first = scan_header(rb"MSH|^~\&|REG|HOSP|IPF|HUB|2024" + end % b"C1")
        other = scan_header(rb"MSH|^~\&|REG|HOSP|IPF|HUB|2025" + end % b" C\\T\\^2 ")
        self.assertIsNotNone(first.pattern)
        self.assertIs(first.pattern, other.pattern)
        self.assertEqual((first.field(7), first.source_id), ("2024", "C1"))
        self.assertEqual((other.field(7), other.source_id, other.control_id), ("2025", "C&", " C\\T\\^2 "))
        self.assertEqual((other.codec, other.accept_ack, other.field(18)), ("iso8859-1", "AL", "8859/1"))
        first.source_id, first.fields[3] = "made", "changed"
        again = scan_header(rb"MSH|^~\&|REG|HOSP|IPF|HUB|2024" + end % b"C1")
        self.assertEqual((again.source_id, again.source_system, again.field(3)), ("C1", "REG", "REG"))
        self.assertIsNot(scan_header(rb"MSH|^~\&|LAB|HOSP|IPF|HUB|2024" + end % b"C1").pattern, first.pattern)

    def test_cached_and_parsed_headers_are_equal(self) -> None:
        """Also for a header too long for a pattern, with few fields, or in other characters."""
        for line in (*PATTERNS, *(text.encode().partition(b"\r")[0] for text in SAMPLES.values())):
            long = line.split(line[3:4])
            long += [b""] * (21 - len(long)) + [b"x" * 2000]
            plain, read = scan_header(line), scan_header(line[3:4].join(long))
            self.assertIsNone(read.pattern, line)
            for name in ("separators", "codec", "source_id", "source_system", "message_type", "structure", "version"):
                self.assertEqual(getattr(plain, name), getattr(read, name), (line, name))
            self.assertEqual([plain.field(n) for n in range(1, 21)], [read.field(n) for n in range(1, 21)], line)
