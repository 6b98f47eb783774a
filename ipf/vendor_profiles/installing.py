"""Archives in the folder of profiles: put one there, and take the one before back.

The former archive of the same name stays beside it as `NAME.previous`.  Each step replaces a file as a whole and is
durable when it returns: after a crash the folder has the archive from before or the new one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ipf.errors import Category, Problem
from ipf.vendor_profiles.archive import SUFFIXES

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)
_PREVIOUS = ".previous"


def check_name(name: str) -> None:
    """Problem VALUE unless the name is that of an archive in the folder."""
    if _NAME.fullmatch(name) is None or not name.endswith(SUFFIXES):
        text = f"a file is letters, digits, . _ - and ends with {', '.join(SUFFIXES)}"
        raise Problem(Category.VALUE, text, "file")


def has_previous(folder: Path, name: str) -> bool:
    """Whether there is an archive to roll back to."""
    return (folder / (name + _PREVIOUS)).is_file()


def put(folder: Path, name: str, content: bytes) -> None:
    """Put an archive into the folder; one of this name becomes the previous one.  Problem VALUE, UNAVAILABLE."""
    check_name(name)
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            _write(folder, name + _PREVIOUS, path.read_bytes())
        _write(folder, name, content)
    except OSError as error:
        raise _unwritable(folder, error) from None


def roll_back(folder: Path, name: str) -> None:
    """Exchange an archive with the previous one, so that a second call undoes the first.  Problem NOT_FOUND."""
    check_name(name)
    if not has_previous(folder, name):
        raise Problem(Category.NOT_FOUND, f"there is no previous archive of {name}", "file")
    path, previous = folder / name, folder / (name + _PREVIOUS)
    try:
        before, after = path.read_bytes() if path.is_file() else None, previous.read_bytes()
        _write(folder, name, after)
        if before is not None:
            _write(folder, previous.name, before)
    except OSError as error:
        raise _unwritable(folder, error) from None


def take_back(folder: Path, name: str) -> None:
    """Undo `put` for an archive that cannot be used: the one before returns, a first one goes."""
    path, previous = folder / name, folder / (name + _PREVIOUS)
    try:
        if previous.is_file():
            os.replace(previous, path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None


def _write(folder: Path, name: str, content: bytes) -> None:
    scratch = folder / f".{name}.new"
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, folder / name)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(folder: Path, error: OSError) -> Problem:
    text = f"{folder} cannot be written: {error.strerror}; the service needs write access to install profiles"
    return Problem(Category.UNAVAILABLE, text, "IPF_PROFILE_DIR")
