"""The profiles that were accepted last, as copies of their archives that stay while people change the folder.

What arrives: `IPF_PROFILE_DIR`, a folder of archives.  What leaves: a `Shelf` for a library, and what was skipped and
why.  A broken archive replaces nothing: the one of the same name that was accepted before stays in use, and what is in
use goes before what is new and wants the same messages.  A profile in use that no longer compiles with other general
maps refuses those maps instead of disappearing.

Converter processes read the copies (`current`, a link), so they always have what the main process accepted.  Used from
threads, one at a time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from twisted.logger import Logger

from ipf.errors import Category, Problem
from ipf.mapping.library.maps import Library
from ipf.ports import Json
from ipf.vendor_profiles.archive import SUFFIXES
from ipf.vendor_profiles.findings import Finding, Findings
from ipf.vendor_profiles.profile import Checked, Profile, check_profile
from ipf.vendor_profiles.registry import Shelf, Site, conflicts

log = Logger(namespace="ipf.vendor_profiles")


@dataclass(frozen=True, slots=True)
class Skipped:
    """An archive that is not used.  `kept`: the version that was accepted before stays in use."""

    file: str
    findings: tuple[Finding, ...]
    kept: str | None = None

    def as_json(self) -> Json:
        """As the admin API shows it."""
        return {"file": self.file, "kept": self.kept, "problems": [one.as_json() for one in self.findings]}

    def __str__(self) -> str:
        errors = [one for one in self.findings if one.severity == "error"]
        return f"{self.file}: {'; '.join(map(str, errors[:5]))}"


@dataclass(slots=True)
class ProfileFolder:
    """`live`: the folder that people edit.  `root`: where copies go, of this process alone; None: nowhere.

    Without `root` the archives are what another process accepted: all of them must be usable, since a message of a
    profile must never be converted without it.
    """

    live: Path
    site: Site
    root: Path | None = None
    skipped: tuple[Skipped, ...] = ()
    warnings: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    _accepted: dict[str, bytes] = field(default_factory=dict)
    _made: dict[str, tuple[object, bytes, Checked]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _number: int = 0

    @property
    def current(self) -> Path:
        """The copies in use."""
        return (self.root or self.live) / "current"

    def build(self, library: Library, *, fresh: bool) -> Shelf | None:
        """The shelf for a library; None = there is no profile.  `fresh`: of the folder as it is now.

        Problem MAPPING: a profile in use does not compile with these maps.
        """
        with self._lock:
            if fresh and self.root is not None:
                return self._shelf(self._look(library))
            accepted = self._accepted
            if self.root is None:
                copy = self.live.resolve()  # the link may move on meanwhile; what it pointed at stays for a while
                accepted = {path.name: path.read_bytes() for path in archives(copy)}
            return self._shelf([self._again(name, content, library) for name, content in accepted.items()])

    def look(self, library: Library) -> None:
        """Accept what is in the folder now, as far as it is right; `build` then makes shelves of it."""
        with self._lock:
            self._look(library)

    def remove(self) -> None:
        """The process ends."""
        if self.root is not None:
            shutil.rmtree(self.root, ignore_errors=True)

    def _shelf(self, profiles: Sequence[Profile]) -> Shelf | None:
        return Shelf(profiles, self.site) if profiles else None

    def _look(self, library: Library) -> list[Profile]:
        profiles: list[Profile] = []
        skipped: list[Skipped] = []
        warnings: dict[str, tuple[Finding, ...]] = {}
        taken: dict[str, bytes] = {}
        for path in sorted(archives(self.live), key=lambda one: one.name not in self._accepted):
            before = self._accepted.get(path.name)
            checked, content = self._checked(path, library, profiles)
            if checked.profile is None and before is not None:
                kept = self._again(path.name, before, library)
                if before != content:
                    skipped.append(Skipped(path.name, checked.findings, kept.manifest.version))
                else:  # its cases fail with other general maps: it goes on, and that is told
                    warnings[path.name] = checked.findings
                profiles.append(kept)
                taken[path.name] = before
            elif checked.profile is None:
                skipped.append(Skipped(path.name, checked.findings))
            else:
                profiles.append(checked.profile)
                taken[path.name] = content
                warnings[path.name] = checked.findings
        self._accept(taken)
        self.skipped, self.warnings = tuple(skipped), warnings
        return profiles

    def _checked(self, path: Path, library: Library, others: Sequence[Profile]) -> tuple[Checked, bytes]:
        findings = Findings()
        try:
            content = path.read_bytes()
            checked = self._check(path.name, content, library)
        except OSError as error:
            findings.error("", "", f"cannot be read: {error.strerror}")
            return Checked(None, tuple(findings.items), (), None), b""
        except Problem as problem:
            findings.error("", "", problem.text)
            return Checked(None, tuple(findings.items), (), None), content
        except Exception as error:  # one archive must not keep the service from starting
            log.failure("a profile could not be looked at: {file}", file=path.name)
            findings.error("", "", f"cannot be looked at: unexpected {type(error).__name__}; the log says why")
            return Checked(None, tuple(findings.items), (), None), content
        if checked.manifest is not None:
            self.site.check(checked.manifest, findings)
            conflicts(checked.manifest, others, findings)
        profile = None if findings.errors else checked.profile
        return Checked(checked.manifest, (*checked.findings, *findings.items), checked.cases, profile), content

    def _again(self, name: str, content: bytes, library: Library) -> Profile:
        """A profile that is in use, with a library of now."""
        checked = self._check(name, content, library, run_cases=False)
        if checked.profile is None:
            reason = "; ".join(str(one) for one in checked.findings if one.severity == "error")
            raise Problem(Category.MAPPING, f"the profile in use does not fit these maps: {reason}", name)
        return checked.profile

    def _check(self, name: str, content: bytes, library: Library, *, run_cases: bool = True) -> Checked:
        """Look at an archive, unless that was done with the same general maps."""
        known = self._made.get(name)
        if known is not None and known[0] is library.maps and known[1] == content:
            return known[2]
        checked = check_profile(content, name, library, run_cases=run_cases)
        if checked.profile is not None:
            self._made[name] = (library.maps, content, checked)
        return checked

    def _accept(self, taken: dict[str, bytes]) -> None:
        """Write the copies and let the link point at them; those before stay for whoever is reading them."""
        if self.root is None:
            return
        if taken != self._accepted or not self.current.exists():
            self._number += 1
            copy = self.root / str(self._number)
            copy.mkdir(parents=True)
            for name, content in taken.items():
                (copy / name).write_bytes(content)
            before = self.current.resolve() if self.current.exists() else None
            link = self.root / "next"
            link.symlink_to(copy.name)
            os.replace(link, self.current)
            for old in self.root.iterdir():
                if old.is_dir() and not old.is_symlink() and old.resolve() not in (copy.resolve(), before):
                    shutil.rmtree(old, ignore_errors=True)
        self._accepted = taken
        self._made = {name: one for name, one in self._made.items() if name in taken}


def archives(folder: Path) -> list[Path]:
    """Archives of a folder, in the order of their names; a folder that is not there has none."""
    if not folder.is_dir():
        return []
    return sorted(one for one in folder.iterdir() if one.name.endswith(SUFFIXES) and one.is_file())


def swept(root: Path) -> Path:
    """A folder for copies, empty; those of processes that were killed are removed."""
    for left in root.parent.glob("profiles-*"):
        if not Path("/proc", left.name.removeprefix("profiles-")).exists():
            shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    return root.resolve()
