"""Regular expressions of clients: supported syntax, and bounded time."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.fhir.model.regex import LONGEST_PATTERN, PatternError, pattern

TEXT = "a" * 200_000 + "!"


class RegexTests(TestCase):
    def test_matches(self) -> None:
        rows = [("b+", "abba", True, False), ("a.c", "a\nc", True, True), (r"^\d{3}$", "123\n", False, False),
                ("ä", "käse", True, False), (r"[\s\S]*", "", True, True)]  # fmt: skip
        for regex, text, is_in, is_all_of in rows:
            self.assertEqual((pattern(regex).is_in(text), pattern(regex).is_all_of(text)), (is_in, is_all_of), regex)

    def test_replace(self) -> None:
        self.assertEqual(pattern("b*").replace("abc", lambda match: f"<{match.group()}>"), "<>a<b><>c<>")
        self.assertEqual(pattern("(ä)x").replace("äxä", lambda match: match.group(1)), "ää")

    def test_unsupported_syntax_is_named(self) -> None:
        for regex in ("(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", r"\u0041", r"\i\c*"):
            error = self.assertRaises(PatternError, pattern, regex)
            self.assertIn("look-ahead, look-behind and back references are not supported", str(error))
        for regex in ("(", "[", "*", "a{1000}{1000}", "(a{1000}){1000}", "((a{30}){30}){30}", r"\p{L}{1000}"):
            self.assertRaises(PatternError, pattern, regex)
        self.assertRaises(PatternError, pattern, "a" * (LONGEST_PATTERN + 1))
        self.assertRaises(PatternError, pattern, "\ud800")

    def test_patterns_that_need_exponential_time_with_backtracking(self) -> None:
        for regex in ("(a+)+$", "(a|aa)+$", "(a*)*b", "([a-zA-Z]+)*$", "(.*a){20}$", "(a|a|b)*c", "(a|b)*a(a|b){12}c"):
            self.assertFalse(pattern(regex).is_all_of(TEXT), regex)

    def test_large_programs_on_long_texts_are_refused(self) -> None:
        self.assertFalse(pattern("((a{0,30}){0,30}b?)*c").is_in(TEXT[:1000]))
        error = self.assertRaises(PatternError, pattern("((a{0,30}){0,30}b?)*c").is_in, TEXT * 2)
        self.assertIn("too long for this regular expression", str(error))
        self.assertRaises(PatternError, pattern("a(.*b)?").replace, TEXT, lambda match: "")

    def test_lone_surrogates(self) -> None:
        self.assertTrue(pattern("a").is_in("\ud800a"))
