"""Texts that name a person: what is read from a resource, and where it is found in criteria and searches."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.fhir.index.erased_texts import ErasedTexts, free_texts, personal_texts

PATIENT = {
    "resourceType": "Patient",
    "id": "x",
    "identifier": [{"system": "urn:mrn", "value": "47-11"}],
    "name": [{"family": "Zwölf", "given": ["Kari", "Marie"], "text": "Kari Zwölf"}],
    "address": [{"line": ["Elm Street 9"], "city": "Oslo"}],
    "telecom": [{"system": "phone", "value": "+47 22 33"}],
    "contact": [{"name": {"family": "Other"}}],
}
HIS = ErasedTexts(list(personal_texts(PATIENT)))


class ErasedTextsTests(TestCase):
    def test_what_names_a_person(self) -> None:
        """Numbers of every type; names, addresses and telephone numbers of persons; no city, which others have too."""
        self.assertEqual(
            sorted(personal_texts(PATIENT)),
            ["+47 22 33", "47-11", "Elm Street 9", "Kari", "Kari Zwölf", "Marie", "Zwölf"],
        )
        order = {"resourceType": "ServiceRequest", "identifier": [{"value": "O-1"}, {}, "x"], "name": "n"}
        self.assertEqual(list(personal_texts(order)), ["O-1"])
        for odd in ({"identifier": "x"}, {"resourceType": "Patient", "name": [None, {"given": [1]}]}):
            self.assertEqual(list(personal_texts(odd)), [])

    def test_where_they_stand(self) -> None:
        """As whole words, however a search writes them; each text with what is left of it."""
        cases = {
            "Patient?name=Zwölf": "Patient?name=erased",
            "Patient?name=zwolf&active=true": "Patient?name=erased&active=true",
            "Patient?name=Zw%C3%B6lf": "Patient?name=erased",
            "Patient?identifier=urn:mrn|47-11": "Patient?identifier=urn:mrn|erased",
            "Patient?identifier=urn%3Amrn%7C47-11": "Patient?identifier=erased",
            "Patient?address=elm+street+9": "Patient?address=erased",
            "all of KARI  ZWÖLF, since 2020": "all of erased, since 2020",
            "marie, kari": "erased, erased",
            '{"query":[["identifier","urn:mrn|47-11"]]}': '{"query":[["identifier","urn:mrn|erased"]]}',
        }
        for text, left in cases.items():
            self.assertTrue(HIS.found_in(text), text)
            self.assertEqual(HIS.removed_from(text), left)

    def test_where_they_do_not_stand(self) -> None:
        """Parts of other words and numbers, and single words of a text."""
        for text in (
            "", "Patient?name=Zwölfer", "Patient?identifier=47-110", "Patient?identifier=147-11", "Elm Street 91",
            "47 1", "Street", "%", "%zz 100%", "Mariella",
        ):  # fmt: skip
            self.assertFalse(HIS.found_in(text), text)
            self.assertEqual(HIS.removed_from(text), text)

    def test_short_texts_are_not_looked_for(self) -> None:
        """`1` stands in every other search."""
        for short in ("1", "12", "-1-2-", "", "å"):
            names = ErasedTexts([short])
            self.assertFalse(names.found_in(f"Patient?_count={short}&active=1"), short)

    def test_resources(self) -> None:
        """Criteria and descriptions change; codes, ids and canonical URLs do not, even with an equal text."""
        names = ErasedTexts(["Observation", "active"])
        resource = {
            "resourceType": "Observation", "id": "active", "status": "active", "reason": "active ones",
            "criteria": "Observation?x=1", "channel": {"header": ["X: observation"], "url": "http://a/Observation"},
        }  # fmt: skip
        self.assertEqual(
            names.removed(resource),
            resource | {"reason": "erased ones", "criteria": "erased?x=1",
                        "channel": {"header": ["X: erased"], "url": "http://a/Observation"}},
        )  # fmt: skip
        self.assertEqual(list(free_texts(resource)), ["active ones", "Observation?x=1", "X: observation"])

    def test_work_is_linear(self) -> None:
        """Ten thousand numbers and a text of a hundred thousand words: each word is looked at a few times."""
        names = ErasedTexts([f"{number} of order" for number in range(10_000)])
        text = "7 of orders, " * 33_000
        self.assertFalse(names.found_in(text))
        self.assertEqual(names.removed_from(text + "7 of order"), text + "erased")
