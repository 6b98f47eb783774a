"""The style sheets, scripts and icons of the pages.

A URL contains the hash of the content (`/static/console.1f3a9c0b.css`), so that a browser keeps it for a year and takes
the new one at once.  All files are read and compressed once, at start; nothing else is served.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request

_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_FOR_A_YEAR = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file: its media type, its bytes as they are and compressed."""

    kind: str
    plain: bytes
    packed: bytes


class StaticFiles:
    """All files below `ipf/console/html/static`."""

    def __init__(self) -> None:
        self._files: dict[str, StaticFile] = {}
        self._urls: dict[str, str] = {}
        self._add(files("ipf.console") / "static", PurePosixPath())

    def _add(self, folder: Traversable, path: PurePosixPath) -> None:
        for entry in folder.iterdir():
            place = path / entry.name
            if entry.is_dir():
                self._add(entry, place)
            elif place.suffix in _KINDS:
                content = entry.read_bytes()
                hashed = str(place.with_suffix(f".{sha256(content).hexdigest()[:12]}{place.suffix}"))
                self._urls[str(place)] = f"/static/{hashed}"
                self._files[hashed] = StaticFile(_KINDS[place.suffix], content, gzip.compress(content, 9, mtime=0))

    def url(self, name: str) -> str:
        """The URL of a file, such as `console.css`.  KeyError when there is none."""
        return self._urls[name]

    async def answer(self, request: Request) -> Answer:
        """One file.  Problem NOT_FOUND."""
        found = self._files.get("/".join(request.path[1:]))
        if found is None:
            raise Problem(Category.NOT_FOUND, "there is no such file")
        headers = [
            ("Cache-Control", _FOR_A_YEAR),
            ("Vary", "Accept-Encoding"),
            ("Content-Security-Policy", "default-src 'none'"),
        ]
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Answer(200, found.packed, [*headers, ("Content-Encoding", "gzip")], found.kind)
        return Answer(200, found.plain, headers, found.kind)
