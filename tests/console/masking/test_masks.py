"""What a role without patient data sees of messages, resources and answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.console.masking.answers import Masked, admin_mask, fhir_mask
from ipf.console.masking.fhir import mask_resource
from ipf.console.masking.hl7 import MASK, SHOWN, mask_message
from ipf.wire.reference.table import admin_document as document

CORPUS = Path(__file__).parents[2] / "corpus"
SECRET = "Qzsecret"
_NAMED = {
    "PID": (2, 3, 4, 5, 6, 9, 11, 13, 14, 18, 19, 20, 21, 23),
    "NK1": (2, 4, 5, 6),
    "GT1": (3, 5, 6),
    "IN1": (16, 19),
}
"""Fields with names, identifiers, addresses and phone numbers."""


class MessageTests(TestCase):
    def test_a_message(self) -> None:
        raw = (
            "MSH|^~\\&|LAB|GEN|IPF|IPF|20260102||ADT^A01^ADT_A01|C1|P|2.5.1\r"
            "PID|1||P1^^^GEN^MR||Hansen^Kari||19700315|F|||Elm 1^^Oslo||+47123|||M\r"
            "ZPI|secret|F\rOBX|1|ST|1^x||Kari Hansen\r"
        )
        self.assertEqual(mask_message(raw), (
            "MSH|^~\\&|LAB|GEN|IPF|IPF|20260102||ADT^A01^ADT_A01|C1|P|2.5.1\r"
            f"PID|1||{MASK}||{MASK}||1970|F|||{MASK}||{MASK}|||M\rZPI|{MASK}\rOBX|1|ST|1^x||{MASK}\r"
        ))  # fmt: skip

    def test_what_is_no_message(self) -> None:
        for raw in ("", '{"resourceType":"Patient"}', "PID|1||Hansen"):
            self.assertEqual(mask_message(raw), MASK)
        self.assertEqual(mask_message("MSH|^~\\&|A\nHansen^Kari, ward 3\nPID|1|\"\"|X"),
                         f"MSH|^~\\&|A\n{MASK}|{MASK}\nPID|1|\"\"|{MASK}")  # fmt: skip

    def test_no_message_of_the_corpus_tells_who_it_is_about(self) -> None:
        checked = 0
        for path in CORPUS.glob("*.hl7"):
            raw = path.read_bytes().decode("utf-8", "replace")
            masked = mask_message(raw)
            self.assertEqual(len(masked.split("\r")), len(raw.split("\r")))
            for line, shown in zip(
                raw.replace("\n", "\r").split("\r"), masked.replace("\n", "\r").split("\r"), strict=True
            ):
                fields, left = line.split("|"), shown.split("|")
                for number in _NAMED.get(fields[0], ()):
                    if number < len(fields) and fields[number] not in ("", '""'):
                        self.assertEqual(left[number], MASK, f"{path.name} {fields[0]}-{number}")
                        checked += 1
        self.assertGreater(checked, 200)

    def test_only_listed_fields_are_shown(self) -> None:
        """Of each segment with one field alone, with every second field, and with all."""
        for name in (*SHOWN, "ZZZ"):
            filled = [range(61), range(0, 61, 2), range(1, 61, 2), *([number] for number in range(61))]
            for numbers in filled:
                line = "|".join([name, *(SECRET if number in numbers else "" for number in range(61))])
                (shown,) = mask_message(f"MSH|^~\\&\r{line}").split("\r")[1:]
                kept = {number for number, text in enumerate(shown.split("|")[1:], 1) if text == SECRET}
                first = 1 if name in ("MSH", "FHS", "BHS") else 0  # MSH-1 is the separator
                self.assertLessEqual({number + first for number in kept}, SHOWN.get(name, frozenset()))


def _wrapped(inner: Any, wrap: Callable[[Any], Any]) -> Any:
    return wrap(inner)


class ResourceTests(TestCase):
    def test_a_patient(self) -> None:
        patient = {
            "resourceType": "Patient", "id": "7", "meta": {"lastUpdated": "2026-01-01T00:00:00Z", "versionId": "2"},
            "text": {"status": "generated", "div": SECRET}, "identifier": [{"system": "urn:mr", "value": SECRET}],
            "name": [{"use": "official", "family": SECRET, "given": [SECRET]}], "gender": "female",
            "birthDate": "1970-03-15", "deceasedDateTime": "2020-01-01T10:00:00Z",
            "address": [{"line": [SECRET], "city": SECRET}],
            "telecom": [{"system": "phone", "value": SECRET}],
            "_birthDate": {"extension": [{"url": "u", "valueTime": "10:00"}]},
            "managingOrganization": {"reference": "Organization/1", "display": SECRET}, "multipleBirthInteger": 2,
            "maritalStatus": {"text": SECRET, "coding": [{"system": "s", "code": "M", "display": "Married"}]},
            "extension": [{"url": "birthPlace", "valueAddress": {"city": SECRET}}],
        }  # fmt: skip
        shown = mask_resource(patient)
        self.assertNotIn(SECRET, json.dumps(shown))
        self.assertEqual((shown["birthDate"], shown["deceasedDateTime"], shown["gender"]), ("1970", "2020", "female"))
        self.assertEqual(shown["maritalStatus"], {"coding": [{"system": "s", "code": "M", "display": "Married"}]})
        self.assertEqual(shown["managingOrganization"], {"reference": "Organization/1", "display": MASK})
        self.assertEqual((shown["multipleBirthInteger"], shown["id"], shown["meta"]["versionId"]), (MASK, "7", "2"))

    def test_no_bundle_of_the_corpus_tells_who_it_is_about(self) -> None:
        checked = 0
        for path in CORPUS.glob("*.json"):
            bundle = json.loads(path.read_text())
            shown = dict.fromkeys(text for name, text in leaves(mask_resource(bundle)) if name not in _KEYS)
            for secret in (one for one in secrets(bundle) if len(one) > 1):
                self.assertNotIn(secret, shown, path.name)
                checked += 1
        self.assertGreater(checked, 200)

    def test_an_unknown_element_is_masked(self) -> None:
        """However lists and objects stand within each other."""
        within: tuple[Callable[[Any], Any], ...] = (
            lambda inner: [inner], lambda inner: {"aD": inner}, lambda inner: [SECRET, inner, [], {}],
            lambda inner: {"b": SECRET, "": inner, "cde": [SECRET]},
        )  # fmt: skip
        for depth in range(6):
            for wraps in product(within, repeat=depth):
                value = reduce(_wrapped, wraps, SECRET)
                self.assertNotIn(SECRET, json.dumps(mask_resource({"resourceType": "Basic", "x": value})))


_KEYS = ("code", "id", "reference", "fullUrl", "system", "url", "display")
_SECRET = {"name": ("family", "given", "text"), "identifier": ("value",), "telecom": ("value",),
           "address": ("line", "city", "postalCode", "text")}  # fmt: skip


def leaves(value: Any, name: str = "") -> list[tuple[str, str]]:
    """All texts with the name of their element."""
    if isinstance(value, dict):
        return [leaf for key, one in value.items() for leaf in leaves(one, key)]
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one, name)]
    return [(name, value)] if isinstance(value, str) else []


def secrets(value: Any, name: str = "") -> list[str]:
    """Texts of names, identifiers, telecoms and addresses."""
    if isinstance(value, list):
        return [text for one in value for text in secrets(one, name)]
    if not isinstance(value, dict):
        return []
    here = [text for key in _SECRET.get(name, ()) for _, text in leaves(value.get(key, []), key)]
    return here + [text for key, one in value.items() for text in secrets(one, key)]


class AnswerTests(TestCase):
    def test_every_path_of_the_engine_is_decided(self) -> None:
        """A path that is new in the document is refused until it stands in the table."""
        refused = set()
        for path in document("1")["paths"]:
            try:
                admin_mask(path.replace("{id}", "7"))
            except Masked:
                refused.add(path)
        self.assertIn("/admin/rejects/{id}", refused)
        self.assertIn("/admin/audit/export", refused)
        self.assertNotIn("/admin/messages/{id}", refused)
        for path in ("/admin/openapi.json", "/admin/observe/openapi.json"):
            self.assertEqual(admin_mask(path)(document("1")), document("1"))
        for path in (
            "/admin/future",
            "/admin/messages/7/future",
            "/admin/observe/future",
            "/admin/messages/7/",
            "/fhir/Patient",
        ):
            self.assertRaises(Masked, admin_mask, path)

    def test_searches_that_name_patients_are_refused(self) -> None:
        for path, names in [
            ("/admin/messages", ["patient"]), ("/admin/messages", ["status", "text"]),
            ("/admin/messages?text=Hansen", []), ("/admin/audit", ["patient"]),
        ]:  # fmt: skip
            self.assertRaises(Masked, admin_mask, path, names)
        admin_mask("/admin/messages", ["status", "source_system", "limit"])
        for path, names in [
            ("/Patient", ["name"]), ("/Patient", ["identifier"]),
            ("/Observation", ["patient.name"]), ("/Patient", ["_has:x"]), ("/Observation", ["subject:Patient.family"]),
             ("/Patient", ["birthdate"]), ("/Patient", ["_content"]),
        ]:  # fmt: skip
            self.assertRaises(Masked, fhir_mask, path, [(name, "x") for name in names])
        fhir_mask("/Observation", [("patient", "7"), ("code", "x"), ("_count", "5")])

    def test_an_order_by_what_is_masked_is_refused(self) -> None:
        """The order of rows tells names as their values would."""
        for order in (
            "family",
            "-birthdate",
            "_lastUpdated,given",
            "-date, identifier",
            "name:exact",
            "_score",
            "value",
        ):
            self.assertRaises(Masked, fhir_mask, "/Patient", [("_sort", order)])
        for order in ("_id", "-_lastUpdated", "date,-code", "", "-date,_id"):
            fhir_mask("/Observation", [("_sort", order), ("patient", "7")])

    def test_answers(self) -> None:
        def shown(path: str, body: Any) -> str:
            return json.dumps(admin_mask(path)(body))

        bundle = {"entry": [{"resource": {"resourceType": "Patient", "name": [{"family": SECRET}]},
                             "request": {"method": "PUT", "url": f"Patient?identifier=urn:x|{SECRET}"}}]}  # fmt: skip
        step = {"rule": "r", "file": "f", "line": 1, "sources": ["PID-5"], "translations": [SECRET],
                "produced": [{"entry": 0, "path": "Patient.name", "value": SECRET}]}  # fmt: skip
        candidate = {"reference": "Patient/1", "names": [SECRET], "birth_date": "1970-03-15", "note": SECRET,
                     "identifiers": [{"system": "s", "value": SECRET}]}  # fmt: skip
        for path, body in [
            ("/admin/messages/7", {"id": 7, "raw_message": f"MSH|^~\\&\rPID|||{SECRET}"}),
            ("/admin/messages/7/retry", {"id": 7, "raw_message": SECRET}),
            ("/admin/messages/7/trace", {"id": 7, "result": bundle, "steps": [step], "logs": [SECRET], "x": SECRET}),
            ("/admin/mapping/try", {"mistake": None, "result": bundle, "steps": [step]}),
            ("/admin/mapping/compare", {"differing": [{"id": 1, "before": bundle, "after": bundle}]}),
            ("/admin/identity-conflicts/1", {"keys": [{"value": SECRET}], "candidate_resources": [candidate]}),
            ("/admin/identity-conflicts", {"items": [{"keys": [{"value": SECRET}], "query": SECRET}]}),
            ("/admin/audit", {"items": [{"target": f"Patient?name={SECRET}&_count=5"}, {"target": None}]}),
            ("/admin/jobs", {"items": [{"selection": {"patient": SECRET, "filter": {"text": SECRET}}}]}),
            ("/admin/messages/replay", {"dry_run": True, "items": [{"resources": SECRET}]}),
            ("/admin/subscriptions/s/resource", {"resourceType": "Subscription", "contact": [{"value": SECRET}]}),
        ]:  # fmt: skip
            self.assertNotIn(SECRET, shown(path, body), path)
        self.assertIn("1970", shown("/admin/identity-conflicts/1", {"candidate_resources": [candidate]}))
        self.assertIn("Patient?name=", shown("/admin/audit", {"items": [{"target": f"Patient?name={SECRET}"}]}))
