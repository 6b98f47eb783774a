"""The entries of contained resources, for searches with `_contained`.

They are texts of the resource that contains them, under a code that no search parameter has, so that no other search
meets them: `Type LF id` for each contained resource, and `Type.code LF value` for each of its text entries.  Dates and
quantities have no such entries: a search by them reads the resources that contain the type.

Source: https://hl7.org/fhir/R4/search.html#contained
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ipf.fhir.index.entries import clean, is_text_code
from ipf.fhir.index.lastn import LASTN
from ipf.ports.queries.index import TextEntry

CONTAINED = "$contained"  # no code of a search parameter
SEPARATOR = "\n"


def contained_in(resource: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The contained resources; what has no type is left out, as is what these contain, which R4 forbids."""
    found = resource.get("contained")
    for one in found if type(found) is list else ():
        if type(one) is dict and type(one.get("resourceType")) is str:
            yield {name: value for name, value in one.items() if name != "contained"} if "contained" in one else one


def contained_value(resource_type: str, code: str, value: str) -> str:
    """The text of an entry; without a code that of the resource itself, and `value` is its id."""
    return f"{resource_type}.{code}{SEPARATOR}{value}" if code else f"{resource_type}{SEPARATOR}{clean(value)}"


def contained_entries(contained: dict[str, Any], texts: frozenset[TextEntry]) -> Iterator[TextEntry]:
    """The entries of the container for one contained resource, which has these texts."""
    kind, id = contained["resourceType"], contained.get("id")
    yield CONTAINED, contained_value(kind, "", id if type(id) is str else "")
    for code, value in texts:
        if code != LASTN and not is_text_code(code):
            yield CONTAINED, contained_value(kind, code, value)
