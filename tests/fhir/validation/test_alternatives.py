"""Elements with several types or profiles, of which one has to fit; limits of texts and quantities.

The differentials are the shapes that guides use: a Bundle of certain resources, Parameters, contained resources.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.profiles.library import Structures
from ipf.fhir.validation.validator import Validator
from ipf.ports import Json

CORE = "http://hl7.org/fhir/StructureDefinition/"
X = "http://x.test/"


def profile(name: str, kind: str, *elements: Json) -> Json:
    """A profile on a type."""
    return {
        "resourceType": "StructureDefinition",
        "url": X + name,
        "type": kind,
        "derivation": "constraint",
        "baseDefinition": CORE + kind,
        "differential": {"element": [{"id": one["path"], **one} for one in elements]},
    }


NAMED = profile("named", "Patient", {"path": "Patient.name", "min": 1})
BORN = profile("born", "Patient", {"path": "Patient.birthDate", "min": 1})
CITY = profile("city", "Address", {"path": "Address.city", "min": 1})
TEXT = profile("text", "Address", {"path": "Address.text", "min": 1})


def validator(*profiles: Json) -> Validator:
    """A validator that knows these profiles too."""
    known = {one["url"]: one for one in (NAMED, BORN, CITY, TEXT, *profiles)}
    return Validator(Structures(lambda url: known.get(url.partition("|")[0])))


def errors(made: Json, resource: Json) -> list[str]:
    """Locations of the errors about a resource by a profile."""
    found = validator(made).validate(resource, [made["url"]])
    return [one.location for one in found if one.severity == "error"]


def bundle(*resources: Json) -> Json:
    """A collection."""
    return {
        "resourceType": "Bundle",
        "type": "collection",
        "entry": [
            {"fullUrl": f"urn:uuid:00000000-0000-4000-8000-{number:012d}", "resource": one}
            for number, one in enumerate(resources)
        ],
    }


NAME: Json = {"resourceType": "Patient", "name": [{"family": "a"}]}
BIRTH: Json = {"resourceType": "Patient", "birthDate": "1990"}
NEITHER: Json = {"resourceType": "Patient", "active": True}
GROUP: Json = {"resourceType": "Organization", "name": "o"}
BASIC: Json = {"resourceType": "Basic", "code": {"text": "x"}}

TYPES: dict[str, tuple[list[Json], list[Json], list[Json]]] = {
    "two types": ([{"code": "Patient"}, {"code": "Organization"}], [NEITHER, GROUP], [BASIC]),
    "in the other order": ([{"code": "Organization"}, {"code": "Patient"}], [NEITHER, GROUP], [BASIC]),
    "two profiles": ([{"code": "Patient", "profile": [X + "named", X + "born"]}], [NAME, BIRTH], [NEITHER, GROUP]),
    "a type twice": (
        [{"code": "Patient", "profile": [X + "named"]}, {"code": "Patient", "profile": [X + "born"]}],
        [NAME, BIRTH],
        [NEITHER, GROUP],
    ),
    "a type and a profile": (
        [{"code": "Patient", "profile": [X + "named"]}, {"code": "Organization"}],
        [NAME, GROUP],
        [BIRTH, BASIC],
    ),
    "profiles of two types": (
        [{"code": "Resource", "profile": [X + "named", CORE + "Organization"]}],
        [NAME, GROUP],
        [BIRTH, BASIC],
    ),
    "anything": ([{"code": "Resource"}, {"code": "Patient", "profile": [X + "named"]}], [BIRTH, GROUP], []),
}


class AlternativeTests(TestCase):
    def test_resources_in_every_place(self) -> None:
        """Entries of a Bundle, Parameters, contained resources."""

        def in_bundle(resource: Json) -> Json:
            return bundle(resource)

        def in_parameters(resource: Json) -> Json:
            return {"resourceType": "Parameters", "parameter": [{"name": "x", "resource": resource}]}

        def contained(resource: Json) -> Json:
            return {**BASIC, "contained": [{**resource, "id": "a"}], "subject": {"reference": "#a"}}

        for path, wrap in (
            ("Bundle.entry.resource", in_bundle),
            ("Parameters.parameter.resource", in_parameters),
            ("Basic.contained", contained),
        ):
            for name, (types, fitting, others) in TYPES.items():
                made = profile("p", path.partition(".")[0], {"path": path, "type": types})
                for one in fitting:
                    self.assertEqual(errors(made, wrap(one)), [], (path, name, one))
                for one in others:
                    self.assertNotEqual(errors(made, wrap(one)), [], (path, name, one))

    def test_several_entries(self) -> None:
        types = [{"code": "Patient", "profile": [X + "named", X + "born"]}, {"code": "Organization"}]
        made = profile("p", "Bundle", {"path": "Bundle.entry.resource", "type": types})
        self.assertEqual(errors(made, bundle(NAME, BIRTH, GROUP)), [])
        self.assertEqual(errors(made, bundle(NAME, NEITHER, BASIC)), [
            "Bundle.entry[1].resource", "Bundle.entry[2].resource"])  # fmt: skip

    def test_data_types(self) -> None:
        """Several profiles of a data type, also where the profile has rules of its own beside them."""
        for types in (
            [{"code": "Address", "profile": [X + "city", X + "text"]}],
            [{"code": "Address", "profile": [X + "city"]}, {"code": "Address", "profile": [X + "text"]}],
        ):
            for further in ((), ({"path": "Patient.address.country", "min": 1},)):
                made = profile("p", "Patient", {"path": "Patient.address", "type": types}, *further)
                for address, expected in (
                    ({"city": "a", "country": "DE"}, []),
                    ({"text": "a", "country": "DE"}, []),
                    ({"country": "DE"}, ["Patient.address[0]"]),
                ):
                    resource = {"resourceType": "Patient", "address": [address]}
                    self.assertEqual(errors(made, resource), expected, (types, further, address))

    def test_targets_of_references(self) -> None:
        """Two declarations of Reference allow the targets of both."""
        types = [{"code": "Reference", "targetProfile": [CORE + one]} for one in ("Patient", "Organization")]
        made = profile("p", "Basic", {"path": "Basic.subject", "type": types})
        for reference, expected in (("Patient/1", []), ("Organization/1", []), ("Group/1", ["Basic.subject"])):
            self.assertEqual(errors(made, {**BASIC, "subject": {"reference": reference}}), expected)

    def test_rules_for_the_elements_of_a_nested_resource(self) -> None:
        """A differential may go on below an entry; the resource is validated as any, in its own scope."""
        entry = "Bundle.entry"
        slicing = {"discriminator": [{"type": "type", "path": "resource"}], "rules": "open"}
        types = [{"code": "Patient"}]
        made = profile(
            "p",
            "Bundle",
            {"path": entry, "slicing": slicing},
            {"id": f"{entry}:a", "path": entry, "sliceName": "a", "min": 1},
            {"id": f"{entry}:a.resource", "path": f"{entry}.resource", "type": types},
            {"id": f"{entry}:a.resource.name", "path": f"{entry}.resource.name", "min": 1},
        )
        place = "Bundle.entry[0].resource"
        contained = {**NAME, "contained": [{**GROUP, "id": "o"}], "managingOrganization": {"reference": "#o"}}
        for resource, expected in (
            (NAME, []),
            (contained, []),
            ({**NAME, "managingOrganization": {"reference": "#none"}}, [f"{place}.managingOrganization"]),
            (BIRTH, [place]),
            ({**NAME, "nonsense": 1}, [f"{place}.nonsense"]),
            ({**NAME, "meta": {"profile": [X + "born"]}}, [place]),
            (GROUP, ["Bundle"]),
        ):
            self.assertEqual(sorted(set(errors(made, bundle(resource)))), expected, resource)

    def test_unknown_profiles_are_noted(self) -> None:
        types = [{"code": "Patient", "profile": [X + "named", X + "unknown"]}]
        made = profile("p", "Bundle", {"path": "Bundle.entry.resource", "type": types})
        self.assertEqual(errors(made, bundle(NEITHER)), [])

    def test_nested_alternatives_take_linear_time(self) -> None:
        """Bundles in Bundles of which each has to be tried against two profiles."""
        types = [{"code": "Bundle", "profile": [X + "p", X + "q"]}, {"code": "Patient", "profile": [X + "named"]}]
        entry = {"path": "Bundle.entry.resource", "type": types}
        made, other = profile("p", "Bundle", entry), profile("q", "Bundle", entry, {"path": "Bundle.total", "min": 1})
        nested = NAME
        for _ in range(12):
            nested = bundle(nested)
        counted: list[str] = []
        known = validator(made, other)
        conforms = known.conforms

        def counting(value: Json, url: str, run: Any) -> bool | None:
            counted.append(url)
            return conforms(value, url, run)

        known.conforms = counting  # type: ignore[method-assign]
        found = known.validate(nested, [X + "p"])
        self.assertEqual([one.words for one in found if one.severity == "error"], [])
        self.assertLess(len(counted), 12 * 12 * 8)

    def test_nested_profiles_take_linear_time(self) -> None:
        """Each level has a profile, and is validated once: 2 to the power of 40 otherwise."""
        known = validator(profile("p", "Bundle", {"path": "Bundle.total", "max": "1"}))
        nested: Json = NEITHER
        for _ in range(40):
            nested = {**bundle(nested), "meta": {"profile": [X + "p"]}}
        found = [one.text for one in known.validate(nested, [X + "p"]) if one.severity == "error"]
        self.assertEqual(found, [])
        nested["entry"][0]["resource"]["entry"][0]["resource"]["timestamp"] = "wrong"
        places = {one.location for one in known.validate(nested) if one.severity == "error"}
        self.assertEqual(places, {"Bundle.entry[0].resource.entry[0].resource.timestamp"})


class LimitTests(TestCase):
    def test_quantities_in_other_units(self) -> None:
        """minValue and maxValue hold in any unit of the same dimension."""
        ucum = "http://unitsofmeasure.org"
        limits = {
            "minValueQuantity": {"value": 1, "system": ucum, "code": "kg"},
            "maxValueQuantity": {"value": 2, "system": ucum, "code": "kg"},
        }
        made = profile("p", "Observation", {"path": "Observation.valueQuantity", **limits})
        made["differential"]["element"][0] |= {
            "id": "Observation.value[x]",
            "path": "Observation.value[x]",
            "type": [{"code": "Quantity"}],
        }
        for value, unit, is_valid in (
            (1, "kg", True), (0.9, "kg", False), (2.1, "kg", False),
            (1000, "g", True), (999, "g", False), (2000, "g", True), (2001, "g", False), (1500000, "mg", True),
            (3, "[lb_av]", True), (5, "[lb_av]", False), (1500, "mL", True), (5, "zz", True),
        ):  # fmt: skip
            quantity = {"value": value, "unit": unit, "system": ucum, "code": unit}
            resource = {
                "resourceType": "Observation",
                "status": "final",
                "code": {"text": "x"},
                "valueQuantity": quantity,
            }
            found = [one for one in validator(made).validate(resource, [X + "p"]) if one.code == "value"]
            self.assertEqual(not found, is_valid, (value, unit, found))

    def test_length_of_texts(self) -> None:
        extension = [{"url": CORE + "minLength", "valueInteger": 3}]
        path = "Patient.name.family"
        made = profile("p", "Patient", {"path": path, "extension": extension, "maxLength": 5})
        for text, is_valid in (("ab", False), ("abc", True), ("abcde", True), ("abcdef", False)):
            resource = {"resourceType": "Patient", "name": [{"family": text}]}
            self.assertEqual(errors(made, resource), [] if is_valid else ["Patient.name[0].family"], text)
