"""The short way of reading the entries of a converted message reads what the long one reads."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.ports import Json
from ipf.rest.bundle_entries import entries_of, entry_of

PERSON = {"resourceType": "Patient", "name": [{"family": "A"}]}
KNOWN = {**PERSON, "id": "a-1"}
REQUESTS: list[tuple[Json, Json]] = [
    (PERSON, {"method": "POST", "url": "Patient"}),
    (KNOWN, {"method": "POST", "url": "Patient"}),
    (PERSON, {"method": "POST", "url": "Patient", "ifNoneExist": "identifier=urn:a|1"}),
    (PERSON, {"method": "POST", "url": "Patient", "ifNoneExist": "Patient?identifier=urn:a|1"}),
    (PERSON, {"method": "POST", "url": "Patient", "ifNoneExist": "identifier=a%7Cb|1&active=true"}),
    (PERSON, {"method": "POST", "url": "Patient", "ifNoneExist": ""}),
    (PERSON, {"method": "POST", "url": "Patient", "ifNoneExist": 1}),
    (PERSON, {"method": "POST", "url": "Patient", "ifNoneExist": "nonsense=1"}),
    (PERSON, {"method": "POST", "url": "Encounter"}),
    (PERSON, {"method": "PUT", "url": "Patient?identifier=urn:a|1"}),
    (PERSON, {"method": "PUT", "url": "Patient?identifier=urn:a|1?b"}),
    (PERSON, {"method": "PUT", "url": "Patient?identifier=|1"}),
    (PERSON, {"method": "PUT", "url": "Patient?"}),
    (PERSON, {"method": "PUT", "url": "Patient"}),
    (PERSON, {"method": "PUT", "url": "Patient/a-1"}),
    (KNOWN, {"method": "PUT", "url": "Patient/a-1"}),
    (KNOWN, {"method": "PUT", "url": "Patient/b"}),
    (KNOWN, {"method": "PUT", "url": "Patient?identifier=urn:a|1"}),
    ({**PERSON, "id": "a b"}, {"method": "PUT", "url": "Patient/a b"}),
    (KNOWN, {"method": "PUT", "url": "Patient/a-1", "ifMatch": 'W/"3"'}),
    (KNOWN, {"method": "PUT", "url": "Patient/a-1", "ifNoneMatch": "*"}),
    (KNOWN, {"method": "DELETE", "url": "Patient/a-1"}),
    (PERSON, {"method": "GET", "url": "Patient/a-1"}),
    ({"name": []}, {"method": "POST", "url": "Patient"}),
    ({"resourceType": ["Patient"]}, {"method": "POST", "url": "Patient"}),
    (PERSON, {"url": "Patient"}),
]


class Ways(TestCase):
    """`entries_of` beside `entry_of`, which looks at everything."""

    def test_both_read_the_same(self) -> None:
        for resource, asked in REQUESTS:
            whole = {"fullUrl": "urn:uuid:1", "resource": resource, "request": asked}
            nameless = {"resource": resource, "request": asked}
            for item in (whole, {**whole, "link": []}, {**whole, "fullUrl": 1}, nameless):
                for _ in range(2):  # what is remembered is the same again
                    self.assertEqual(_read(entries_of, {"entry": [item]}), _read(_carefully, item), item)

    def test_what_is_no_entry_is_refused_in_its_place(self) -> None:
        for item in (1, [], {}, {"a": 1, "b": 2, "c": 3}):
            with self.assertRaises(Problem) as caught:
                entries_of({"entry": [{"request": {"method": "DELETE", "url": "Patient/1"}}, item]})
            self.assertEqual(caught.exception.place, "Bundle.entry[1].request")


def _carefully(item: Json) -> Any:
    return (entry_of(item, "Bundle.entry[0]"),)


def _read(way: Any, given: Any) -> Any:
    try:
        return way(given)
    except Problem as problem:
        return problem.category, problem.text
