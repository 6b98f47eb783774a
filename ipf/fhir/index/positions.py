"""The position of a Location as index entries, for `near`: its latitude and its longitude, told apart by their units.

Source: https://hl7.org/fhir/R4/location.html#positional
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from ipf.fhir.index.entries import unit_value
from ipf.ports.queries.index import QuantityEntry

NEAR = "near"
LATITUDE, LONGITUDE = unit_value("", "", "latitude"), unit_value("", "", "longitude")


def position(resource: dict[str, Any]) -> tuple[Decimal, Decimal] | None:
    """Latitude and longitude of a Location; None where they are missing or cannot be read."""
    found = resource.get("position")
    if not isinstance(found, dict):
        return None
    values = [found.get("latitude"), found.get("longitude")]
    if not all(isinstance(one, int | float | Decimal) and not isinstance(one, bool) for one in values):
        return None
    latitude, longitude = (Decimal(str(one)) for one in values)
    return (latitude, longitude) if abs(latitude) <= 90 and abs(longitude) <= 180 else None


def position_entries(resource: dict[str, Any]) -> list[QuantityEntry]:
    """The entries of a resource."""
    at = position(resource) if resource.get("resourceType") == "Location" else None
    if at is None:
        return []
    return [(NEAR, at[0], at[0], LATITUDE), (NEAR, at[1], at[1], LONGITUDE)]
