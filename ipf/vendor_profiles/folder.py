"""The folder of profile archives, and copies of the accepted ones.

What arrives: `IPF_PROFILE_DIR`, a folder of archives.  What leaves: a `ProfileRegistry` for a library, and the skipped
archives with their findings.  When an archive is broken, the accepted one of the same name stays in use.  A profile in
use takes precedence over a new one that matches the same messages.  New general maps are refused when a profile in use
does not compile with them.

Converter processes read the copies (`current`, a symbolic link), so they use what the main process accepted.  All
methods may be called from threads; a lock serializes them.
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
from ipf.vendor_profiles.profile import Profile, Validation, validate_profile
from ipf.vendor_profiles.registry import Deployment, ProfileRegistry, conflicts

log = Logger(namespace="ipf.vendor_profiles")


@dataclass(frozen=True, slots=True)
class Skipped:
    """An archive that is not used.  `kept`: the accepted version that stays in use."""

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
    """`live`: the folder that operators edit.  `root`: folder of this process for copies; None in a converter process.

    Without `root` the archives are those that the main process accepted.  All must be valid, since a message must not
    be converted without its profile.
    """

    live: Path
    deployment: Deployment
    root: Path | None = None
    skipped: tuple[Skipped, ...] = ()
    warnings: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    _accepted: dict[str, bytes] = field(default_factory=dict)
    _validations: dict[str, tuple[object, bytes, Validation]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _number: int = 0

    @property
    def current(self) -> Path:
        """The copies in use: a symbolic link to a folder."""
        return (self.root or self.live) / "current"

    def build(self, library: Library, *, fresh: bool) -> ProfileRegistry | None:
        """The registry for a library; None = there is no profile.  `fresh`: from the current files.

        Problem MAPPING: a profile in use does not compile with these maps.
        """
        with self._lock:
            if fresh and self.root is not None:
                return self._registry(self._scan(library))
            accepted = self._accepted
            if self.root is None:
                copy = self.live.resolve()  # the link may change meanwhile; its old target stays
                accepted = {path.name: path.read_bytes() for path in archives(copy)}
            return self._registry([self._recompiled(name, content, library) for name, content in accepted.items()])

    def scan(self, library: Library) -> None:
        """Accept the valid archives of the folder, for the next `build`."""
        with self._lock:
            self._scan(library)

    def remove(self) -> None:
        """Remove the copies when the process ends."""
        if self.root is not None:
            shutil.rmtree(self.root, ignore_errors=True)

    def _registry(self, profiles: Sequence[Profile]) -> ProfileRegistry | None:
        return ProfileRegistry(profiles, self.deployment) if profiles else None

    def _scan(self, library: Library) -> list[Profile]:
        profiles: list[Profile] = []
        skipped: list[Skipped] = []
        warnings: dict[str, tuple[Finding, ...]] = {}
        accepted: dict[str, bytes] = {}
        for path in sorted(archives(self.live), key=self._rank):
            before = self._accepted.get(path.name)
            validation, content = self._validated(path, library, profiles)
            if validation.profile is None and before is not None:
                kept = self._recompiled(path.name, before, library)
                if before != content:
                    skipped.append(Skipped(path.name, validation.findings, kept.manifest.version))
                else:  # its cases fail with other general maps: it stays in use, with a warning
                    warnings[path.name] = validation.findings
                profiles.append(kept)
                accepted[path.name] = before
            elif validation.profile is None:
                skipped.append(Skipped(path.name, validation.findings))
            else:
                profiles.append(validation.profile)
                accepted[path.name] = content
                warnings[path.name] = validation.findings
        self._publish(accepted)
        self.skipped, self.warnings = tuple(skipped), warnings
        return profiles

    def _rank(self, path: Path) -> int:
        """Archives in use come first, then changed ones, then new ones: of two rivals the first is used."""
        before = self._accepted.get(path.name)
        if before is None:
            return 2
        try:
            return int(path.read_bytes() != before)
        except OSError:
            return 1

    def _validated(self, path: Path, library: Library, others: Sequence[Profile]) -> tuple[Validation, bytes]:
        findings = Findings()
        try:
            content = path.read_bytes()
            validation = self._validate(path.name, content, library)
        except OSError as error:
            findings.error("", "", f"cannot be read: {error.strerror}")
            return Validation(None, tuple(findings.items), (), None), b""
        except Problem as problem:
            findings.error("", "", problem.text)
            return Validation(None, tuple(findings.items), (), None), content
        except Exception as error:  # one archive must not keep the service from starting
            log.failure("a profile could not be validated: {file}", file=path.name)
            findings.error("", "", f"cannot be validated: unexpected {type(error).__name__}; see the log")
            return Validation(None, tuple(findings.items), (), None), content
        if validation.manifest is not None:
            self.deployment.check(validation.manifest, findings)
            conflicts(validation.manifest, others, findings)
        profile = None if findings.errors else validation.profile
        every = (*validation.findings, *findings.items)
        return Validation(validation.manifest, every, validation.cases, profile), content

    def _recompiled(self, name: str, content: bytes, library: Library) -> Profile:
        """A profile in use, compiled with another library."""
        validation = self._validate(name, content, library, run_cases=False)
        if validation.profile is None:
            reason = "; ".join(str(one) for one in validation.findings if one.severity == "error")
            raise Problem(Category.MAPPING, f"the profile in use does not compile with these maps: {reason}", name)
        return validation.profile

    def _validate(self, name: str, content: bytes, library: Library, *, run_cases: bool = True) -> Validation:
        """Validate an archive, unless it was validated with the same general maps."""
        known = self._validations.get(name)
        if known is not None and known[0] is library.maps and known[1] == content:
            return known[2]
        validation = validate_profile(content, name, library, run_cases=run_cases)
        if validation.profile is not None:
            self._validations[name] = (library.maps, content, validation)
        return validation

    def _publish(self, accepted: dict[str, bytes]) -> None:
        """Write the copies and switch the link; the previous copies stay for current readers."""
        if self.root is None:
            return
        if accepted != self._accepted or not self.current.exists():
            self._number += 1
            copy = self.root / str(self._number)
            copy.mkdir(parents=True)
            for name, content in accepted.items():
                (copy / name).write_bytes(content)
            before = self.current.resolve() if self.current.exists() else None
            link = self.root / "next"
            link.symlink_to(copy.name)
            os.replace(link, self.current)
            for old in self.root.iterdir():
                if old.is_dir() and not old.is_symlink() and old.resolve() not in (copy.resolve(), before):
                    shutil.rmtree(old, ignore_errors=True)
        self._accepted = accepted
        self._validations = {name: one for name, one in self._validations.items() if name in accepted}


def archives(folder: Path) -> list[Path]:
    """Archives of a folder, in the order of their names; a folder that is not there has none."""
    if not folder.is_dir():
        return []
    return sorted(one for one in folder.iterdir() if one.name.endswith(SUFFIXES) and one.is_file())


def prepare_copies_folder(root: Path) -> Path:
    """An empty folder for copies; removes those of processes that no longer run."""
    for left in root.parent.glob("profiles-*"):
        if not Path("/proc", left.name.removeprefix("profiles-")).exists():
            shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    return root.resolve()
