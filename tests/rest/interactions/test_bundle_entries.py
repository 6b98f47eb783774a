"""Entries of converted messages: the entries of the mapping equal those of its Bundle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.fhir.search.language.query import parse_criteria
from ipf.mapping.bundle.identity import token
from ipf.mapping.bundle.transaction import finished
from ipf.mapping.runtime.run import Run
from ipf.ports import Json, Mapped
from ipf.rest.interactions.bundle_entries import entries_in, entries_of

PERSON = {"resourceType": "Patient"}
IDENTIFIERS: list[tuple[str | None, str]] = [
    ("urn:a", "1"),
    (None, "1"),
    ("urn:a", "a b"),
    ("urn:a", "a,b|c$d\\e"),
    ("urn:a|b", "1"),
    ("urn:a", "100%"),
    ("urn:a", "\u00e9+#"),
    ("urn:a", "x" * 2000),
    ("urn:a", "control \x01"),
]


def resource(resource_type: str, system: str | None, value: str) -> Json:
    """A resource with one identifier."""
    return {"resourceType": resource_type, "identifier": [{"value": value} | ({"system": system} if system else {})]}


def mapped(*resources: Json, **more: Any) -> Mapped:
    """The result of a mapping with these resources; `more`: further members of the first entry."""
    bundle: Json = {"resourceType": "Bundle", "entry": [{"resource": one} for one in resources]}
    bundle["entry"][0] |= more
    made = finished(bundle, Run(b"k"))
    return Mapped(made.bundle, "urn:map", references=made.references, entries=made.entries)


class EntriesOfMappingTests(TestCase):
    """`entries_in` compared with `entries_of`."""

    def check_identity(self, one: Mapped, message: Any = None) -> None:
        """The Bundle asks for the only key of the identity; else the entries are equal."""
        (made,), (read,) = entries_in(one), entries_of(one.bundle)
        assert made.identity is not None and read.resource is not None
        (key,) = made.identity.keys
        wanted = token({"system": key.system, "value": key.value})
        self.assertEqual(read.condition, parse_criteria(f"{read.resource_type}?identifier={wanted}"), message)
        self.assertEqual(replace(made, identity=None), replace(read, condition=None), message)

    def test_entries_of_mapping_equal_entries_of_bundle(self) -> None:
        for resource_type in ("Patient", "Practitioner", "Observation", "Device", "Composition"):
            for system, value in IDENTIFIERS:
                one = mapped(resource(resource_type, system, value))
                self.assertIsNotNone(one.entries)
                self.check_identity(one, (resource_type, system, value))

    def test_without_an_identifier_and_with_an_id(self) -> None:
        visit = {"resourceType": "Provenance", "id": "a-1", "meta": {"tag": []}}
        for given in ({"resourceType": "Provenance"}, visit, {"resourceType": "Binary", "data": "QQ=="}):
            one = mapped(given)
            self.assertIsNotNone(one.entries)
            self.assertEqual(entries_in(one), entries_of(one.bundle), given)

    def test_equal_resources_are_found(self) -> None:
        one = mapped(resource("Patient", "urn:a", "1"), request={"method": "POST", "ifNoneExist": "identifier"})
        self.check_identity(one)
        self.assertEqual(one.bundle["entry"][0]["request"]["ifNoneExist"], "identifier=urn:a|1")

    def test_map_with_own_requests_gives_a_bundle(self) -> None:
        asked = {"method": "PUT", "url": "Patient?identifier=urn:a|1"}
        one = mapped(resource("Patient", "urn:a", "1"), resource("Patient", "urn:a", "1"), request=asked)
        self.assertIsNone(one.entries)
        (entry,) = entries_in(one)
        self.assertEqual(entry.condition, parse_criteria("Patient?identifier=urn:a|1"))
        self.assertEqual(entry.place, "Bundle.entry[0]")

    def test_invalid_id_is_refused_at_storing(self) -> None:
        one = mapped({**PERSON, "id": "a b"})
        self.assertEqual(one.bundle["entry"][0]["request"], {"method": "PUT", "url": "Patient/a b"})
        with self.assertRaises(Problem) as caught:
            entries_in(one)
        self.assertEqual(caught.exception.place, "Bundle.entry[0].request.url")

    def test_invalid_condition_is_refused_at_storing(self) -> None:
        one = mapped(resource("Nonsense", "urn:a", "1"))
        self.assertEqual(one.bundle["entry"][0]["request"]["url"], "Nonsense?identifier=urn:a|1")
        with self.assertRaises(Problem):
            entries_in(one)

    def test_references_name_their_entry(self) -> None:
        run, doctor = Run(b"k"), resource("Practitioner", "urn:a", "1")
        twin, visit = resource("Practitioner", "urn:a", "1"), resource("Encounter", "urn:a", "2")
        every = doctor, twin, visit
        holders = [{"reference": run.urn(one)} for one in every]
        run.references += [(holder, "reference", one) for holder, one in zip(holders, every, strict=True)]
        made = finished({"resourceType": "Bundle", "entry": [{"resource": one} for one in every]}, run)
        wanted = [(holder, "reference", number) for holder, number in zip(holders, (0, 0, 1), strict=True)]
        self.assertEqual(made.references, wanted)
        urls = [one["fullUrl"] for one in made.bundle()["entry"]]
        self.assertEqual([one["reference"] for one in holders], [urls[0], urls[0], urls[1]])


class EntriesOfBundleTests(TestCase):
    """`entries_of`."""

    def test_invalid_entries_are_refused_with_their_location(self) -> None:
        for item in (1, [], {}, {"a": 1, "b": 2, "c": 3}):
            with self.assertRaises(Problem) as caught:
                entries_of({"entry": [{"request": {"method": "DELETE", "url": "Patient/1"}}, item]})
            self.assertEqual(caught.exception.place, "Bundle.entry[1].request")
