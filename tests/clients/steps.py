"""What both Python clients share: the resources, and the JSON line of each step.  It runs in their environment."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

SYSTEM = "urn:ipf:clients"
NAMES = ("a", "b", "c", "d")
_UUID = "urn:uuid:0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e55"


def patient(client: str, family: str, given: str) -> dict[str, Any]:
    """A Patient of one client."""
    identifier = [{"system": SYSTEM, "value": client}]
    return {"resourceType": "Patient", "identifier": identifier, "name": [{"family": family, "given": [given]}]}


def bundle(client: str) -> dict[str, Any]:
    """A transaction with a Patient and an Observation of it."""
    observation = {
        "resourceType": "Observation", "status": "final", "code": {"text": client}, "subject": {"reference": _UUID},
    }  # fmt: skip
    made = patient(client, "Transaction", "a")
    entry = [
        {"fullUrl": _UUID, "resource": made, "request": {"method": "POST", "url": "Patient"}},
        {"resource": observation, "request": {"method": "POST", "url": "Observation"}},
    ]
    return {"resourceType": "Bundle", "type": "transaction", "entry": entry}


def run(steps: dict[str, Callable[[], Any]], code_of: Callable[[Exception], str | None]) -> None:
    """Print a line for each step.  `code_of`: the issue code of the OperationOutcome in an error of the client."""
    for step, perform in steps.items():
        try:
            result = perform()
        except Exception as error:
            result = {"error": code_of(error) or repr(error)}
        print(json.dumps({"step": step, "result": result}), flush=True)
