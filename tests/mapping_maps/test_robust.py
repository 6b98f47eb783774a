"""What senders write in wrong places: every message still becomes a Bundle that can be stored."""

from __future__ import annotations

from random import Random

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.mapping.compiler.compile import Compiler
from tests.corpus import samples
from tests.mapping_maps.validity import kinds

FAMILY = "maps"

ODD = (
    "A~B", "1~2~3", "9" * 30, "&&", "^^^", '""', "2026~2025", "-1", "1e400", "X^Y^Z&1&2~Q^R", "~", "0.5",
    "\\F\\", "\x00",
)  # fmt: skip
EACH = 8


class RobustTests(TestCase):
    """Samples with one field replaced: the same fields each time, so that a failure can be repeated."""

    def test_one_odd_field_never_keeps_a_message_from_being_converted(self) -> None:
        """Repetitions where the standard has none, numbers without end, separators without content.

        Unless it was the number of what MRG merges.
        """
        random = Random(20261121)
        for name in samples.names():
            segments = (samples.HERE / f"{name}.hl7").read_text(encoding="utf-8").strip().split("\n")
            for _ in range(EACH):
                changed, odd = with_one_field(random, segments)
                with self.subTest(name=name, odd=odd):
                    try:
                        made = samples.library().transform_message(samples.parse(changed))
                    except Problem as problem:
                        self.assertEqual((problem.category, problem.place, odd[:4]), (Category.REQUIRED, "MRG", "MRG-"))
                    else:
                        self.assertIn(b"MessageHeader", dumps(made))

    def test_every_group_compiles_also_those_that_no_message_calls(self) -> None:
        library = samples.library()
        compiler = Compiler(list(library.maps.values()), library.environment)
        for content in library.maps.values():
            unit = compiler.groups.unit(content)
            for group in content.groups:
                kinds = [unit.kind(one.type, group.place, is_source=one.mode == "source") for one in group.inputs]
                compiler.compile_group(content, group, kinds)  # FmlError names file, line and column


def with_one_field(random: Random, segments: list[str]) -> tuple[str, str]:
    """The message with an odd value in one field after MSH, and where."""
    number = random.randrange(1, len(segments))
    fields = segments[number].split("|")
    place, odd = random.randrange(1, len(fields) + 2), random.choice(ODD)
    fields += [""] * (place + 1 - len(fields))
    fields[place] = odd
    changed = [*segments[:number], "|".join(fields), *segments[number + 1 :]]
    return "\n".join(changed), f"{fields[0]}-{place} = {odd[:20]}"


class AnimalTests(TestCase):
    """The extension of an animal has one species: the first in PID-35 that says something, or an unknown one."""

    def test_table(self) -> None:
        head = "MSH|^~\\&|A|B|||2026||ADT^A08^ADT_A01|1|P|2.5.1\nPID|1||1^^^B^MR||X" + "|" * 30
        for species, breed, expected in (
            ("a^Dog", "b", ["a", "b"]),
            ("~a", "b", ["a", "b"]),
            ("^~a", "b", ["UNK", "b"]),
            ("~^~\\&#", "b", ["UNK", "b"]),
            ("^^^^^^3~a", "b", ["UNK", "b"]),
            ("", "b", ["UNK", "b"]),
            ("a", "", ["a"]),
            ("^^^^^^3", "", None),
            ("~^~", "", None),
        ):
            text = f"{head}{species}|{breed}"
            self.assertEqual(kinds(text), set(), text)
            made = samples.library().transform_message(samples.parse(text), checked=False)
            (patient,) = [one["resource"] for one in made["entry"] if one["resource"]["resourceType"] == "Patient"]
            found = [one for one in patient.get("extension", ()) if one["url"].endswith("patient-animal")]
            codes = [part["valueCodeableConcept"]["coding"][0]["code"] for one in found for part in one["extension"]]
            self.assertEqual(codes or None, expected, text)
