"""fhirpy.  usage: python fhirpy_steps.py BASE_URL; prints one JSON line a step."""

from __future__ import annotations

import json
import sys
from typing import Any

from fhirpy import SyncFHIRClient
from fhirpy.base.exceptions import BaseFHIRError
from steps import NAMES, SYSTEM, bundle, patient, run

CLIENT = "fhirpy"


class Steps:
    """The steps on one Patient."""

    def __init__(self, base: str) -> None:
        self.client = SyncFHIRClient(base)
        self.made: Any = None

    def create(self) -> Any:
        """A create."""
        self.made = self.client.resource(**_of(patient(CLIENT, "Create", "a")))
        self.made.save()
        return [self.made["meta"]["versionId"], self.made["name"][0]["family"]]

    def read(self) -> Any:
        """A read."""
        return self.client.reference("Patient", self.made.id).to_resource()["name"][0]["family"]

    def missing(self) -> Any:
        """A read of what is not there."""
        return self.client.reference("Patient", "missing").to_resource()

    def _found(self) -> Any:
        return self.client.resources("Patient").search(identifier=f"{SYSTEM}|{CLIENT}", family="Page").sort("given")

    def search(self) -> Any:
        """A search."""
        for given in NAMES:
            self.client.resource(**_of(patient(CLIENT, "Page", given))).save()
        return [one["name"][0]["given"][0] for one in self._found().fetch()]

    def page(self) -> Any:
        """All pages: the client joins them."""
        found = [one["name"][0]["given"][0] for one in self._found().limit(2).fetch_all()]
        return [found[:2], found[2:]]

    def update(self) -> Any:
        """An update."""
        self.made["name"] = [{"family": "Update"}]
        self.made.save()
        return [self.made["meta"]["versionId"], self.made["name"][0]["family"]]

    def patch(self) -> Any:
        """A merge patch, as the client sends it."""
        self.made.patch(name=[{"family": "Patch"}])
        return [self.made["meta"]["versionId"], self.made["name"][0]["family"]]

    def transaction(self) -> Any:
        """A transaction."""
        answer = self.client.execute("", method="post", data=bundle(CLIENT))
        id = answer["entry"][1]["response"]["location"].split("/")[-3]
        observation = self.client.reference("Observation", id).to_resource()
        statuses = [one["response"]["status"][:3] for one in answer["entry"]]
        return [statuses, observation["subject"]["reference"].split("/")[0]]

    def history(self) -> Any:
        """The history of one resource."""
        found = self.client.execute(f"Patient/{self.made.id}/_history", method="get")
        return [one["resource"]["meta"]["versionId"] for one in found["entry"]]

    def graphql(self) -> Any:
        """A GraphQL query."""
        query = f'{{ Patient(id: "{self.made.id}") {{ name {{ family }} }} }}'
        return self.client.execute("$graphql", method="post", data={"query": query})["data"]

    def delete(self) -> Any:
        """A delete, and a read of what is gone."""
        self.made.delete()
        return self.client.reference("Patient", self.made.id).to_resource()


def _of(resource: dict[str, Any]) -> dict[str, Any]:
    return {("resource_type" if name == "resourceType" else name): value for name, value in resource.items()}


def _code(error: Exception) -> str | None:
    if not isinstance(error, BaseFHIRError):
        return None
    found = getattr(error, "resource", None) or json.loads(str(error))
    code: str = found["issue"][0]["code"]
    return code


if __name__ == "__main__":
    steps = Steps(sys.argv[1])
    names = ("create", "read", "missing", "search", "page", "update", "patch", "transaction", "history", "graphql",
             "delete")  # fmt: skip
    run({name: getattr(steps, name) for name in names}, _code)
