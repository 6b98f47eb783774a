"""Things under one number of a message: which are one, and that their number does not decide the work."""

from __future__ import annotations

from unittest.mock import patch

from twisted.trial.unittest import TestCase

from ipf.mapping.bundle.contents import MOST_COMPARED, Concept, ContentsOfNumber, content_of
from ipf.ports import Json
from tests.corpus import samples


def observation(code: str = "") -> Json:
    """An Observation."""
    made: Json = {"resourceType": "Observation", "status": "final"}
    return made | ({"code": {"coding": [{"system": "urn:s", "code": code}]}} if code else {})


class ContentsTests(TestCase):
    def test_many_things_under_one_number(self) -> None:
        """Each is compared with so many at most; of further ones an equal one is found all the same."""
        resources = [observation(f"c{number}") for number in range(10 * MOST_COMPARED)]
        made, compared, contradicts = ContentsOfNumber(0), 0, Concept.contradicts

        def counted(one: Concept, other: Concept) -> bool:
            nonlocal compared
            compared += 1
            return contradicts(one, other)

        with patch.object(Concept, "contradicts", counted):
            for number, resource in enumerate(resources[1:], 1):
                content = content_of(resource)
                assert content is not None
                self.assertIsNone(made.find(content, resources.__getitem__))
                made.add(content, number)
            for number, resource in enumerate(resources):
                content = content_of(resource)
                assert content is not None
                self.assertEqual(made.find(content, resources.__getitem__), number)
        self.assertLessEqual(compared, 2 * len(resources) * MOST_COMPARED)

    def test_what_an_entry_takes_over_counts(self) -> None:
        """One without a code may be anything, until it has the code of another one."""
        resources = [observation()]
        made = ContentsOfNumber(0)
        first, second = content_of(observation("a")), content_of(observation("b"))
        assert first is not None
        assert second is not None
        self.assertEqual(made.find(first, resources.__getitem__), 0)
        resources[0] |= observation("a")
        self.assertIsNone(made.find(second, resources.__getitem__))

    def test_a_message_that_repeats_its_results(self) -> None:
        """Three hundred results under one number, told twice: each is one Observation."""
        results = [
            f"OBX|{place}|NM|C{place}^c^L||{place}||||||F||||||||||R7001^L" for place in range(3 * MOST_COMPARED)
        ]
        head = "MSH|^~\\&|LAB|H|IPF|H|20260301||ORU^R01^ORU_R01|1|P|2.5.1\nPID|1||A^^^X^MR\nOBR|1|1||P^P^L\n"
        entries = samples.library().transform_message(samples.parse(head + "\n".join(results * 2)))["entry"]
        found = [one["resource"] for one in entries if one["resource"]["resourceType"] == "Observation"]
        codes = {one["code"]["coding"][0]["code"]: one["valueQuantity"]["value"] for one in found}
        self.assertEqual((len(found), codes), (len(results), {f"C{place}": place for place in range(len(results))}))
