"""What the maps make of a message is valid R4: public messages, the corpus, and generated ones of every mapped type."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.corpus import samples
from tests.mapping_maps import generator
from tests.mapping_maps.validity import kinds, reduced
from tests.reference import REFERENCE, needs_reference

FAMILY = "maps"


class ValidityTests(TestCase):
    def test_corpus(self) -> None:
        """Every sample becomes a valid Bundle of valid resources."""
        texts = {name: (samples.HERE / f"{name}.hl7").read_text(encoding="utf-8") for name in samples.names()}
        self.assertEqual(wrong(texts), {})

    @needs_reference
    def test_public_messages(self) -> None:
        """Small messages of results, one per row of the guide's tables of data types."""
        paths = sorted((REFERENCE / "v2-pairs" / "messages").glob("*.hl7"))
        self.assertGreater(len(paths), 60)
        texts = {one.stem: one.read_text(encoding="utf-8").replace("\r\n", "\n").replace("\r", "\n") for one in paths}
        self.assertEqual(wrong(texts), {})

    def test_generated_messages(self) -> None:
        """A message of every type that has a map is converted, and valid; `test_many_generated` tries more."""
        self.assertEqual(wrong(generator.messages(samples.library().message_types, range(1))), {})


def wrong(texts: dict[str, str]) -> dict[str, set[str]]:
    """The kinds of errors of each message that has any."""
    found = {name: kinds(text) for name, text in texts.items()}
    return {name: errors for name, errors in found.items() if errors}


class GeneratorTests(TestCase):
    def test_every_mapped_type_has_messages(self) -> None:
        """The generator knows the structure of each type, and its messages have the type they are asked for."""
        for message_type in samples.library().message_types:
            with self.subTest(message_type=message_type):
                made = samples.parse(generator.message(message_type, 1))
                self.assertEqual(made.message_type, message_type)

    def test_the_same_number_gives_the_same_message(self) -> None:
        self.assertEqual(generator.message("ADT_A01", 5), generator.message("ADT_A01", 5))
        self.assertNotEqual(generator.message("ADT_A01", 5), generator.message("ADT_A01", 6))

    def test_reduction_keeps_what_is_wrong(self) -> None:
        text = "MSH|^~\\&|A|B|||2026||ADT^A01|1|P|2.5\nEVN||2026\nPID|1||7^^^X~8||Hansen^Kari\nPV1|1|I\n"
        small = reduced(text, lambda one: "Kari" in one)
        self.assertEqual(small.splitlines()[1:], ["PID|||||^Kari"])
