"""Secrets from files: the file that `NAME_FILE` names, or the systemd credential `NAME`.

What arrives: environment variables and the names of those that hold secrets.  What leaves: the environment with the
contents of the files added, without the line break at the end.  The variable takes precedence over its file, the file
over the credential.  An empty or unreadable file is an error that names variable and path: a missing secret would leave
the service unprotected.

Source: https://systemd.io/CREDENTIALS/ (`$CREDENTIALS_DIRECTORY`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

SUFFIX = "_FILE"
CREDENTIALS = "CREDENTIALS_DIRECTORY"


class UnreadableSecret(Exception):
    """A secret file that cannot be read.  The text names the variable and the path, never the content."""


def with_secret_files(environ: Mapping[str, str], names: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """The environment with the secrets from files, and warnings."""
    found, warnings = dict(environ), []
    for name in names:
        path = _path(environ, name)
        if path is None:
            continue
        if environ.get(name, "").strip():
            warnings.append(f"{name} is set, so {path} is not read")
            continue
        found[name] = _content(name, path)
        if _is_open(path):
            warnings.append(f"{path}, which holds {name}, is readable by every user of this host")
    return found, warnings


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    named = environ.get(name + SUFFIX, "").strip()
    if named:
        return Path(named)
    folder = environ.get(CREDENTIALS, "").strip()
    credential = Path(folder, name) if folder else None
    return credential if credential is not None and credential.is_file() else None


def _content(name: str, path: Path) -> str:
    try:
        text = path.read_text("utf-8").rstrip("\r\n")
    except (OSError, ValueError) as failed:
        reason = (failed.strerror or "cannot be read") if isinstance(failed, OSError) else "is not UTF-8"
        raise UnreadableSecret(f"{name}{SUFFIX}: {path}: {reason}") from None
    if not text.strip():
        raise UnreadableSecret(f"{name}{SUFFIX}: {path} is empty")
    return text


def _is_open(path: Path) -> bool:
    return bool(os.stat(path).st_mode & stat.S_IROTH)
