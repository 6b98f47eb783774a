"""`near` of Locations: `latitude|longitude|distance|units` in, a box for the index and a circle for the position out.

The distance is that on a sphere (haversine), at most 0.5 % off the ellipsoid.  Its default is 50, its unit km.

Source: https://hl7.org/fhir/R4/location.html#positional
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from ipf.fhir.index.positions import LATITUDE, LONGITUDE, NEAR, position
from ipf.fhir.search.values.parameter import RequestedParameter, any_of, split, unescape
from ipf.ports.queries.predicates import AllOf, Bound, Bounds, Near, Not, Present, QuantityRange, Test

DEFAULT_KM = 50
_METRES = {
    "km": 1000.0,
    "m": 1.0,
    "cm": 0.01,
    "[mi_i]": 1609.344,
    "[nmi_i]": 1852.0,
    "[ft_i]": 0.3048,
    "[yd_i]": 0.9144,
}
_RADIUS = 6_371_008.8  # metres, the mean radius of the earth
_SLACK = 1e-6  # degrees, so that the box has what the circle has


def near(requested: RequestedParameter, value: str) -> Test:
    """The test of `near`.  Problem VALUE for a position, a distance or a unit that cannot be read."""
    if requested.modifier == "missing":
        if value not in ("true", "false"):
            raise requested.refuse("the modifier :missing takes true or false")
        present = Present(NEAR, "quantity")
        return Not(present) if value == "true" else present
    if requested.modifier:
        raise requested.unsupported()
    found = [_circle(requested, one) for one in split(value, ",") if one]
    if not found:
        raise requested.refuse("it has no value")
    return any_of(found)


def distance(test: Near, resource: dict[str, Any]) -> float | None:
    """Metres from the centre to a Location; None for one without a position."""
    at = position(resource)
    return None if at is None else _haversine(test.latitude, test.longitude, float(at[0]), float(at[1]))


def is_near(test: Near, resource: dict[str, Any]) -> bool:
    """Whether a Location is in the circle."""
    metres = distance(test, resource)
    return metres is not None and metres <= test.metres


def centres(tests: Iterable[Test]) -> list[Near]:
    """The circles in tests as `near` makes them."""
    found: list[Near] = []
    for test in tests:
        if isinstance(test, Near):
            found.append(test)
        elif isinstance(test, AllOf) or hasattr(test, "tests"):
            found += centres(test.tests)
    return found


def _circle(requested: RequestedParameter, text: str) -> Test:
    parts = [unescape(one).strip() for one in split(text, "|")]
    if not 2 <= len(parts) <= 4:
        raise requested.refuse("write latitude|longitude|distance|units")
    latitude, longitude = _number(requested, parts[0], 90), _number(requested, parts[1], 180)
    most = _number(requested, parts[2], 1e9) if len(parts) > 2 and parts[2] else DEFAULT_KM
    unit = (parts[3] if len(parts) > 3 else "") or "km"
    if unit not in _METRES:
        raise requested.refuse(f"{unit[:40]} is no unit of length here; there are {', '.join(_METRES)}")
    if most < 0:
        raise requested.refuse("a distance is not negative")
    metres = most * _METRES[unit]
    return AllOf((*_box(latitude, longitude, metres), Near(latitude, longitude, metres)))


def _number(requested: RequestedParameter, text: str, most: float) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not abs(found) <= most:
        raise requested.refuse(f"{text[:40]} is no number from {-most:g} to {most:g}")
    return found


def _box(latitude: float, longitude: float, metres: float) -> list[Test]:
    """Ranges of latitude and longitude that have the circle in them, also over a pole or the date line."""
    angle = metres / _RADIUS
    height = math.degrees(angle) + _SLACK
    south, north = latitude - height, latitude + height
    box = [_range(LATITUDE, ((south, north),))]
    if south <= -90 or north >= 90:
        return box
    width = math.degrees(math.asin(min(1.0, math.sin(min(angle, math.pi / 2)) / math.cos(math.radians(latitude)))))
    west, east = longitude - width - _SLACK, longitude + width + _SLACK
    if east - west >= 360:
        return box
    ranges = [(west, east)]
    if west < -180:
        ranges = [(west + 360, 180.0), (-180.0, east)]
    elif east > 180:
        ranges = [(west, 180.0), (-180.0, east - 360)]
    return [*box, _range(LONGITUDE, ranges)]


def _range(unit: str, ranges: Iterable[tuple[float, float]]) -> Test:
    bounds: Bounds = tuple(
        (Bound("lo", ">=", Decimal(repr(low))), Bound("hi", "<=", Decimal(repr(high)))) for low, high in ranges
    )
    return QuantityRange(NEAR, bounds, unit)


def _haversine(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    one, other = math.radians(latitude), math.radians(other_latitude)
    across = math.radians(other_longitude - longitude)
    part = math.sin((other - one) / 2) ** 2 + math.cos(one) * math.cos(other) * math.sin(across / 2) ** 2
    return 2 * _RADIUS * math.asin(math.sqrt(min(1.0, part)))
