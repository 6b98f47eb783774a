"""Messages with a segment removed, doubled or broken: none is delivered when nothing of its subject was stored."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.hl7.message import Message
from ipf.mapping.language.grammar import parse
from tests.corpus import damage, samples

FAMILY = "maps"
SEED = 32


class DamageTests(TestCase):
    def test_damaged_messages(self) -> None:
        """Each damage of each sample, on one line; tests.corpus.test_damaged_campaign has all lines."""
        self.assertEqual(damage.all_faults(case for name in samples.names() for case in damage.chosen(name, SEED)), [])

    def test_whole_messages_are_delivered(self) -> None:
        """The rules refuse none of the samples."""
        for name in samples.names():
            case = damage.Case(name, "none", 0, tuple(damage.lines_of(name)))
            library = samples.library() if name in damage.DECIDED else damage.strict()
            with self.subTest(sample=name):
                self.assertTrue(library.transform_message(Message.parse(case.raw))["entry"])
                self.assertEqual(damage.all_faults([case]), [])

    def test_every_mapped_structure_has_a_sample(self) -> None:
        """A map for a further structure needs a sample here."""
        library = damage.strict()
        with_sample = {library.map_url(samples.message(name).message_type) for name in samples.names()}
        self.assertEqual({library.map_url(one) for one in library.message_types} - with_sample, set())

    def test_a_person_is_not_all(self) -> None:
        """A problem without the problem, an answer without an order: the patient alone is no success."""
        head = "MSH|^~\\&|A|B|||2026||{}|1|P|2.5.1\rPID|1||1^^^B^MR||X\r"
        for kind, segments in (("PPR^PC1^PPR_PC1", "PRB|AD\r"), ("PPR^PC1^PPR_PC1", "GOL|AD\rPRB|AD|2026\r")):
            message = Message.parse((head.format(kind) + segments).encode())
            problem = self.assertRaises(Problem, damage.strict().transform_message, message)
            self.assertIn("stores nothing", problem.text)

    def test_a_map_may_make_nothing(self) -> None:
        """When its header says so; the problem names the map and how."""
        text = (
            '/// url = "urn:site:A08"\n/// types = "ADT_A08"\n{}uses "urn:ipf:v2:ADT_A01" alias V2 as source\n'
            'uses "http://hl7.org/fhir/StructureDefinition/Bundle" alias Bundle as target\n'
            'imports "urn:ipf:map:*"\n'
            'group A08(source src : V2, target bundle : Bundle) {{ src then MessageEnvelope(src, bundle) "e"; }}\n'
        )
        message = samples.message("a08_update")
        for header in ("", '/// empty = "permitted"\n'):
            library = damage.strict().with_candidate(parse(text.format(header), "site.fml"))
            if header:
                self.assertTrue(library.transform_message(message)["entry"])
            else:
                problem = self.assertRaises(Problem, library.transform_message, message)
                self.assertTrue(problem.is_permanent)
                self.assertIn("urn:site:A08 stores nothing", problem.text)
