"""Messages of trigger events, and what the maps make of them: helpers of the tests of events."""

from __future__ import annotations

from typing import Any

from tests.corpus import samples

HEAD = "MSH|^~\\&|REG|HOSP|||20260311110000||{event}|M-{event}|P|{version}\nEVN||20260311110000\n"
PID = "PID|1|{person}|{number}||Marlowe^Ada||19710412|F||||||||||{account}"
PV1 = "PV1|1|{patient_class}|W^1^2||||||||||||||||{visit}"


def text(event: str, *segments: str, version: str = "2.5.1") -> str:
    """A message: header and event, then these segments."""
    return HEAD.format(event=event, version=version) + "\n".join(segments)


def pid(number: str = "100^^^HOSP^MR", account: str = "", person: str = "") -> str:
    """PID-2, PID-3 and PID-18 of a patient."""
    return PID.format(number=number, account=account, person=person)


def pv1(visit: str = "V1", patient_class: str = "I") -> str:
    """PV1-2, a bed in PV1-3, and PV1-19."""
    return PV1.format(visit=visit, patient_class=patient_class)


def mrg(number: str = "", *, account: str = "", person: str = "", visit: str = "", alternate: str = "") -> str:
    """MRG-1, MRG-3, MRG-4, MRG-5 and MRG-6."""
    return f"MRG|{number}||{account}|{person}|{visit}|{alternate}"


def bundle(message: str) -> dict[str, Any]:
    """The transaction of a message."""
    return samples.library().transform_message(samples.parse(message))


def entries(message: str, resource_type: str) -> list[dict[str, Any]]:
    """The entries of this type, in order."""
    return [one for one in bundle(message)["entry"] if one["resource"]["resourceType"] == resource_type]


def resources(message: str, resource_type: str) -> list[dict[str, Any]]:
    """The resources of this type, in order."""
    return [one["resource"] for one in entries(message, resource_type)]


def numbers(resource: dict[str, Any]) -> list[str]:
    """Its identifiers, an old one with a mark."""
    return [one["value"] + (" (old)" if one.get("use") == "old" else "") for one in resource.get("identifier", ())]
