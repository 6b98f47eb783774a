"""The lock files in `requirements/`: exact versions with hashes, within the ranges of setup.cfg, complete."""

from __future__ import annotations

import configparser
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from twisted.trial.unittest import TestCase

ROOT = Path(__file__).resolve().parent.parent
_PINNED = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[^\s;]+)(?: ; [^\\]+?)?(?: --hash=sha256:[0-9a-f]{64})+")
_RANGES = {
    "runtime": [("options", "install_requires")],
    "test": [("options.extras_require", extra) for extra in ("test", "otel", "kafka", "nats", "amqp")],
    "image": [("options.extras_require", extra) for extra in ("otel", "kafka", "nats", "amqp")],
    "tools": [("options.extras_require", "tools")],
}
_SMALL = ("build", "source")
"""Locks of what builds, and of what is built from source."""


def entries(lock: str) -> Iterator[str]:
    """The requirements of a lock file, each on one line."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text().replace(" \\\n   ", "")
    yield from (line for line in text.splitlines() if line and not line.startswith(("#", "-r runtime.txt")))


def locked(lock: str) -> dict[str, str]:
    """Name and version of each requirement of a lock file."""
    return {found["name"]: found["version"] for line in entries(lock) if (found := _PINNED.fullmatch(line))}


class RequirementsTests(TestCase):
    def test_every_requirement_is_pinned_with_hashes(self) -> None:
        for lock in (*_RANGES, *_SMALL):
            wrong = [line[:80] for line in entries(lock) if not _PINNED.fullmatch(line)]
            self.assertEqual(wrong, [], f"requirements/{lock}.txt: run bin/lock")
            self.assertGreater(len(locked(lock)), 0 if lock in _SMALL else 10)

    def test_the_locks_hold_what_setup_cfg_asks_for(self) -> None:
        """A range that was added or changed without `bin/lock` is found here."""
        cfg = configparser.ConfigParser()
        cfg.read(ROOT / "setup.cfg")
        for lock, places in _RANGES.items():
            known = (
                locked(lock)
                if lock == "tools"
                else locked("runtime") | locked("build") | locked("source") | locked(lock)
            )
            for section, key in places:
                for line in cfg[section][key].strip().splitlines():
                    wanted = Requirement(line)
                    version = known.get(canonicalize_name(wanted.name))
                    self.assertIsNotNone(version, f"{line}: not in requirements/{lock}.txt: run bin/lock")
                    self.assertTrue(wanted.specifier.contains(str(version)), f"{line}: locked is {version}")

    def test_what_builds_is_locked(self) -> None:
        """`requirements/build.txt` has exactly what pyproject.toml needs to build, with no isolated environment."""
        wanted = [
            Requirement(line)
            for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
        ]
        self.assertEqual({canonicalize_name(one.name) for one in wanted}, locked("build").keys())
        for one in wanted:
            self.assertTrue(one.specifier.contains(locked("build")[one.name]), one.name)

    def test_no_package_has_two_versions_on_one_interpreter(self) -> None:
        """The locks of tests and of the image add to the runtime lock, and repeat nothing of it."""
        base = locked("runtime").keys() | locked("build").keys() | locked("source").keys()
        self.assertEqual(len(base), sum(len(locked(lock)) for lock in ("runtime", "build", "source")))
        self.assertEqual(base & (locked("test") | locked("image")).keys(), set())

    def test_the_image_has_the_versions_that_the_tests_use(self) -> None:
        self.assertEqual(locked("image").items() - locked("test").items(), set())
