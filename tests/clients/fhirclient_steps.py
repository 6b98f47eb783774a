"""fhirclient (SMART).  usage: python fhirclient_steps.py BASE_URL; prints one JSON line a step.

It has no patch and no GraphQL.
"""

from __future__ import annotations

import sys
from typing import Any

from fhirclient.client import FHIRClient
from fhirclient.models.bundle import Bundle
from fhirclient.models.observation import Observation
from fhirclient.models.patient import Patient
from steps import NAMES, SYSTEM, bundle, patient, run

CLIENT = "fhirclient"


class Steps:
    """The steps on one Patient."""

    def __init__(self, base: str) -> None:
        self.server = FHIRClient(settings={"app_id": "tests", "api_base": base}).server
        self.made: Any = None

    def create(self) -> Any:
        """A create."""
        self.made = Patient(Patient(patient(CLIENT, "Create", "a")).create(self.server))
        self.made._server = self.server
        return [self.made.meta.versionId, self.made.name[0].family]

    def read(self) -> Any:
        """A read."""
        return Patient.read(self.made.id, self.server).name[0].family

    def missing(self) -> Any:
        """A read of what is not there."""
        return Patient.read("missing", self.server)

    def _found(self, **more: str) -> Any:
        return Patient.where({"identifier": f"{SYSTEM}|{CLIENT}", "family": "Page", "_sort": "given", **more})

    def search(self) -> Any:
        """A search."""
        for given in NAMES:
            Patient(patient(CLIENT, "Page", given)).create(self.server)
        return [one.name[0].given[0] for one in self._found().perform_resources(self.server)]

    def page(self) -> Any:
        """The pages."""
        pages = self._found(_count="2").perform_iter(self.server)
        return [[one.resource.name[0].given[0] for one in page.entry] for page in pages]

    def update(self) -> Any:
        """An update."""
        self.made.name[0].family = "Update"
        found = self.made.update(self.server)
        return [found["meta"]["versionId"], found["name"][0]["family"]]

    def transaction(self) -> Any:
        """A transaction."""
        sent = Bundle(bundle(CLIENT)).as_json()
        answer = Bundle(self.server.post_json("", sent).json())
        observation = Observation.read(answer.entry[1].response.location.split("/")[-3], self.server)
        return [[one.response.status[:3] for one in answer.entry], observation.subject.reference.split("/")[0]]

    def history(self) -> Any:
        """The history of one resource."""
        found = Bundle(self.server.request_json(f"Patient/{self.made.id}/_history"))
        return [one.resource.meta.versionId for one in found.entry]

    def delete(self) -> Any:
        """A delete, and a read of what is gone."""
        self.made.delete(self.server)
        return Patient.read(self.made.id, self.server)


def _code(error: Exception) -> str | None:
    response = getattr(error, "response", None)
    if response is None:
        return None
    code: str = response.json()["issue"][0]["code"]
    return code


if __name__ == "__main__":
    steps = Steps(sys.argv[1])
    names = ("create", "read", "missing", "search", "page", "update", "transaction", "history", "delete")
    run({name: getattr(steps, name) for name in names}, _code)
