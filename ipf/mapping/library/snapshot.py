"""The maps that were accepted last, as a copy that stays as it is while people edit the folder.

What arrives: a folder of maps.  What leaves: `current`, a link to the copy that compiled.  Converter processes read
that copy, so one that is started again in the middle of an edit maps as the others do; and what is installed over HTTP
is compiled with it, not with half an edit.  The copy belongs to one process and goes with it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ipf.mapping.library.maps import Library

_KINDS = (".fml", ".json")


class MapSnapshot:
    """`live`: the folder that people edit.  `root`: where the copies go, for this process alone (`maps-<pid>`)."""

    def __init__(self, live: Path, root: Path) -> None:
        self._live = live
        self._root = root.resolve()
        self._number = 0
        self.current = self._root / "current"
        for left in self._root.parent.glob("maps-*"):
            if not Path("/proc", left.name.removeprefix("maps-")).exists():  # of a process that was killed
                shutil.rmtree(left, ignore_errors=True)
        shutil.rmtree(self._root, ignore_errors=True)
        self._root.mkdir(parents=True)

    def build(self, load: Callable[[Path], Library], *, fresh: bool) -> Library:
        """The library of the copy in use; `fresh`: of the folder as it is now, which then is the copy in use.

        Problem: something of it is broken, and the copy in use stays.
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
        """The process ends."""
        shutil.rmtree(self._root, ignore_errors=True)

    def _publish(self, copy: Path) -> None:
        """Let the link point at the copy; the one before stays for those who are reading it."""
        before = self.current.resolve() if self.current.exists() else None
        link = self._root / "next"
        link.symlink_to(copy.name)
        os.replace(link, self.current)
        for old in self._root.iterdir():
            if old.is_dir() and not old.is_symlink() and old not in (copy, before):
                shutil.rmtree(old, ignore_errors=True)


def _others(folder: str, names: list[str]) -> set[str]:
    """What is no map or table."""
    return {name for name in names if not name.endswith(_KINDS) and not Path(folder, name).is_dir()}
