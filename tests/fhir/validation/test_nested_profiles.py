"""Profiles of contained resources, and slices whose profile tells what belongs to them."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.ports import Json
from tests.fhir.validation.test_alternatives import (
    BASIC,
    BIRTH,
    GROUP,
    NAME,
    NEITHER,
    X,
    bundle,
    profile,
    validator,
)  # fmt: skip


def sliced(path: str, kind: str, at: str, rules: str = "open") -> Json:
    """A sliced element."""
    return {"path": path, "slicing": {"discriminator": [{"type": kind, "path": at}], "rules": rules}}


def a_slice(path: str, name: str, **facts: object) -> Json:
    """A slice of it."""
    return {"id": f"{path}:{name}", "path": path, "sliceName": name, **facts}


def contained(*resources: Json) -> Json:
    """A resource that contains and refers to these."""
    inner = [{**one, "id": f"c{number}"} for number, one in enumerate(resources)]
    parts = [{"url": "urn:test:part", "valueReference": {"reference": f"#c{n}"}} for n in range(len(resources))]
    return {**BASIC, "contained": inner, "extension": parts} if resources else BASIC


def patient(*addresses: Json) -> Json:
    """A Patient with these addresses."""
    return {"resourceType": "Patient", "address": list(addresses)}


def parameter(name: str, resource: Json) -> Json:
    """Parameters with one resource."""
    return {"resourceType": "Parameters", "parameter": [{"name": name, "resource": resource}]}


def performed(reference: str, *inner: Json) -> Json:
    """An Observation with a performer."""
    found: Json = {"resourceType": "Observation", "status": "final", "code": {"text": "x"}}
    return {**found, "performer": [{"reference": reference}], **({"contained": list(inner)} if inner else {})}


HELD, ADDRESS, ENTRY, PARAMETER, PERFORMER = (
    "Basic.contained",
    "Patient.address",
    "Bundle.entry",
    "Parameters.parameter",
    "Observation.performer",
)
NAMED = [{"code": "Patient", "profile": [X + "named"]}]
PLACE = "Bundle.entry[0].resource"

TABLE: dict[str, tuple[Json, list[tuple[Json, list[str]]]]] = {
    "contained, by profile": (
        profile("p", "Basic", sliced(HELD, "profile", "$this"), a_slice(HELD, "a", min=1, max="1", type=NAMED)),
        [
            (contained(NAME), []),
            (contained(NEITHER), ["Basic"]),
            (contained(NAME, NAME), ["Basic"]),
            (contained(NAME, BIRTH), []),
            (contained(), ["Basic"]),
        ],
    ),
    "contained, by type, with rules below": (
        profile(
            "p",
            "Basic",
            sliced(HELD, "type", "$this"),
            a_slice(HELD, "a", min=1, type=[{"code": "Patient"}]),
            {"id": f"{HELD}:a.name", "path": f"{HELD}.name", "min": 1},
        ),
        [
            (contained(NAME), []),
            (contained(NEITHER), ["Basic.contained[0]"]),
            (contained(GROUP, NAME), []),
            (contained(GROUP), ["Basic"]),
        ],
    ),
    "contained, by type, with a profile": (
        profile("p", "Basic", sliced(HELD, "type", "$this", "closed"), a_slice(HELD, "a", type=NAMED)),
        [
            (contained(NAME), []),
            (contained(NEITHER), ["Basic.contained[0]"]),
            (contained(NAME, GROUP), ["Basic.contained[1]"]),
        ],
    ),
    "contained, with a profile of its own": (
        profile("p", "Basic", {"path": "Basic.code", "min": 1}),
        [
            (contained({**NAME, "meta": {"profile": [X + "named"]}}), []),
            (contained({**NEITHER, "meta": {"profile": [X + "named"]}}), ["Basic.contained[0]"]),
        ],
    ),
    "contained, as the target of a reference": (
        profile(
            "p", "Basic", {"path": "Basic.subject", "type": [{"code": "Reference", "targetProfile": [X + "named"]}]}
        ),
        [
            ({**contained(NAME), "subject": {"reference": "#c0"}}, []),
            ({**contained(NEITHER), "subject": {"reference": "#c0"}}, ["Basic.subject"]),
        ],
    ),
    "data types, by profile": (
        profile(
            "p",
            "Patient",
            sliced(ADDRESS, "profile", "$this", "closed"),
            a_slice(ADDRESS, "a", min=1, type=[{"code": "Address", "profile": [X + "city"]}]),
            a_slice(ADDRESS, "b", max="1", type=[{"code": "Address", "profile": [X + "text"]}]),
        ),
        [
            (patient({"city": "x"}), []),
            (patient({"text": "x"}), ["Patient"]),
            (patient({"city": "x"}, {"text": "x"}), []),
            (patient({"city": "x"}, {"country": "x"}), ["Patient.address[1]"]),
            (patient({"city": "x"}, {"text": "x"}, {"text": "y"}), ["Patient"]),
        ],
    ),
    "entries, by profile, with rules below": (
        profile(
            "p",
            "Bundle",
            sliced(ENTRY, "profile", "resource"),
            a_slice(ENTRY, "a", min=1),
            {"id": f"{ENTRY}:a.resource", "path": f"{ENTRY}.resource", "type": NAMED},
            {"id": f"{ENTRY}:a.resource.birthDate", "path": f"{ENTRY}.resource.birthDate", "min": 1},
        ),
        [
            (bundle({**NAME, **BIRTH}), []),
            (bundle(NAME), [PLACE]),
            (bundle(BIRTH), ["Bundle"]),
            (bundle(BIRTH, {**NAME, **BIRTH}), []),
        ],
    ),
    "parameters, by name, with a profile": (
        profile(
            "p",
            "Parameters",
            sliced(PARAMETER, "value", "name", "closed"),
            a_slice(PARAMETER, "a", min=1),
            {"id": f"{PARAMETER}:a.name", "path": f"{PARAMETER}.name", "fixedString": "who"},
            {"id": f"{PARAMETER}:a.resource", "path": f"{PARAMETER}.resource", "min": 1, "type": NAMED},
        ),
        [
            (parameter("who", NAME), []),
            (parameter("who", BIRTH), ["Parameters.parameter[0].resource"]),
            (parameter("who", GROUP), ["Parameters.parameter[0].resource"]),
            (parameter("what", NAME), ["Parameters", "Parameters.parameter[0]"]),
        ],
    ),
    "references, by the profile of the target": (
        profile(
            "p",
            "Observation",
            sliced(PERFORMER, "profile", "resolve()"),
            a_slice(PERFORMER, "a", min=1, type=[{"code": "Reference", "targetProfile": [X + "named"]}]),
        ),
        [
            (performed("#a", {**NAME, "id": "a"}), []),
            (performed("#a", {**NEITHER, "id": "a"}), ["Observation"]),
            (performed("Patient/1"), []),  # outside of the document: cannot be decided
        ],
    ),
}


class NestedProfileTests(TestCase):
    def test_table(self) -> None:
        for name, (made, rows) in TABLE.items():
            known = validator(made)
            for resource, expected in rows:
                found = known.validate(resource, [made["url"]])
                errors = sorted({one.location for one in found if one.severity == "error"})
                self.assertEqual(errors, expected, (name, resource, [one.text for one in found]))

    def test_an_undecided_slice_is_named(self) -> None:
        made, rows = TABLE["references, by the profile of the target"]
        found = validator(made).validate(rows[-1][0], [made["url"]])
        self.assertIn("Observation.performer: membership of slice a cannot be decided", [one.text for one in found])
