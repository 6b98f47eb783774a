"""FHIR NPM packages (`.tgz`): profiles, value sets, code systems, maps and search parameters of an installation.

Input: a folder of packages (`IPF_PACKAGE_DIR`).  Output: a registry that finds a resource by canonical, with or
without version, and parses it on request.  Nothing is unpacked to disk.  A package is read once; resources are
indexed by type, id, url and version, and kept compressed, so a registry needs about the memory of its
archives.  A damaged package stops the load with Problem MALFORMED, which names archive and entry.  Sizes are
bounded; links and paths that lead out of the archive are refused.

Only the JSON resources directly in `package/` are read.  When two packages contain the same url and version,
the package with the newer version counts, then the later file name.

Source: https://confluence.hl7.org/display/FHIR/NPM+Package+Specification, https://hl7.org/fhir/R4/references.html#canonical
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.ports import Json

LARGEST_ENTRY = 64 * 1024 * 1024
LARGEST_PACKAGE = 1024 * 1024 * 1024
MOST_ENTRIES = 100_000

_FOLDER = "package/"
_NO_RESOURCES = frozenset(("package.json", ".index.json", ".index.db"))
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Entry:
    """One resource of a package.  `package`: `name#version`; `place`: archive and entry, for messages.

    `url`, `version`, `id`: empty when the resource has none.
    """

    resource_type: str
    id: str
    url: str
    version: str
    name: str
    package: str
    place: str
    digest: str
    _content: bytes = field(repr=False)

    def resource(self) -> Json:
        """The resource, parsed anew at each call; decimals keep their digits."""
        parsed: Json = loads(zlib.decompress(self._content))
        return parsed

    @property
    def canonical(self) -> str:
        """`url|version`, or the url alone."""
        return f"{self.url}|{self.version}" if self.version else self.url


@dataclass(frozen=True, slots=True)
class Package:
    """The content of `package.json`.  `dependencies`: name and version of required packages."""

    name: str
    version: str
    canonical: str
    fhir_versions: tuple[str, ...]
    dependencies: tuple[tuple[str, str], ...]
    file: str
    entries: tuple[Entry, ...] = field(repr=False)


class Packages:
    """All packages of an installation.  Immutable; a reload creates a new one."""

    def __init__(self, packages: Collection[Package] = ()) -> None:
        self.packages = tuple(packages)
        self._by_url: dict[str, list[Entry]] = {}
        self._by_id: dict[tuple[str, str], Entry] = {}
        for package in sorted(packages, key=lambda one: version_key(one.version)):
            for entry in package.entries:
                if entry.url:
                    self._by_url.setdefault(entry.url, []).append(entry)
                if entry.id:
                    self._by_id[entry.resource_type, entry.id] = entry
        for entries in self._by_url.values():
            entries.sort(key=lambda one: version_key(one.version))

    @classmethod
    def load(cls, folder: Path | None, types: Collection[str] | None = None) -> Packages:
        """Every `*.tgz` of a folder (None: none).  `types`: keep resources of these types only, to save memory.

        Problem MALFORMED names the faulty archive and entry, or the missing folder.
        """
        if folder is None:
            return cls()
        if not folder.is_dir():
            raise Problem(Category.MALFORMED, "is not a folder", str(folder))
        return cls([read_package(path, types) for path in sorted(folder.glob("*.tgz"))])

    def find(self, canonical: str, resource_type: str | None = None) -> Entry | None:
        """By `url`, or `url|version`; of several versions the newest.  `url|4.0` also finds `4.0.1`."""
        url, _, version = canonical.partition("|")
        for entry in reversed(self._by_url.get(url, ())):
            of_type = resource_type is None or entry.resource_type == resource_type
            if of_type and (not version or entry.version == version or entry.version.startswith(version + ".")):
                return entry
        return None

    def by_id(self, resource_type: str, resource_id: str) -> Entry | None:
        """By type and id, as in `GET StructureDefinition/us-core-patient`."""
        return self._by_id.get((resource_type, resource_id))

    def newest(self, resource_type: str) -> Iterator[Entry]:
        """The newest version of each canonical of one type."""
        for entries in self._by_url.values():
            of_type = [one for one in entries if one.resource_type == resource_type]
            if of_type:
                yield of_type[-1]


def read_package(path: Path, types: Collection[str] | None = None) -> Package:
    """One archive.  Problem MALFORMED names archive and entry."""
    found: list[tuple[str, bytes]] = []
    manifest: Any = None
    try:
        with tarfile.open(path, "r|gz") as archive:
            for name, data in _files(archive, path):
                if name == _FOLDER + "package.json":
                    manifest = _json(data, f"{path}: {name}")
                elif _is_resource(name):
                    found.append((name, data))
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise Problem(Category.MALFORMED, f"is not a readable package: {error}", str(path)) from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("name"), str):
        raise Problem(Category.MALFORMED, "has no package/package.json with a name", str(path))
    label = f"{manifest['name']}#{manifest.get('version', '')}"
    entries = (_entry(name, data, label, path, types) for name, data in found)
    return _package(manifest, path, tuple(one for one in entries if one is not None))


def version_key(version: str) -> tuple[tuple[int, ...], bool, tuple[tuple[int, int, str], ...]]:
    """The sort key of a version: 1.10 after 1.9, 2.0.0-ballot before 2.0.0, no version first."""
    release, _, preview = version.partition("+")[0].partition("-")
    numbers = tuple(int(number[:18]) for number in _NUMBER.findall(release))
    return numbers, not preview, tuple(_preview_key(part) for part in preview.split(".") if part)


def _preview_key(part: str) -> tuple[int, int, str]:
    return (0, int(part[:18]), "") if part.isascii() and part.isdigit() else (1, 0, part)


def _files(archive: tarfile.TarFile, path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the JSON files directly in `package/`, all within the bounds."""
    count = total = 0
    for member in archive:
        name = member.name.removeprefix("./")
        count, total = count + 1, total + max(member.size, 0)
        if count > MOST_ENTRIES or total > LARGEST_PACKAGE or member.size > LARGEST_ENTRY:
            raise Problem(Category.TOO_LARGE, "exceeds the size limit of a package", f"{path}: {name[:200]}")
        if name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", name) or "\0" in name:
            raise Problem(Category.MALFORMED, "leads out of the archive", f"{path}: {name[:200]}")
        if member.isdir():
            continue
        if not member.isreg():
            raise Problem(
                Category.MALFORMED, "is a link or device; a package may contain only files", f"{path}: {name[:200]}"
            )
        if _is_resource(name) or name == _FOLDER + "package.json":
            content = archive.extractfile(member)
            yield name, content.read() if content is not None else b""


def _is_resource(name: str) -> bool:
    plain = name.removeprefix(_FOLDER)
    return name.startswith(_FOLDER) and "/" not in plain and plain.endswith(".json") and plain not in _NO_RESOURCES


def _json(data: bytes, place: str) -> Any:
    try:
        return orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise Problem(
            Category.MALFORMED, f"is not JSON: {error.msg} at line {error.lineno} column {error.colno}", place
        ) from None


def _entry(name: str, data: bytes, label: str, path: Path, types: Collection[str] | None) -> Entry | None:
    """The resource of a file; None when its type is not requested."""
    place = f"{path}: {name}"
    head = _json(data, place)
    kind = head.get("resourceType") if isinstance(head, dict) else None
    if not isinstance(kind, str) or not kind:
        raise Problem(Category.MALFORMED, "is not a FHIR resource", place)
    if types is not None and kind not in types:
        return None
    id_, url, version, title = (_text(head, one, place) for one in ("id", "url", "version", "name"))
    return Entry(kind, id_, url, version, title, label, place, sha256(data).hexdigest(), zlib.compress(data, 1))


def _text(head: Json, name: str, place: str) -> str:
    """The text of a member that most conformance resources have; in others it may be a list (HumanName)."""
    value = head.get(name, "")
    if name == "id" and not isinstance(value, str):
        raise Problem(Category.MALFORMED, "has an id that is not a string", place)
    return value if isinstance(value, str) else ""


def _package(manifest: Json, path: Path, entries: tuple[Entry, ...]) -> Package:
    versions = manifest.get("fhirVersions") or manifest.get("fhir-version-list") or ()
    dependencies = manifest.get("dependencies") or {}
    return Package(
        manifest["name"],
        str(manifest.get("version", "")),
        str(manifest.get("canonical", "")),
        tuple(str(one) for one in versions) if isinstance(versions, list) else (),
        tuple((str(name), str(one)) for name, one in dependencies.items()) if isinstance(dependencies, dict) else (),
        path.name,
        entries,
    )
