"""Declarations in the comments of a map."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.mapping.language.lexer import FmlError
from ipf.mapping.language.notes import deleted, initial, notes


class NotesTests(TestCase):
    def test_one_line(self) -> None:
        written = (
            "// not mapped PV1-40, PID-3 (CX.4): nobody sends it\n//   and nobody reads it\n// decided Patient.name: x"
        )
        found = [(one.key, one.path, one.is_mapped, one.text) for one in notes(written)]
        text = "nobody sends it and nobody reads it"
        expected = [("PV1-40", "", False, text), ("PID-3", "CX.4", False, text), ("Patient.name", "", True, "x")]
        self.assertEqual(found, expected)

    def test_updates(self) -> None:
        """Rules for new resources only, and fields that events delete."""
        text = "// initial Status.byClass: why\n// deleted PV1-36 (A13), PV1-45 (A13 A25): why"
        self.assertEqual(initial(text), frozenset(("Status.byClass",)))
        found = [(one.event, one.field) for one in deleted(text)]
        self.assertEqual(found, [("A13", "PV1-36"), ("A13", "PV1-45"), ("A25", "PV1-45")])
        self.assertEqual((initial("// not mapped PV1-3: x"), deleted("// not mapped PV1-3: x")), (frozenset(), ()))
        for wrong in ("// deleted PV1-45: no event", "// deleted PV1 (A13)"):
            self.assertRaises(FmlError, deleted, wrong)

    def test_hostile_comments(self) -> None:
        """Time is linear in the text: one key after the other needs a comma between them."""
        for comment in ("A" * 50_000, "A-1" * 20_000, "A[1]" * 20_000, "A, " * 20_000, "A (" * 20_000, "A:" * 20_000):
            self.assertEqual(list(notes(f"// decided {comment}!")), [])
        self.assertRaises(FmlError, list, notes("// not mapped PV1 " + "A" * 50_000))
        self.assertEqual(len(list(notes("// not mapped PV1-40: x\n" * 20_000))), 20_000)
