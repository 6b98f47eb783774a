"""Installs the clients once, under the temporary folder, and says how each is run.

`.ci/run` installs npm, Maven and a JDK.  Where they are not, or a registry is not reached, the client is skipped.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import playwright

from tests.waiting import PATIENCE

FOLDER = Path(__file__).parent
NODE = Path(playwright.__file__).with_name("driver") / "node"
"""Playwright brings a node of its own, which is newer than that of Debian 12: the clients need 20."""
JAVA = ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

Install = Callable[[Path], Sequence[Sequence[str]]]
"""The commands that install into a folder."""


def _maven(folder: Path) -> Sequence[Sequence[str]]:
    pom = str(FOLDER / "pom.xml")
    return [["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]]


def _npm(folder: Path) -> Sequence[Sequence[str]]:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(FOLDER / name, folder)
    return [["npm", "ci", "--no-audit", "--no-fund", "--silent"]]


def _pip(folder: Path) -> Sequence[Sequence[str]]:
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q", "--require-hashes", "-r", str(FOLDER / "requirements.txt")]
    return [[sys.executable, "-m", "venv", str(folder)], install]


_KINDS: dict[str, tuple[str, Install, tuple[str, ...]]] = {
    "maven": ("pom.xml", _maven, ("mvn", "javac")),
    "npm": ("package-lock.json", _npm, ("npm",)),
    "pip": ("requirements.txt", _pip, ()),
}
CLIENTS = {
    "HAPI": "maven",
    "fhirpy": "pip",
    "fhirclient": "pip",
    "fhir-kit": "npm",
    "Medplum": "npm",
}
"""The clients, by what installs them."""
_SCRIPTS = {"HAPI": "HapiSteps.java", "fhirpy": "fhirpy_steps.py", "fhirclient": "fhirclient_steps.py",
            "fhir-kit": "fhir_kit.mjs", "Medplum": "medplum.mjs"}  # fmt: skip


@cache
def place(kind: str) -> Path | None:
    """The folder with what is installed; None when it cannot be."""
    lock, install, programs = _KINDS[kind]
    digest = sha256((FOLDER / lock).read_bytes()).hexdigest()[:8]
    found = Path(tempfile.gettempdir()) / f"ipf-clients-{kind}-{os.getuid()}-{digest}"
    with found.with_suffix(".lock").open("w") as waiting:
        fcntl.flock(waiting, fcntl.LOCK_EX)  # tests run in several processes
        if not (found / ".complete").exists():
            shutil.rmtree(found, ignore_errors=True)
            if any(shutil.which(one) is None for one in programs) or not _installed(found, install):
                return None
        return found


def _installed(folder: Path, install: Install) -> bool:
    """Whether the commands succeeded.  The folder keeps its name: a virtual environment cannot be moved."""
    folder.mkdir()
    try:
        for command in install(folder):
            subprocess.run(command, check=True, timeout=12 * PATIENCE, capture_output=True, cwd=folder)
    except (subprocess.SubprocessError, OSError):
        shutil.rmtree(folder, ignore_errors=True)
        return False
    (folder / ".complete").touch()
    return True


def command(client: str) -> list[str] | None:
    """The program of a client, which takes the base URL; None when it is not installed."""
    folder = place(CLIENTS[client])
    if folder is None:
        return None
    script = FOLDER / _SCRIPTS[client]
    if CLIENTS[client] == "maven":
        return [*JAVA, "-cp", f"{folder}/*", str(script)]
    if CLIENTS[client] == "pip":
        return [str(folder / "bin" / "python"), str(script)]
    for one in FOLDER.glob("*.mjs"):  # an import is searched beside the file
        shutil.copy(one, folder)
    return [str(NODE), str(folder / script.name)]
