"""The identity table: which row counts, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.mapping.language.identity_table import Identifies, IdentityTable, read_table

ALWAYS, DOMAIN, NEVER = Identifies.ALWAYS, Identifies.DOMAIN, Identifies.NEVER
_OF_A = '[[identifier]]\nauthority = "A"\n'
WRONG = [
    ("x =", "is not TOML"),
    ("x = 1", "x: only rows [[identifier]] and [[update]] are allowed"),
    ("identifier = 1", "only rows [[identifier]] and [[update]] are allowed"),
    ("update = 1", "only rows [[identifier]] and [[update]] are allowed"),
    ("update = [1]", "[[update]] 1: a row is written [[update]]"),
    ('[[update]]\nsender = "A"', '[[update]] 1: mode must be "snapshot"'),
    ('[[update]]\nsender = "A"\nmode = "merge"', '[[update]] 1: mode must be "snapshot"'),
    ('[[update]]\nmode = "snapshot"', "[[update]] 1: sender is missing"),
    ('[[update]]\nsender = ""\nmode = "snapshot"', "[[update]] 1: sender is missing"),
    ('[[update]]\nsender = "A"\nmode = "snapshot"\ntypes = "ADT_A08"', "[[update]] 1: types is a list"),
    ('[[update]]\nsender = "A"\nmode = "snapshot"\ntypes = ["ADT"]', "[[update]] 1: types is a list"),
    ('[[update]]\nsender = "A"\nmode = "snapshot"\nkind = 1', "[[update]] 1: kind is not known"),
    ("identifier = [1]", "row 1: a row is written [[identifier]]"),
    (_OF_A + 'type = "PI"', "row 1: identifies is missing"),
    (_OF_A + 'type = 1\nidentifies = "always"', "row 1: type is missing, or is no text"),
    (_OF_A + 'type = "PI"\nidentifies = "maybe"', "row 1: identifies must be always, domain, never"),
    (_OF_A + 'type = "P*I"\nidentifies = "always"', "row 1: type may have * at its end only"),
    (_OF_A + 'type = ""\nidentifies = "never"\nkind = 1', "row 1: kind is not known"),
    (_OF_A + 'type = ""\nidentifies = "never"\nsecondary = "no"', "row 1: secondary must be true or false"),
    ('[[identifier]]\nauthority = ""\ntype = ""\nidentifies = "never"', 'row 1: authority is empty; "*" is any'),
    *(
        (
            f'{_OF_A}type = ""\nidentifies = "never"\noverlay = {one}',
            "row 1: overlay must be a whole number from 0 to 3",
        )
        for one in ("4", "-1", "true", '"2"', "1.5")
    ),
    (_OF_A + 'type = ""\nidentifies = "never"\n' + _OF_A, "row 2: type is missing"),
]


class IdentityTableTests(TestCase):
    def file(self, text: str) -> Path:
        """A file with this text."""
        path = Path(self.mktemp())
        path.write_text(text)
        return path

    def test_built_in(self) -> None:
        for types, expected in (
            ("MR NI SS PPN MC NNAUT NNxyz", ALWAYS),
            ("PI PT U ZZZ", DOMAIN),
            ("AN VN DL HC", NEVER),
        ):
            for one in types.split():
                self.assertIs(IdentityTable().identifies("urn:ipf:authority:A", "A", one), expected, one)
        self.assertIs(IdentityTable().identifies("", "", ""), DOMAIN)
        self.assertIs(IdentityTable().identifies("urn:ipf:authority:A", "A", "MR", is_secondary=True), NEVER)

    def test_overlay(self) -> None:
        """Of the first row that fits; 3 without one."""
        rows = (
            f'[[identifier]]\nauthority = "{of}"\ntype = "{kind}"\nidentifies = "always"\n{more}\n'
            for of, kind, more in (("A", "MR", "overlay = 1"), ("A", "*", "overlay = 0"), ("B", "*", ""))
        )
        table = read_table(self.file("".join(rows)))
        for of, kind, expected in (("A", "MR", 1), ("A", "PI", 0), ("B", "MR", 3), ("C", "MR", 3), ("C", "AN", 3)):
            self.assertEqual(table.row("", of, kind).overlay, expected, (of, kind))

    def test_rows_of_a_file_come_first(self) -> None:
        """By namespace, OID and URI; the first row that fits; secondary numbers by rows that say so."""
        rows = (
            ("LAB", "MR", "never", ""),
            ("1.2.3", "*", "always", ""),
            ("http://a.example/n", "PI", "always", ""),
            ("OLD", "", "always", "secondary = true"),
            ("*", "PI", "never", ""),
        )
        text = "".join(
            f'[[identifier]]\nauthority = "{authority}"\ntype = "{type_code}"\nidentifies = "{rule}"\n{more}\n'
            for authority, type_code, rule, more in rows
        )
        table = read_table(self.file(text))
        for system, name, type_code, secondary, expected in (
            ("urn:ipf:authority:LAB", "LAB", "MR", False, NEVER),
            ("urn:oid:9.9", "LAB", "MR", False, NEVER),
            ("urn:ipf:authority:LAB", "", "MR", False, NEVER),
            ("urn:ipf:authority:HIS", "HIS", "MR", False, ALWAYS),
            ("urn:oid:1.2.3", "X", "AN", False, ALWAYS),
            ("http://a.example/n", "", "PI", False, ALWAYS),
            ("urn:ipf:authority:HIS", "HIS", "PI", False, NEVER),
            ("urn:ipf:authority:OLD", "OLD", "", True, ALWAYS),
            ("urn:ipf:authority:HIS", "HIS", "", True, NEVER),
        ):
            found = table.identifies(system, name, type_code, is_secondary=secondary)
            self.assertIs(found, expected, (system, name, type_code, secondary))

    def test_senders_of_snapshots(self) -> None:
        """By sender and type; a row without types is about all of them."""
        one = '[[update]]\nsender = "A"\ntypes = ["ADT_A08"]\nmode = "snapshot"\n'
        table = read_table(self.file(one + '[[update]]\nsender = "B"\nmode = "snapshot"'))
        for sender, kind, expected in (
            ("A", "ADT_A08", True), ("A", "ADT_A01", False), ("B", "ADT_A01", True), ("C", "ADT_A08", False),
        ):  # fmt: skip
            self.assertIs(table.sends_snapshots(sender, kind), expected, (sender, kind))
        anybody = read_table(self.file('[[update]]\nsender = "*"\nmode = "snapshot"'))
        self.assertTrue(anybody.sends_snapshots("C", "ADT_A08"))

    def test_what_is_wrong_names_file_row_and_rule(self) -> None:
        for text, reason in WRONG:
            path = self.file(text)
            with self.assertRaises(Problem) as refused:
                read_table(path)
            self.assertIn(reason, str(refused.exception), text)
            self.assertTrue(str(refused.exception).startswith(path.as_posix()), refused.exception)
        with self.assertRaises(Problem) as refused:
            read_table(Path("/nowhere/identity.toml"))
        self.assertIn("/nowhere/identity.toml: cannot be read", str(refused.exception))

    def test_the_example_is_valid_with_and_without_its_comments(self) -> None:
        example = Path(__file__).resolve().parents[3] / "etc" / "identity.toml"
        read_table(example)
        rows = [
            line[1:]
            for line in example.read_text().splitlines()
            if line[:2] in ("#[", "#a", "#t", "#i", "#s", "#o", "#m")
        ]
        table = read_table(self.file("\n".join(rows)))
        self.assertIs(table.identifies("urn:oid:1.2.40.0.34.99.1", "", "PI"), ALWAYS)
        self.assertIs(table.identifies("urn:ipf:authority:LAB", "", "MR"), NEVER)
        self.assertIs(table.identifies("urn:ipf:authority:OLDHIS", "", "", is_secondary=True), ALWAYS)
