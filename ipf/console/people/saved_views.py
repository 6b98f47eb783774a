"""Saved views: names that people give to filters and columns of a list, kept for each person.

What arrives: the id of a person, the list, a name, the query of the URL.  They are one small JSON file in
IPF_UI_DATA_DIR, written whole: a crash leaves the file of before or the new one.  Without that setting they last until
the console stops.  Queries may name patients, so the file is readable by the console's user only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads

MOST, LONGEST_NAME, LONGEST_QUERY = 50, 80, 2000
FILE = "saved-views.json"


@dataclass(frozen=True, slots=True)
class SavedView:
    """One view of the list `area`.  `query`: of its URL."""

    area: str
    name: str
    query: str


class SavedViews:
    """`folder`: None = they are not kept.  Problem when the file cannot be read, so that it is never overwritten."""

    def __init__(self, folder: str | None) -> None:
        self._path = None if folder is None else Path(folder, FILE)
        self._views = self._read()

    def of(self, person: str, area: str) -> list[SavedView]:
        """The views of a person of one list, by name."""
        found = (one for one in self._views.get(person, ()) if one.area == area)
        return sorted(found, key=lambda one: one.name.lower())

    def save(self, person: str, view: SavedView) -> None:
        """Keep a view; it replaces the one of the same list and name.  Problem VALUE, UNAVAILABLE."""
        if not view.name or len(view.name) > LONGEST_NAME or not view.name.isprintable():
            raise Problem(Category.VALUE, f"the name of a view has 1 to {LONGEST_NAME} printable characters")
        if len(view.query) > LONGEST_QUERY:
            raise Problem(Category.VALUE, "the filters of this view are too long to be saved")
        kept = [one for one in self._views.get(person, ()) if (one.area, one.name) != (view.area, view.name)]
        if len(kept) >= MOST:
            raise Problem(Category.VALUE, f"a person has at most {MOST} saved views: remove one first")
        self._replace(person, [*kept, view])

    def remove(self, person: str, area: str, name: str) -> None:
        """Remove a view, if there is one.  Problem UNAVAILABLE."""
        self._replace(person, [one for one in self._views.get(person, ()) if (one.area, one.name) != (area, name)])

    def _replace(self, person: str, views: list[SavedView]) -> None:
        changed = {**self._views, person: views}
        self._write(changed)
        self._views = changed

    def _read(self) -> dict[str, list[SavedView]]:
        if self._path is None or not self._path.exists():
            return {}
        try:
            found = loads(self._path.read_bytes())
            return {person: [SavedView(**one) for one in views] for person, views in found.items()}
        except (OSError, Problem, TypeError, AttributeError) as failed:
            text = f"{self._path} cannot be read: {failed}"
            raise Problem(Category.UNAVAILABLE, text, "IPF_UI_DATA_DIR") from None

    def _write(self, views: dict[str, list[SavedView]]) -> None:
        if self._path is None:
            return
        shown = {
            person: [{"area": one.area, "name": one.name, "query": one.query} for one in each]
            for person, each in views.items()
            if each
        }
        fresh = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(dumps(shown))
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self._path)
        except OSError as failed:
            raise Problem(
                Category.UNAVAILABLE, f"the view is not saved: {failed.strerror}", "IPF_UI_DATA_DIR"
            ) from None
