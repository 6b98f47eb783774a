"""`manifest.json` of a backup: what is in it, and what a restored database must hold.

It is written last, so a folder without one is no complete backup.  It holds no secret and no data of a patient.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from ipf.errors import Category, Problem
from ipf.store.backup.content import Block

NAME = "manifest.json"
FORMAT = 1
KINDS = ("ipf", "fhir")
_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class DumpedDatabase:
    """One database.  `server`: version of PostgreSQL; `schema`: number of the last migration; `tables`: rows."""

    file: str
    bytes: int
    sha256: str
    server: str
    server_major: int
    dump_major: int
    schema: int
    lsn: str
    tables: dict[str, int]


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file beside the dumps.  `path`: below the folder of the backup; `source`: where it was."""

    path: str
    source: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A backup.  `at`: the consistent point, ISO 8601; `held_ms`: how long the inbox took no messages for it.

    `retention_days`, `remote_fhir`: the settings that say which delivered messages may lack a receipt.
    """

    ipf: str
    at: str
    held_ms: float
    databases: dict[str, DumpedDatabase]
    messages: list[Block]
    audit_keys: list[str]
    files: list[CopiedFile]
    settings: dict[str, Any]
    retention_days: int
    remote_fhir: bool

    @property
    def count(self) -> int:
        """Number of messages."""
        return sum(block.rows for block in self.messages)

    @property
    def highest_id(self) -> int:
        """Highest id of a message; 0 when there is none."""
        return max((block.last for block in self.messages), default=0)


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest so that it is there as a whole or not at all."""
    content = {"format": FORMAT, "count": manifest.count, "highest_id": manifest.highest_id, **asdict(manifest)}
    content["messages"] = [list(block) for block in manifest.messages]
    store(folder / NAME, orjson.dumps(content, option=orjson.OPT_INDENT_2))


def store(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 under another name, bring it to the disk, and give it its name."""
    draft = path.with_name(f"{path.name}.part")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(folder: Path) -> Manifest:
    """The manifest of a folder.  Problem VALUE when it is no complete backup, or one of a later release."""
    try:
        content = orjson.loads((folder / NAME).read_bytes())
        if content["format"] != FORMAT:
            text = f"{folder}: made by ipf {content['ipf']} in format {content['format']}, this is format {FORMAT}"
            raise Problem(Category.VALUE, f"{text}: use that release")
        fields = {name: content[name] for name in Manifest.__dataclass_fields__}
        fields["databases"] = {kind: DumpedDatabase(**content["databases"][kind]) for kind in KINDS}
        fields["messages"] = [Block(*block) for block in content["messages"]]
        fields["files"] = [CopiedFile(**one) for one in content["files"]]
        return Manifest(**fields)
    except FileNotFoundError:
        text = f"{folder} has no {NAME}: it is no backup, or one that was broken off; take another one"
        raise Problem(Category.VALUE, text) from None
    except OSError as error:
        raise Problem(Category.VALUE, f"{folder / NAME} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as wrong:
        raise Problem(Category.VALUE, f"{folder / NAME} cannot be read: {wrong}") from None


def check_files(folder: Path, manifest: Manifest) -> None:
    """Problem VALUE names each file that is missing, truncated or changed."""
    found = []
    for path, size, digest in [
        *((one.file, one.bytes, one.sha256) for one in manifest.databases.values()),
        *((one.path, one.bytes, one.sha256) for one in manifest.files),
    ]:
        try:
            actual = (folder / path).stat().st_size
            if actual != size:
                found.append(f"{path} has {actual} bytes, not {size}")
            elif sha256_of(folder / path) != digest:
                found.append(f"{path} has another SHA-256")
        except OSError as error:
            found.append(f"{path}: {error.strerror}")
    if found:
        raise Problem(Category.VALUE, f"{folder} is damaged: {'; '.join(found)}: use another backup")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
