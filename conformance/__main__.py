"""`bin/conformance URL`: the suites and a table.  Exit status: 0 nothing failed, 1 something did, 2 not reachable."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.task import react
from twisted.web.client import ResponseFailed, ResponseNeverReceived

from conformance import interactions, patches, published, races, transactions
from conformance.fhirpath import FhirPath
from conformance.search import Search
from conformance.server import Server
from conformance.suite import FAILED, Case, Result, run_suite, table

SUITES: dict[str, Callable[[], Mapping[str, Sequence[Case]]]] = {
    "interactions": lambda: {"interactions": interactions.cases()},
    "search": lambda: {"search": Search().cases()},
    "patch": lambda: {"patch": patches.cases()},
    "fhirpath": lambda: FhirPath().suites(),
    "transactions": lambda: {"transactions": transactions.cases()},
    "races": lambda: {"races": races.cases()},
}
"""By the names of `--suite`: rows of the table, and their cases."""


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(prog="bin/conformance", description="Measure a FHIR R4 server by suites of cases.")
    parser.add_argument("url", help="base URL, such as http://localhost:8090/fhir")
    parser.add_argument("--token", help="bearer token of every request")
    parser.add_argument(
        "--header", action="append", default=[], metavar="'NAME: VALUE'", help="a header of every request"
    )
    parser.add_argument("--suite", action="append", choices=list(SUITES), help="only these; the default is all")
    parser.add_argument("--reference", type=Path, metavar="FOLDER", help="HL7's test cases; adds the suite `published`")
    parser.add_argument("--json", action="store_true", help="one JSON line a case instead of the table")
    return parser.parse_args(given)


async def measured(server: Server, suites: Mapping[str, Sequence[Case]]) -> tuple[list[Result], list[str]]:
    """The results, and what could not be deleted."""
    results: list[Result] = []
    try:
        for name, cases in suites.items():
            results += await run_suite(name, cases, server)
    finally:
        left = await server.clean()
    return results, left


async def main(reactor: Any, given: Sequence[str]) -> None:
    """Run the suites and print what they find."""
    chosen = arguments(given)
    headers = dict(one.split(": ", 1) for one in chosen.header)
    if chosen.token:
        headers["Authorization"] = f"Bearer {chosen.token}"
    suites = {name: cases for one in chosen.suite or SUITES for name, cases in SUITES[one]().items()}
    if chosen.reference is not None:
        suites["published"] = published.cases(chosen.reference)
    server = Server(chosen.url.rstrip("/"), reactor, headers)
    try:
        await server.send("GET", "metadata")
        results, left = await measured(server, suites)
    except (ConnectError, ResponseFailed, ResponseNeverReceived) as lost:
        print(f"{server.base} is not reachable: {lost}", file=sys.stderr)
        raise SystemExit(2) from lost
    if chosen.json:
        for one in results:
            print(json.dumps(asdict(one)))
    else:
        print(f"{server.base}, {datetime.now(UTC):%Y-%m-%d}\n\n{table(results)}")
    if left:
        print(f"\nnot deleted: {', '.join(left)}", file=sys.stderr)
    raise SystemExit(1 if any(one.end == FAILED for one in results) else 0)


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, sys.argv[1:])))
