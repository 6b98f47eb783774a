"""Which maps have compiled without a mistake, remembered between starts.

To compile every map takes seconds of processor time, in each converter process.  The process that has done it without
finding a mistake writes a digest to `maps-checked` in the data folder.  A process that starts with the same maps,
definitions, settings and program compiles a map when its first message comes.  The file holds no code: when it is
missing, cannot be read or has another digest, all maps are compiled before anything is accepted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import ipf
from ipf.config.paths import folder
from ipf.config.settings import Settings
from ipf.fhir.model.json import dumps
from ipf.ports import InstalledMap


class CheckedMaps:
    """The maps of a process.  `are_known`: those that were looked up last have compiled without a mistake."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._path = Path(settings.data_dir, "maps-checked")
        self._digest = ""
        self.are_known = False

    def look_up(self, installed: Sequence[InstalledMap], maps: Path) -> bool:
        """Whether these maps are known.  `maps`: the folder; `installed`: those that were installed over HTTP."""
        self._digest = _digest(self._settings, installed, maps)
        try:
            self.are_known = self._path.read_text(encoding="utf-8").strip() == self._digest
        except (OSError, UnicodeDecodeError):
            self.are_known = False
        return self.are_known

    def note(self) -> None:
        """They have compiled.  Where this cannot be written, the next process compiles them again."""
        if self.are_known:
            return
        unfinished = self._path.with_name(f"{self._path.name}-{os.getpid()}")
        with suppress(OSError):
            unfinished.write_text(self._digest + "\n", encoding="utf-8")
            os.replace(unfinished, self._path)
        self.are_known = True


def installed_digest(installed: Sequence[InstalledMap]) -> bytes:
    """A digest of the maps that were installed over HTTP."""
    digest = blake2b(digest_size=16)
    for one in installed:
        digest.update(dumps([one.resource_type, one.id, one.url, one.resource]))
    return digest.digest()


def _digest(settings: Settings, installed: Sequence[InstalledMap], maps: Path) -> str:
    """Of all that decides whether a map compiles: maps, tables, packages, settings, and the program itself."""
    digest = blake2b(digest_size=16)
    for path in _files(maps):
        digest.update(f"{path.relative_to(maps)}\n".encode() + path.read_bytes())
    digest.update(installed_digest(installed))
    for root in (
        Path(ipf.__file__).parent,
        folder("fhir"),
        *([Path(settings.package_dir)] if settings.package_dir else []),
    ):
        for path in _files(root):
            found = path.stat()
            digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    identity = Path(settings.identity_file).read_bytes() if settings.identity_file else b""
    facts = (settings.default_zone, settings.generic_map, settings.mapping_url, settings.without_patient_types)
    digest.update(repr((sys.version, ipf.__version__, *facts)).encode() + identity)
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    """The files below a folder in a fixed order, without what Python compiles from them."""
    for place, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (Path(place, name) for name in sorted(names))
