"""The single steps of a fast path: reading one JSON property of one object or of many.

Each maker returns a function `json -> list`.  `root`: the step reads the focus itself, so no list of sources is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Fast = Callable[[Any], list[Any]]


def read(source: Fast, root: bool, key: str, many: bool) -> Fast:
    """A structure."""
    if root:
        return _first_list(key) if many else _first_object(key)
    return _next_lists(source, key) if many else _next_objects(source, key)


def _first_list(key: str) -> Fast:
    def run(json: Any) -> list[Any]:
        found = json.get(key)
        if found is None:
            return []
        if type(found) is not list or None in found:
            raise TypeError(key)
        return found[:]

    return run


def _first_object(key: str) -> Fast:
    def run(json: Any) -> list[Any]:
        found = json.get(key)
        if found is None:
            return []
        if type(found) is not dict:
            raise TypeError(key)
        return [found]

    return run


def _next_lists(source: Fast, key: str) -> Fast:
    def run(json: Any) -> list[Any]:
        found: list[Any] = []
        for each in source(json):
            values = each.get(key)
            if values is not None:
                if type(values) is not list or None in values:
                    raise TypeError(key)
                found += values
        return found

    return run


def _next_objects(source: Fast, key: str) -> Fast:
    def run(json: Any) -> list[Any]:
        found: list[Any] = []
        for each in source(json):
            value = each.get(key)
            if value is not None:
                if type(value) is not dict:
                    raise TypeError(key)
                found.append(value)
        return found

    return run


def leaf(source: Fast, root: bool, key: str, many: bool, exact: bool) -> Fast:
    """A primitive.  `exact`: raise when one has extensions, since it counts even without a value."""
    sibling = "_" + key
    if many:
        return _leaf_lists(source, key, sibling, exact)
    return _first_leaf(key, sibling, exact) if root else _next_leaves(source, key, sibling, exact)


def _first_leaf(key: str, sibling: str, exact: bool) -> Fast:
    def run(json: Any) -> list[Any]:
        value = json.get(key)
        kind = type(value)
        if kind is list or kind is dict or (exact and sibling in json):
            raise TypeError(key)
        return [] if value is None else [value]

    return run


def _next_leaves(source: Fast, key: str, sibling: str, exact: bool) -> Fast:
    def run(json: Any) -> list[Any]:
        found: list[Any] = []
        for each in source(json):
            value = each.get(key)
            if value is not None:
                if type(value) is list:
                    raise TypeError(key)
                found.append(value)
            if exact and sibling in each:
                raise TypeError(key)
        return found

    return run


def _leaf_lists(source: Fast, key: str, sibling: str, exact: bool) -> Fast:
    def run(json: Any) -> list[Any]:
        found: list[Any] = []
        for each in source(json):
            values = each.get(key)
            if values is not None:
                if type(values) is not list or None in values:
                    raise TypeError(key)
                found += values
            if exact and sibling in each:
                raise TypeError(key)
        return found

    return run


def read_choice(source: Fast, choices: Mapping[str, str]) -> Fast:
    """An element with a choice of types: the property that is present."""

    def run(json: Any) -> list[Any]:
        found: list[Any] = []
        for each in source(json):
            for key in each:
                if key in choices:
                    if type(each[key]) is list or each[key] is None:
                        raise TypeError(key)
                    found.append(each[key])
        return found

    return run
