"""The resources that searches look for, by label."""

from __future__ import annotations

from conformance.server import Json, Server
from conformance.suite import expect

LOINC, UCUM = "http://loinc.org", "http://unitsofmeasure.org"
TYPES = "http://terminology.hl7.org/CodeSystem/v2-0203"


SET = "search"
"""The tag of what searches look for."""


def system(server: Server) -> str:
    """The system of the identifiers of a run."""
    return f"urn:ipf:conformance:{server.run}"


def loinc(code: str, text: str) -> Json:
    """A concept."""
    return {"coding": [{"system": LOINC, "code": code}], "text": text}


def quantity(value: float, unit: str) -> Json:
    """A quantity in UCUM."""
    return {"value": value, "unit": unit, "system": UCUM, "code": unit}


def patient(server: Server, number: str, **members: object) -> Json:
    """A Patient with a number."""
    typed = {"coding": [{"system": TYPES, "code": "MR"}]}
    identifier = [{"type": typed, "system": system(server), "value": number}]
    return server.tagged({"resourceType": "Patient", "identifier": identifier, **members})


def _observation(code: Json, subject: str, **members: object) -> Json:
    return {
        "resourceType": "Observation",
        "status": "final",
        "code": code,
        "subject": {"reference": subject},
        **members,
    }


async def stored(server: Server) -> dict[str, str]:
    """Create the resources; `Type/id` by label."""
    found: dict[str, str] = {}

    async def add(label: str, resource: Json) -> None:
        reply = expect(await server.send("POST", resource["resourceType"], server.tagged(resource, SET)), 201)
        found[label] = f"{resource['resourceType']}/{reply.id}"

    await add("org1", {"resourceType": "Organization", "name": "North Hospital"})
    await add("org2", {"resourceType": "Organization", "name": "South Clinic", "partOf": {"reference": found["org1"]}})
    await add("prac1", {"resourceType": "Practitioner", "name": [{"family": "Clark"}]})
    await add("p1", patient(
        server, "111", name=[{"family": "Müller", "given": ["Anna", "Maria"]}], gender="female", active=True,
        birthDate="1970-03-05", address=[{"city": "Bern", "country": "CH"}],
        telecom=[{"system": "phone", "value": "+41310000000"}], managingOrganization={"reference": found["org1"]},
    ))  # fmt: skip
    await add("p2", patient(
        server, "222", name=[{"family": "Mueller", "given": ["Ben"]}], gender="male", active=False,
        birthDate="1970-03", generalPractitioner=[{"reference": found["prac1"]}],
    ))  # fmt: skip
    await add("p3", patient(server, "333", name=[{"family": "Smith", "given": ["Carl"]}], birthDate="1970"))
    await add("p4", patient(
        server, "444", name=[{"family": "Smithers", "given": ["anna"]}], gender="other", birthDate="1999-12-31",
        managingOrganization={"reference": found["org2"]},
    ))  # fmt: skip
    await _observations(add, found)
    for label, probability in (("r1", 0.5), ("r2", 0.8)):
        await add(label, {"resourceType": "RiskAssessment", "status": "final", "subject": {"reference": found["p1"]},
                          "prediction": [{"probabilityDecimal": probability}]})  # fmt: skip
    for label, path in (("v1", "a"), ("v2", "a/b"), ("v3", "ab")):
        url = f"http://example.org/{server.run}/{path}"
        await add(label, {"resourceType": "ValueSet", "status": "draft", "url": url, "version": "1.0"})
    return found


async def _observations(add: object, found: dict[str, str]) -> None:
    assert callable(add)
    pulse, pressure = loinc("8867-4", "Heart rate"), loinc("85354-9", "Blood pressure")
    await add("o1", _observation(
        pulse, found["p1"], effectiveDateTime="2026-01-01T10:00:00Z", valueQuantity=quantity(80, "/min"),
    ))  # fmt: skip
    await add("o2", _observation(
        pulse, found["p2"], effectiveDateTime="2026-01-02", valueQuantity=quantity(85.5, "/min"),
    ))  # fmt: skip
    parts = [{"code": loinc(code, code), "valueQuantity": quantity(value, "mm[Hg]")}
             for code, value in (("8480-6", 120), ("8462-4", 80))]  # fmt: skip
    await add("o3", _observation(
        pressure, found["p1"], component=parts, hasMember=[{"reference": found["o1"]}],
        effectivePeriod={"start": "2026-01-05T00:00:00Z", "end": "2026-01-10T00:00:00Z"},
    ))  # fmt: skip
    await add("o4", {
        **_observation({"coding": [{"system": "urn:other", "code": "8867-4"}]}, found["p4"], valueString="free text"),
        "status": "amended",
    })  # fmt: skip
