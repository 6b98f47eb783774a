"""Consents, labelled resources and callers of the tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import dumps
from ipf.ports import Caller, Change, FhirStore, Lookup, Version, Writes
from ipf.ports.queries.index import EMPTY

ISSUER = "https://idp.example"
TREAT = "http://terminology.hl7.org/CodeSystem/v3-ActReason|TREAT"
DOCTOR = Caller(
    "doctor", "ward-app", ("user/*.rs",), user="Practitioner/7", issuer=ISSUER, purpose=(TREAT,)
)  # fmt: skip


def coded(system: str, code: str) -> dict[str, str]:
    """A Coding."""
    return {"system": system, "code": code}


def rule(kind: str, **elements: Any) -> dict[str, Any]:
    """A provision."""
    return {"type": kind, **elements}


def consent(provision: dict[str, Any], **elements: Any) -> dict[str, Any]:
    """An active Consent of Patient/p1 on privacy."""
    return {
        "resourceType": "Consent",
        "status": "active",
        "scope": {"coding": [{"code": "patient-privacy"}]},
        "category": [{"coding": [coded("http://loinc.org", "59284-0")]}],
        "patient": {"reference": "Patient/p1"},
        "policyRule": {"text": "local"},
        "provision": provision,
        **elements,
    }


def observation(id: str, patient: str, **elements: Any) -> dict[str, Any]:
    """An Observation of a patient."""
    return {
        "resourceType": "Observation",
        "id": id,
        "status": "final",
        "code": {"coding": [coded("http://loinc.org", "718-7")]},
        "subject": {"reference": f"Patient/{patient}"},
        **elements,
    }


def labelled(resource: dict[str, Any], system: str, code: str) -> dict[str, Any]:
    """The resource with a security label."""
    return {**resource, "meta": {**resource.get("meta", {}), "security": [coded(system, code)]}}


async def put(store: FhirStore, resource: dict[str, Any], version: int = 1, *, deleted: bool = False) -> None:
    """Store a version."""
    at = datetime(2026, 1, 1, 0, 0, version, tzinfo=UTC)
    kind, id = str(resource["resourceType"]), str(resource["id"])
    async with store.transaction() as transaction:
        found = (await transaction.look_up(Lookup(ids=(("default", kind, id),)))).by_id[0]
        rid = await store.new_rid() if found is None else found.rid
        body = b"" if deleted else dumps(resource)
        written = Version(rid, kind, id, version, at, body, deleted, "DELETE" if deleted else "PUT")
        after = EMPTY if deleted else extract(resource)
        change = Change("default", written, None if deleted else resource, EMPTY, after, "", "update")
        await transaction.commit(Writes((change,)))
