"""Archive of a profile: bytes in, files by name out; in memory only.

A tar file, plain or with gzip (`application/x-gtar`), with `manifest.yaml` at its root or in its only folder.  Refused
are links, devices, absolute names, `..`, repeated names, and archives that unpack to more than MOST_BYTES; unpacking
stops at that size.

Problem MALFORMED: no valid archive (400).  Problem TOO_LARGE: the archive or its content is too large (413).
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import IO

from ipf.errors import Category, Problem
from ipf.vendor_profiles.findings import Findings

MANIFEST = "manifest.yaml"
MOST_PACKED = 10 * 1024 * 1024
MOST_BYTES = 50 * 1024 * 1024
MOST_MEMBERS = 2000
LONGEST_NAME = 200
SUFFIXES = (".tar.gz", ".tgz", ".tar")

_PIECE = 256 * 1024
_ENTRIES = frozenset({MANIFEST, "README.md", "maps", "tests"})


@dataclass(frozen=True, slots=True)
class Archive:
    """`files`: content by name, such as `maps/a.fml`.  `digest`: SHA-256 of the archive."""

    files: dict[str, bytes]
    digest: str


def read_archive(content: bytes, findings: Findings) -> Archive:
    """Unpack into memory.  Problem MALFORMED or TOO_LARGE; other mistakes go into `findings`."""
    if len(content) > MOST_PACKED:
        raise Problem(Category.TOO_LARGE, f"the archive has more than {MOST_PACKED} bytes")
    plain = _unzipped(content) if content[:2] == b"\x1f\x8b" else content
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as tar:
            for number, member in enumerate(tar):
                if number >= MOST_MEMBERS:
                    raise Problem(Category.TOO_LARGE, f"the archive has more than {MOST_MEMBERS} members")
                _take(tar, member, files, findings)
    except (tarfile.TarError, EOFError, ValueError, OSError, UnicodeError) as error:
        raise Problem(Category.MALFORMED, f"this is no tar archive: {error}") from None
    return Archive(_rooted(files, findings), sha256(content).hexdigest())


def pack(folder: Path) -> bytes:
    """The archive of a folder with a manifest; the same folder gives the same bytes.  Problem REQUIRED without a
    manifest.
    """
    if not (folder / MANIFEST).is_file():
        raise Problem(Category.REQUIRED, f"there is no {MANIFEST} in {folder}")
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0) as plain,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if name.partition("/")[0] in _ENTRIES and path.is_file() and not path.name.startswith("."):
                content = path.read_bytes()
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), 0o644
                tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _unzipped(content: bytes) -> bytes:
    """Decompress in pieces, up to the limit."""
    source = zlib.decompressobj(wbits=31)
    pieces, size = [], 0
    waiting = content
    try:
        while not source.eof:
            piece = source.decompress(waiting, _PIECE)
            size += len(piece)
            if size > MOST_BYTES:
                raise Problem(Category.TOO_LARGE, f"the archive unpacks to more than {MOST_BYTES} bytes")
            waiting = source.unconsumed_tail
            if not piece and not waiting and not source.eof:
                raise Problem(Category.MALFORMED, "the archive ends in the middle")
            pieces.append(piece)
    except zlib.error as error:
        raise Problem(Category.MALFORMED, f"this is no gzip: {error}") from None
    return b"".join(pieces)


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, files: dict[str, bytes], findings: Findings) -> None:
    name = _clean(member.name)
    if name is None:
        findings.error(member.name[:LONGEST_NAME], "", "names must stay below the root of the archive")
    elif member.isdir() or name in ("", "pax_global_header"):
        return
    elif not member.isfile() or member.sparse is not None:
        findings.error(name, "", "only files and folders are taken: no links, devices or sparse files")
    elif name in files:
        findings.error(name, "", "is there twice")
    else:
        source: IO[bytes] | None = tar.extractfile(member)
        files[name] = source.read() if source is not None else b""


def _clean(name: str) -> str | None:
    """The name without `./`; None for an invalid name, or one outside the archive."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\x00" in name or len(name) > LONGEST_NAME:
        return None
    return "" if str(path) == "." else str(path)


def _rooted(files: dict[str, bytes], findings: Findings) -> dict[str, bytes]:
    """Names relative to the folder of the manifest; other files give warnings."""
    if MANIFEST not in files:
        tops = {name.partition("/")[0] for name in files}
        top = next(iter(tops)) if len(tops) == 1 else ""
        if top and f"{top}/{MANIFEST}" in files:
            files = {name.removeprefix(f"{top}/"): content for name, content in files.items()}
    for name in files:
        if name.partition("/")[0] not in _ENTRIES:
            findings.warning(name, "", "is not part of a profile and left alone")
    if "README.md" not in files:
        findings.warning("README.md", "", "there is none")
    return files
