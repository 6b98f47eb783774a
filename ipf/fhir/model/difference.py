"""The differences of two resources: paths, with both values.

`meta.versionId` and `meta.lastUpdated` are ignored, since the server sets them.  Lists are compared by index.  Paths
are FHIRPath: `Patient.name[0].given[1]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MOST = 200

_ABSENT = object()
_SERVERS = frozenset(("versionId", "lastUpdated"))


def differences(stored: Any, other: Any, path: str, most: int = MOST) -> list[dict[str, Any]]:
    """`{"path", "stored", "replayed"}` of each difference, at most `most`; an absent value is null."""
    found: list[dict[str, Any]] = []
    for place, one, two in _compare(_plain(stored), _plain(other), path):
        if len(found) >= most:
            break
        found.append({"path": place, "stored": _shown(one), "replayed": _shown(two)})
    return found


def _plain(resource: Any) -> Any:
    """The resource without the elements that the server sets."""
    if not isinstance(resource, dict) or not isinstance(resource.get("meta"), dict):
        return resource
    meta = {name: value for name, value in resource["meta"].items() if name not in _SERVERS}
    rest = {name: value for name, value in resource.items() if name != "meta"}
    return rest | {"meta": meta} if meta else rest


def _compare(one: Any, two: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(two, dict):
        for name in sorted(one.keys() | two.keys()):
            yield from _compare(one.get(name, _ABSENT), two.get(name, _ABSENT), f"{path}.{name}")
    elif isinstance(one, list) and isinstance(two, list):
        for place in range(max(len(one), len(two))):
            first = one[place] if place < len(one) else _ABSENT
            second = two[place] if place < len(two) else _ABSENT
            yield from _compare(first, second, f"{path}[{place}]")
    elif one is _ABSENT or two is _ABSENT or one != two:
        yield path, one, two


def _shown(value: Any) -> Any:
    return None if value is _ABSENT else value
