"""Words of messages and of queries."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.hl7.words import contains_words, patients_of, query_words, words_of

HEAD = "MSH|^~\\&|LAB|X\r"


class WordsTest(TestCase):
    def test_words(self) -> None:
        for text, holds, lacks in (
            ("PID|1||12-345^^^GEN", {"pid", "12-345", "12", "345", "gen"}, {"12-345^^^gen"}),
            ("X|kari.hansen@example.org", {"kari.hansen@example.org", "kari", "example"}, set()),
            ("X|Müller~O'Brien &Ærø", {"muller", "o'brien", "brien", "ærø"}, {"müller"}),
            ("X|(note), ends.", {"note", "ends"}, {"(note)", "ends."}),
            ("X|" + "a" * 64 + "|" + "b" * 65, {"a" * 64}, {"b" * 65}),
            ("OBX|1|ED|" + "QUJD/+" * 1000, {"obx", "ed"}, {"qujd"}),
        ):
            found = words_of((HEAD + text).encode(), "utf-8")
            self.assertEqual((holds - found, lacks & found), (set(), set()), text)

    def test_contains_words_equals_words_of(self) -> None:
        """`contains_words` and `words_of` agree on every query."""
        text = HEAD + "PID|1||12-345^^^GEN||O'Brien^Ana-María (x)|kari.hansen@example.org~_a_|R07.4,|--7--"
        raw = text.encode()
        words = words_of(raw, "utf-8")
        asked = ["12-345", "12", "345", "12-34", "2-345", "o'brien", "brien", "brie", "x", "r07.4", "r07", "07.4"]
        asked += ["ana", "ana-maria", "maria", "kari.hansen@example.org", "kari.hansen", "a", "7", "gen", "pi", "lab"]
        for word in asked:
            self.assertEqual(contains_words(raw, "utf-8", [word]), word in words, word)
            begins = any(one.startswith(word) for one in words)
            self.assertEqual(contains_words(raw, "utf-8", [word + "*"]), begins, word + "*")
        self.assertFalse(contains_words(raw, "utf-8", ["gen", "absent"]))

    def test_other_delimiters_and_characters(self) -> None:
        found = words_of("MSH$%!?#$LAB\rPID$1$$77%a!78$$Åse".encode("cp1252"), "cp1252")
        self.assertTrue({"77", "78", "ase", "lab"} <= found)
        self.assertTrue({"msh", "lab"} <= words_of((HEAD + "X|\ufffd").encode() + b"\xff", "no-such-codec"))
        self.assertEqual(words_of(b"", "utf-8"), set())

    def test_patients(self) -> None:
        for text, found in (
            ("PID|1||12^^^GEN&1.2&ISO^MR~M-7", {"12", "gen|12", "m-7"}),
            ("PID|1||", set()),
            ('PID|1||""^^^GEN', set()),
            ("PID|1", set()),
            ("MRG|old^^^GEN\rPID|1||new", {"old", "gen|old", "new"}),
            ("PIDX|1||no", set()),
        ):
            self.assertEqual(patients_of((HEAD + text).encode(), "utf-8"), found, text)

    def test_queries(self) -> None:
        for text, words in (
            ("Hansen^KARI", ["hansen", "kari"]),
            ("  han*  12-345 ", ["han*", "12-345"]),
            ("a a", ["a"]),
            ("* % ()", []),
            ("x" * 65, []),
        ):
            self.assertEqual(query_words(text), words, text)


class JsonTests(TestCase):
    """What was fetched from a polled source."""

    PATIENT = (
        b'{"resourceType":"Patient","id":"p1","identifier":[{"system":"urn:mrn","value":"M-1"}],'
        b'"name":[{"family":"H\xc3\xa5land"}]}'
    )
    RESULT = (
        b'{"resourceType":"Observation","subject":{"reference":"Patient/p1/_history/2"},"valueQuantity":{"value":5.4}}'
    )

    def test_words(self) -> None:
        self.assertLessEqual({"patient", "m-1", "haland", "urn:mrn"}, words_of(self.PATIENT, "utf-8"))
        self.assertLessEqual({"observation", "5.4"}, words_of(self.RESULT, "utf-8"))
        self.assertTrue(contains_words(self.PATIENT, "utf-8", ["haland", "m-1"]))
        self.assertFalse(contains_words(self.PATIENT, "utf-8", ["hal"]))

    def test_patients(self) -> None:
        self.assertEqual(patients_of(self.PATIENT, "utf-8"), {"p1", "m-1", "urn:mrn|m-1"})
        self.assertEqual(patients_of(self.RESULT, "utf-8"), {"p1"})
        wrong = b'{"resourceType":"Patient","identifier":["x",{"value":null}],"subject":{"reference":7}}'
        for raw in (b"{", wrong):
            self.assertEqual(patients_of(raw, "utf-8"), set())
