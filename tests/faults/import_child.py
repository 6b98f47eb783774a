"""A process that imports a code system and waits at a step: `python -m tests.faults.import_child URL STEP`."""

from __future__ import annotations

import sys

from ipf.ports.fhir.terminology_import import NewConcept
from ipf.store.terminology.loading import connected
from tests.contracts.terminology import clinical


def main(url: str, wanted: str) -> None:
    """Import the code system of the contract with one more concept."""

    def progress(step: str, done: int) -> None:
        if step == wanted:
            print(step, flush=True)
            sys.stdin.read()  # until it is killed

    with connected(url) as loader:
        print("connected", flush=True)
        loader.load(clinical(new=NewConcept("new", "New", parents=["leaf"])), progress)


if __name__ == "__main__":
    main(*sys.argv[1:])
