"""JSON Merge Patch: a parsed patch document in, a function on resources out.

Members of the patch replace those of the resource, objects are merged, null removes.  A list replaces the whole list.
The input document is never changed.

Source: RFC 7396
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipf.errors import Category, Problem


def merge_patch(patch: Any) -> Callable[[Any], Any]:
    """The patch that a parsed document describes.  Problem MALFORMED when it is no object: it would not patch."""
    if not isinstance(patch, dict):
        raise Problem(Category.MALFORMED, "a JSON Merge Patch of a resource is an object")
    return lambda document: _merged(document, patch)


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _merged(found.get(name), value)
    return found
