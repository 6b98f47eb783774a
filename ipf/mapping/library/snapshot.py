"""A copy of the map folder as it was accepted last.

What arrives: a folder of maps.  What leaves: `current`, a symbolic link to the copy that compiled.  Converter processes
and installations over HTTP use the copy, so an unfinished edit of the folder does not reach them.  The copy belongs to
one process, which removes it at its end.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ipf.mapping.library.maps import Library

_KINDS = (".fml", ".json")


class MapSnapshot:
    """`live`: the folder that operators edit.  `root`: folder of this process for copies (`maps-<pid>`)."""

    def __init__(self, live: Path, root: Path) -> None:
        self._live = live
        self._root = root.resolve()
        self._number = 0
        self.current = self._root / "current"
        for left in self._root.parent.glob("maps-*"):
            if not Path("/proc", left.name.removeprefix("maps-")).exists():  # its process does not run
                shutil.rmtree(left, ignore_errors=True)
        shutil.rmtree(self._root, ignore_errors=True)
        self._root.mkdir(parents=True)

    def build(self, load: Callable[[Path], Library], *, fresh: bool) -> Library:
        """The library of the copy in use; `fresh`: of the current folder, whose copy then is in use.

        Problem: a file is broken, and the copy in use stays.
        """
        if not fresh and self.current.exists():
            return load(self.current.resolve())
        self._number += 1
        copy = self._root / str(self._number)
        shutil.copytree(self._live, copy, ignore=_others)
        try:
            library = load(copy)
        except BaseException:
            shutil.rmtree(copy, ignore_errors=True)
            raise
        self._publish(copy)
        return library

    def remove(self) -> None:
        """Remove the copies when the process ends."""
        shutil.rmtree(self._root, ignore_errors=True)

    def _publish(self, copy: Path) -> None:
        """Switch the link to the copy; the previous copy stays for current readers."""
        before = self.current.resolve() if self.current.exists() else None
        link = self._root / "next"
        link.symlink_to(copy.name)
        os.replace(link, self.current)
        for old in self._root.iterdir():
            if old.is_dir() and not old.is_symlink() and old not in (copy, before):
                shutil.rmtree(old, ignore_errors=True)


def _others(folder: str, names: list[str]) -> set[str]:
    """Files that are neither maps nor tables."""
    return {name for name in names if not name.endswith(_KINDS) and not Path(folder, name).is_dir()}
