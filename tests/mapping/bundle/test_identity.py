"""From what a map made to a transaction that may be repeated: requests, derived keys, one entry for one thing."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from twisted.trial.unittest import TestCase

from ipf.mapping.bundle.identity import DERIVED, match_identifier, request, token
from ipf.mapping.bundle.transaction import complete
from ipf.mapping.language.identity_table import IdentityTable
from ipf.mapping.runtime.run import Run
from ipf.ports import Json


def resource(resource_type: str, *identifiers: tuple[str, str], **more: Any) -> Json:
    """A resource with identifiers (system, value)."""
    found = [{"system": system, "value": value} if system else {"value": value} for system, value in identifiers]
    return {"resourceType": resource_type, **({"identifier": found} if found else {}), **more}


REQUESTS = [
    (resource("Patient", ("urn:a", "1")), "PUT", "Patient?identifier=urn:a|1", None),
    (resource("Patient", ("", "1"), ("urn:a", "2")), "PUT", "Patient?identifier=urn:a|2", None),
    (resource("Patient", ("", "1")), "PUT", "Patient?identifier=|1", None),
    (resource("Patient"), "POST", "Patient", None),
    (resource("Patient", ("urn:a", "1"), id="x"), "PUT", "Patient/x", None),
    (resource("Encounter", ("urn:a", "1")), "PUT", "Encounter?identifier=urn:a|1", None),
    (resource("Observation", ("urn:a", "1")), "PUT", "Observation?identifier=urn:a|1", None),
    (resource("Practitioner", ("urn:a", "1")), "POST", "Practitioner", "identifier=urn:a|1"),
    (resource("Organization", ("urn:a", "1")), "POST", "Organization", "identifier=urn:a|1"),
    (resource("Location", ("urn:a", "1")), "POST", "Location", "identifier=urn:a|1"),
    (resource("Provenance"), "POST", "Provenance", None),
]

VALUES = ["a b", "a,b", "a|b", "a$b", "a\\b", "100%", "a&b=c", "é", "a+b", "a#b", "a/b:c"]


def bundle_of(*resources: Json, request: Json | None = None) -> Json:
    """A Bundle as a map leaves it."""
    more = {} if request is None else {"request": request}
    return {"resourceType": "Bundle", "entry": [{"resource": one, **more} for one in resources]}


class RequestTests(TestCase):
    def test_requests(self) -> None:
        for given, method, url, condition in REQUESTS:
            made, _ = request(given, IdentityTable())
            self.assertEqual((made["method"], made["url"], made.get("ifNoneExist")), (method, url, condition), given)

    def test_values_are_escaped_for_search_and_url(self) -> None:
        for value in VALUES:
            written = token({"system": "urn:a", "value": value})
            self.assertNotRegex(written.partition("|")[2], r"[ ,|$&+#\\]")
            plain = unquote(written.partition("|")[2])
            for special in "\\,|$":
                plain = plain.replace("\\" + special, special)
            self.assertEqual(plain, value)
        self.assertEqual(token({"system": "http://a/b", "value": "x,y|z"}), "http://a/b|x%5C%2Cy%5C%7Cz")

    def test_an_identifier_that_is_out_of_use_comes_last(self) -> None:
        old = {"system": "s", "value": "1", "use": "old"}
        self.assertEqual(match_identifier({"identifier": [old, {"value": "2"}]}), {"value": "2"})
        self.assertEqual(match_identifier({"identifier": [old]}), old)
        self.assertIsNone(match_identifier({"identifier": [{"system": "s"}]}))


class CompleteTests(TestCase):
    def test_a_map_may_ask_for_creation_once(self) -> None:
        for identifiers, condition in (((("s", "1"),), "identifier=s|1"), ((), f"identifier={DERIVED}|")):
            patient = resource("Patient", *identifiers)
            bundle = bundle_of(patient, request={"method": "POST", "ifNoneExist": "identifier"})
            complete(bundle, Run(b"k"))
            made = bundle["entry"][0]["request"]
            self.assertEqual((made["method"], made["url"]), ("POST", "Patient"))
            self.assertTrue(made["ifNoneExist"].startswith(condition), made)

    def test_a_map_may_ask_for_an_update_of_any_type(self) -> None:
        """By the first identifier, an old one included, or by the one that other messages find it by."""
        update = {"method": "PUT", "url": "identifier"}
        old = {"use": "old", "system": "s", "value": "1"}
        table = [
            (resource("Location", ("s", "1")), "PUT", "Location?identifier=s|1"),
            (
                resource("Patient", ("s", "2")) | {"identifier": [old, {"system": "s", "value": "2"}]},
                "PUT",
                "Patient?identifier=s|1,s|2",
            ),
            (resource("Practitioner", ("s", "1"), ("", "2"), ("t", "3")), "PUT", "Practitioner?identifier=s|1,t|3"),
            (resource("Account", ("", "1")), "PUT", "Account?identifier=|1"),
            (resource("MessageHeader"), "POST", "MessageHeader"),
        ]
        for given, method, url in table:
            bundle = bundle_of(given, request=update)
            complete(bundle, Run(b"k"))
            self.assertEqual(bundle["entry"][0]["request"], {"method": method, "url": url})

    def test_an_update_wins_over_a_creation_of_the_same(self) -> None:
        """The place that a row of a master file is about, and that is above the place of another row."""
        parent = resource("Location", ("s", "1"), name="as a visit says", mode="instance")
        row = resource("Location", ("s", "1"), name="as the master file says")
        bundle = {
            "resourceType": "Bundle",
            "entry": [{"resource": parent}, {"resource": row, "request": {"method": "PUT", "url": "identifier"}}],
        }
        complete(bundle, Run(b"k"))
        (entry,) = bundle["entry"]
        self.assertEqual(entry["request"], {"method": "PUT", "url": "Location?identifier=s|1"})
        self.assertEqual(
            (entry["resource"]["name"], entry["resource"]["mode"]), ("as the master file says", "instance")
        )

    def test_a_result_is_the_same_in_another_visit_and_a_diagnosis_is_not(self) -> None:
        for resource_type, count in (("Observation", 1), ("DiagnosticReport", 1), ("Condition", 2), ("Procedure", 2)):
            urls = set()
            for visit in ("v1", "v2"):
                patient, encounter = resource("Patient", ("s", "1")), resource("Encounter", ("s", visit))
                one = resource(resource_type, (DERIVED, "key"))
                links = [(one, "subject", patient), (one, "encounter", encounter)]
                urls.add(self.finished(b"a", patient, encounter, one, references=links)[2]["request"]["url"])
            self.assertEqual(len(urls), count, resource_type)

    def finished(self, key: bytes, *resources: Json, references: Any = ()) -> list[Json]:
        run = Run(key)
        for holder, name, target in references:
            holder[name] = {"reference": run.urn(target)}
            run.references.append((holder[name], "reference", target))
        bundle = bundle_of(*resources)
        complete(bundle, run)
        self.assertEqual(list(bundle), ["resourceType", "type", "entry"])
        for entry in bundle["entry"]:
            self.assertEqual(list(entry), ["fullUrl", "resource", "request"])
        entries: list[Json] = bundle["entry"]
        return entries

    def derived(self, key: bytes, patient: Json, allergy: Json) -> str:
        entries = self.finished(key, patient, allergy, references=[(allergy, "patient", patient)])
        url: str = entries[1]["request"]["url"]
        self.assertTrue(url.startswith(f"AllergyIntolerance?identifier={DERIVED}|"), url)
        return url

    def test_urls_are_stable_for_a_message(self) -> None:
        first, again, other = (
            self.finished(key, resource("Patient", ("s", "1")))[0]["fullUrl"] for key in (b"a", b"a", b"b")
        )
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertRegex(first, r"^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}$")

    def test_derived_identifiers_do_not_depend_on_the_message(self) -> None:
        def allergy(code: str) -> Json:
            return resource("AllergyIntolerance", code={"text": code})

        one = self.derived(b"a", resource("Patient", ("s", "1")), allergy("nuts"))
        self.assertEqual(one, self.derived(b"b", resource("Patient", ("s", "1"), gender="male"), allergy("nuts")))
        self.assertNotEqual(one, self.derived(b"a", resource("Patient", ("s", "2")), allergy("nuts")))
        self.assertNotEqual(one, self.derived(b"a", resource("Patient", ("s", "1")), allergy("milk")))

    def test_natural_keys_are_hashed_with_the_patient(self) -> None:
        def allergy(**more: Any) -> Json:
            return resource("AllergyIntolerance", (DERIVED, "nuts"), **more)

        one = self.derived(b"a", resource("Patient", ("s", "1")), allergy())
        self.assertEqual(one, self.derived(b"b", resource("Patient", ("s", "1")), allergy(criticality="high")))
        self.assertNotEqual(one, self.derived(b"a", resource("Patient", ("s", "2")), allergy()))
        self.assertNotIn("nuts", one)

    def test_two_observations_under_one_key_are_two(self) -> None:
        def keys(*values: str) -> list[str]:
            found = [resource("Observation", (DERIVED, "glucose"), valueString=value) for value in values]
            entries = self.finished(b"a", resource("Patient", ("s", "1")), *found)
            return [one["request"]["url"] for one in entries[1:]]

        first = keys("5", "6")
        self.assertEqual(len(set(first)), 2)
        self.assertEqual(first, keys("5", "7"))
        allergies = [resource("AllergyIntolerance", (DERIVED, "nuts")) for _ in range(2)]
        self.assertEqual(len(self.finished(b"a", resource("Patient", ("s", "1")), *allergies)), 2)

    def test_the_visit_counts_where_there_is_one(self) -> None:
        urls = []
        for visit in ("v1", "v2"):
            patient, encounter = resource("Patient", ("s", "1")), resource("Encounter", ("s", visit))
            condition = resource("Condition", code={"text": "flu"})
            links = [(condition, "subject", patient), (condition, "encounter", encounter)]
            urls.append(self.finished(b"a", patient, encounter, condition, references=links)[2]["request"]["url"])
        self.assertNotEqual(*urls)

    def test_a_patient_without_identifier_is_its_message_s(self) -> None:
        urls = {
            self.finished(key, resource("Patient", gender="male"))[0]["request"]["url"] for key in (b"a", b"b", b"a")
        }
        self.assertEqual(len(urls), 2)

    def test_one_thing_twice_is_one_entry(self) -> None:
        patient = resource("Patient", ("s", "1"))
        doctor, twin = resource("Practitioner", ("s", "d")), resource("Practitioner", ("s", "d"), name=[{"text": "D"}])
        other = resource("Practitioner", ("s", "e"))
        holders: list[Json] = [{}, {}, {}]
        entries = self.finished(
            b"a",
            patient,
            doctor,
            twin,
            other,
            references=[(holders[0], "x", doctor), (holders[1], "x", twin), (holders[2], "x", other)],
        )
        self.assertEqual(
            [one["resource"]["resourceType"] for one in entries], ["Patient", "Practitioner", "Practitioner"]
        )
        self.assertEqual(entries[1]["resource"]["name"], [{"text": "D"}])
        self.assertEqual(holders[0]["x"]["reference"], entries[1]["fullUrl"])
        self.assertEqual(holders[1]["x"]["reference"], entries[1]["fullUrl"])
        self.assertEqual(holders[2]["x"]["reference"], entries[2]["fullUrl"])

    def test_references_name_the_full_url_of_their_entry(self) -> None:
        for given in ("urn:uuid:own", ""):
            patient, visit = resource("Patient", ("s", "1")), resource("Encounter", ("s", "v"))
            bundle, run = bundle_of(patient, visit), Run(b"a")
            if given:
                bundle["entry"][0]["fullUrl"] = given
            holder: Json = {"reference": run.urn(patient)}
            run.references.append((holder, "reference", patient))
            made = complete(bundle, run)
            self.assertEqual(holder["reference"], bundle["entry"][0]["fullUrl"])
            self.assertEqual(holder["reference"] == given, bool(given))
            self.assertEqual(made.merged[id(visit)], bundle["entry"][1]["fullUrl"])

    def test_of_two_references_in_one_place_the_last_counts(self) -> None:
        first, twin, last = (resource("Practitioner", ("s", value)) for value in ("d", "d", "e"))
        bundle, run = bundle_of(first, twin, last), Run(b"a")
        holder: Json = {"reference": ""}
        for one in (twin, last):
            holder["reference"] = run.urn(one)
            run.references.append((holder, "reference", one))
        complete(bundle, run)
        self.assertEqual(holder["reference"], bundle["entry"][1]["fullUrl"])

    def test_what_the_map_asked_for_stands(self) -> None:
        how = {"method": "POST", "url": "Patient"}
        bundle = bundle_of(resource("Patient", ("s", "1")), resource("Patient", ("s", "1")), request=how)
        complete(bundle, Run(b"a"))
        self.assertEqual([one["request"] for one in bundle["entry"]], [how, how])

    def test_other_bundles_are_left_alone(self) -> None:
        for other in (
            {"resourceType": "Patient"},
            {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": {}}]},
        ):
            before = repr(other)
            complete(other, Run(b"a"))
            self.assertEqual(repr(other), before)

    def test_order_of_members(self) -> None:
        entries = self.finished(b"a", {"resourceType": "Patient", "gender": "male", "meta": {"tag": []}, "id": "1"})
        self.assertEqual(list(entries[0]["resource"]), ["resourceType", "id", "meta", "gender"])
