"""Distances of the matches of a search by `near`, in their entries.

Source: https://hl7.org/fhir/R4/location.html#positional, https://hl7.org/fhir/R4/extension-location-distance.html
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.fhir.model.json import dumps, loads
from ipf.fhir.search.values.near import centres, distance
from ipf.ports import Version
from ipf.ports.queries.search import Query

_UCUM = "http://unitsofmeasure.org"
_URL = "http://hl7.org/fhir/StructureDefinition/location-distance"


def distances(queries: Sequence[Query], matches: Sequence[Version]) -> dict[int, bytes]:
    """By rid, the distance to the nearest centre of the search; empty for a search without `near`."""
    circles = centres(term.test for query in queries if query.resource_type == "Location" for term in query.terms)
    found: dict[int, bytes] = {}
    for version in matches if circles else ():
        if version.resource_type != "Location":
            continue
        location = loads(version.body)
        metres = min((one for circle in circles if (one := distance(circle, location)) is not None), default=None)
        if metres is not None:
            value = {
                "value": round(metres / 1000, 3),
                "unit": "km",
                "system": _UCUM,
                "code": "km",
            }
            found[version.rid] = b',"extension":' + dumps([{"url": _URL, "valueDistance": value}])
    return found
