"""Shipped search parameters: those of US Core, of the Subscriptions Backport guide, and of packages.

The tables `fhir/us-core/searchparameters.jsonl` and `fhir/backport/searchparameters.jsonl` hold what US Core 7.0.0 and
the guide 1.1.0 add to R4: id, code, bases, type and expression, one a line.  The guide's `custom-channel` is left out,
since Subscriptions with one are refused.  A SearchParameter in a package counts as if it had been posted; one that the
store has counts before it, and a code that R4 defines keeps R4's meaning.

Source: https://hl7.org/fhir/us/core/STU7/search-parameters.html; http://hl7.org/fhir/uv/subscriptions-backport
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ipf.config.paths import folder
from ipf.fhir.model.packages import Packages
from ipf.fhir.search.parameters.custom import ship
from ipf.ports import Json

_US_CORE = "http://hl7.org/fhir/us/core/SearchParameter/"
_BACKPORT = "http://hl7.org/fhir/uv/subscriptions-backport/SearchParameter/"
TYPES = ("SearchParameter",)
"""The resource types that are taken from packages."""


def serve(packages: Packages) -> None:
    """Serve them from now on in this process.  Resources that are stored already are indexed by `POST /$reindex`."""
    shipped = [*(entry.resource() for entry in packages.newest("SearchParameter")), *us_core(), *backport()]
    ship(shipped)


def us_core() -> Iterator[Json]:
    """The SearchParameters that US Core adds to those of R4."""
    return _stated("us-core", _US_CORE, "7.0.0")


def backport() -> Iterator[Json]:
    """Those that the Subscriptions Backport guide adds."""
    return _stated("backport", _BACKPORT, "1.1.0")


def _stated(name: str, url: str, version: str) -> Iterator[Json]:
    lines = (folder("fhir") / name / "searchparameters.jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines[1:]:
        id_, code, base, kind, expression = json.loads(line)
        yield {
            "resourceType": "SearchParameter", "id": id_, "url": url + id_, "version": version, "name": id_,
            "status": "active", "code": code, "base": base, "type": kind, "expression": expression,
        }  # fmt: skip
