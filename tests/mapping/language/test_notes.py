"""Declarations in the comments of a map."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.mapping.language.lexer import FmlError
from ipf.mapping.language.notes import notes


class NotesTests(TestCase):
    def test_one_line(self) -> None:
        written = (
            "// not mapped PV1-40, PID-3 (CX.4): nobody sends it\n//   and nobody reads it\n// decided Patient.name: x"
        )
        found = [(one.key, one.path, one.is_mapped, one.text) for one in notes(written)]
        text = "nobody sends it and nobody reads it"
        expected = [("PV1-40", "", False, text), ("PID-3", "CX.4", False, text), ("Patient.name", "", True, "x")]
        self.assertEqual(found, expected)

    def test_hostile_comments(self) -> None:
        """Time is linear in the text: one key after the other needs a comma between them."""
        for comment in ("A" * 50_000, "A-1" * 20_000, "A[1]" * 20_000, "A, " * 20_000, "A (" * 20_000, "A:" * 20_000):
            self.assertEqual(list(notes(f"// decided {comment}!")), [])
        self.assertRaises(FmlError, list, notes("// not mapped PV1 " + "A" * 50_000))
        self.assertEqual(len(list(notes("// not mapped PV1-40: x\n" * 20_000))), 20_000)
