"""Maps that were installed over HTTP: read, and set aside when they no longer compile.

What arrives: the stored resources, and a library with all maps.  What leaves: in the library, the Problem of each map
that is broken.  A map that an earlier version accepted may have a mistake for this one.  It does not stop the service
nor other maps: whoever uses it gets its mistake with file, line and column.  A mistake in the folder of maps is raised,
as there is always someone who has just edited it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ipf.errors import Category, Problem
from ipf.mapping.language.grammar import parse, parse_header
from ipf.mapping.language.model import StructureMap
from ipf.mapping.language.structuremap import from_json
from ipf.mapping.library.definitions import installed_place
from ipf.mapping.library.map_files import Maps, types_of
from ipf.ports import InstalledMap

SOURCE_TEXT = "urn:ipf:StructureDefinition/fml-source"
"""Extension of a StructureMap that was installed as text: the text."""


class Checkable(Protocol):
    """A library, as far as it is checked here.  `broken`: the Problem of each map that cannot be used, by canonical."""

    broken: dict[str, Problem]

    def check(self, canonical: str) -> None:
        """Compile a map, with the groups that nothing calls.  Problem MAPPING, UNMAPPED."""


def add_installed(installed: Iterable[InstalledMap], maps: Maps, types: dict[str, str]) -> dict[str, Problem]:
    """Add the maps and their message types; returns the Problem of each one that cannot be read.

    Such a map stays away with all that it replaces: another map in its place would make other results.
    """
    unreadable: dict[str, Problem] = {}
    for one in installed:
        if one.resource_type != "StructureMap":
            continue
        place = installed_place(one)
        try:
            content = installed_map(one.resource, place)
        except Problem as problem:
            unreadable[one.url] = problem
            maps.discard(one.url)
            types |= dict.fromkeys(_types_in_header(one.resource, place), one.url)
        else:
            maps.add(content.url, content)
            types |= dict.fromkeys(types_of(content), content.url)
    return unreadable


def installed_map(resource: Mapping[str, Any], place: str) -> StructureMap:
    """A StructureMap resource as a map; from its source text, if it has one, so that lines are known."""
    text = source_text(resource)
    return from_json(resource, place) if text is None else parse(text, place)


def source_text(resource: Mapping[str, Any]) -> str | None:
    """The text that a StructureMap was installed as; None when it was no text."""
    texts = (one.get("valueString") for one in resource.get("extension", ()) if one.get("url") == SOURCE_TEXT)
    text = next(texts, None)
    return text if isinstance(text, str) else None


def _types_in_header(resource: Mapping[str, Any], place: str) -> list[str]:
    text = source_text(resource)
    try:
        return [] if text is None else types_of(parse_header(text, place))
    except Problem:
        return []


def check_installed(library: Checkable, installed: Sequence[InstalledMap]) -> None:
    """Compile the installed maps that can be read, and set aside those that are broken."""
    for one in installed:
        if one.resource_type == "StructureMap" and one.url not in library.broken:
            try:
                library.check(one.url)
            except Problem as problem:
                library.broken[one.url] = problem


def check_folder(
    library: Checkable, urls: Iterable[str], installed: Sequence[InstalledMap], alone: Callable[[], Checkable]
) -> None:
    """Compile maps of the folder.  Problem: one is broken, also without the maps that were installed over HTTP.

    `alone`: the same library without them.
    """
    without: Checkable | None = None
    for url in urls:
        if url in library.broken:
            continue
        try:
            library.check(url)
        except Problem as problem:
            if not installed:
                raise
            without = without or alone()
            without.check(url)
            library.broken[url] = problem


def newly_broken(before: Mapping[str, Problem], after: Mapping[str, Problem]) -> Problem | None:
    """The first mistake of a map that was not broken before."""
    return next((problem for url, problem in after.items() if url not in before), None)


def as_rows(broken: Mapping[str, Problem]) -> list[list[str | None]]:
    """Broken maps as JSON, for another process."""
    return [[url, one.category.name, one.text, one.place] for url, one in broken.items()]


def from_rows(rows: Iterable[Sequence[Any]]) -> dict[str, Problem]:
    """The inverse of `as_rows`."""
    return {url: Problem(Category[category], text, place) for url, category, text, place in rows}
