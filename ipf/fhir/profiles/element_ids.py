"""The ids of elements of a StructureDefinition that was written without them.

The id of an element is its path with the names of the slices that it is in: `Patient.identifier:mrn.system`.  Without
ids the order tells: an element belongs to the slice of its parent that came last.

Source: https://hl7.org/fhir/R4/elementdefinition.html#id
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]


def with_ids(elements: Sequence[Json]) -> list[Json]:
    """The elements, each with an id; ids that are there stay."""
    if all("id" in one for one in elements):
        return list(elements)
    current: dict[str, str] = {}  # path -> id of the element or slice that came last
    found = []
    for element in elements:
        path = element["path"]
        id = element.get("id") or _own_id(element, path, current)
        current = {one: known for one, known in current.items() if not one.startswith(path + ".")}
        current[path] = id
        found.append({**element, "id": id})
    return found


def _own_id(element: Json, path: str, current: dict[str, str]) -> str:
    head, dot, name = path.rpartition(".")
    slice_name = element.get("sliceName")
    own = f"{name}:{slice_name}" if slice_name and slice_name != name else name
    return f"{_id_of_path(head, current)}.{own}" if dot else own


def _id_of_path(path: str, current: dict[str, str]) -> str:
    """The id of the element with this path that came last, whether or not it was listed."""
    if path in current or "." not in path:
        return current.get(path, path)
    head, _, name = path.rpartition(".")
    return f"{_id_of_path(head, current)}.{name}"
