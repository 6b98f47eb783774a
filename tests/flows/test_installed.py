"""A release as a site without a network installs it: wheel, source distribution and wheelhouse of `bin/release`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import venv
import zipfile
from pathlib import Path

from twisted.trial.unittest import SkipTest, TestCase

import ipf
from tests.event_loop import LIMIT, run
from tests.faults.feed import admission
from tests.faults.scenario import Scenario
from tests.flows.test_end_to_end import answer_to
from tests.waiting import PATIENCE

GROUP = "deployment"
ROOT = Path(__file__).resolve().parents[2]
HELD = {"LICENSE", "NOTICE", "CHANGELOG.md", "CONTRIBUTING.md", "docs/reference/operations.md", "etc/ipf.env",
"bin/test",
        "etc/man/ipfctl.1", "requirements/runtime.txt", "requirements/source.txt",
        "tests/flows/test_installed.py"}  # fmt: skip
NO_NETWORK = ("--no-index", "--quiet", "--disable-pip-version-check")


class InstalledTests(TestCase):
    timeout = LIMIT  # the installation of the wheel

    def test_installed_from_the_wheelhouse(self) -> None:
        """Into a clean environment, started from another folder: maps, FHIR data and man pages are in the wheel."""
        folder = Path(tempfile.mkdtemp(prefix="ipf-installed-"))
        folder.chmod(0o755)
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        dist = _release(folder)
        files = {str(path.relative_to(dist)) for path in dist.rglob("*.*") if path.is_file()}
        self.assertEqual(_listed(dist), files)
        subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=dist, check=True)
        environment = folder / "env"
        venv.create(environment, with_pip=True)
        _pip(environment, "install", *NO_NETWORK, f"--find-links={dist}/wheelhouse", str(next(dist.glob("*.whl"))))
        for command, words in ((["ipfctl", "--version"], f"ipfctl, version {ipf.__version__}\n"),
                               (["twistd", "ipf", "--version"], f"ipf {ipf.__version__}\n"),
                               (["twistd", "ipf-ui", "--version"], f"ipf-ui {ipf.__version__}\n")):  # fmt: skip
            ended = subprocess.run([environment / "bin" / command[0], *command[1:]], capture_output=True, text=True,
                                   cwd=folder, env=_without_checkout())  # fmt: skip
            self.assertEqual((ended.returncode, ended.stdout), (0, words), ended.stderr)
        for page in ("man1/ipfctl.1", "man7/ipf.7"):
            self.assertTrue((environment / "share/man" / page).is_file(), page)
        self._same_from_source(environment, dist, folder)
        run(self._works(environment / "bin/twistd"))

    def _same_from_source(self, environment: Path, dist: Path, folder: Path) -> None:
        """The source distribution holds all that the wheel is made of."""
        source, wheel = next(dist.glob("*.tar.gz")), next(dist.glob("*.whl"))
        _pip(environment, "wheel", *NO_NETWORK, "--no-deps", f"--find-links={dist}/wheelhouse",
             f"--wheel-dir={folder}/again", str(source))  # fmt: skip
        self.assertEqual(_contents(folder / "again" / wheel.name), _contents(wheel))
        names = subprocess.run(["tar", "tzf", source], capture_output=True, text=True, check=True).stdout.splitlines()
        held = {name.partition("/")[2] for name in names}
        self.assertLessEqual(HELD, held)
        self.assertEqual({name for name in held if name.endswith((".pyc", "dropin.cache"))}, set())

    async def _works(self, twistd: Path) -> None:
        scenario = Scenario(all_maps=True)  # those of the wheel
        scenario.service.environment["PYTHONPATH"] = ""
        scenario.service.twistd = twistd
        async with scenario:
            answer = await answer_to(scenario.service.mllp_port, admission("M1", "P1", "+4711"))
            self.assertEqual(answer[1], b"MSA|AA|M1")
            self.assertTrue(await scenario.sink.until(1, PATIENCE))
            self.assertNotIn(str(ROOT), scenario.service.log_tail(100_000))


def _release(folder: Path) -> Path:
    """What `bin/release` makes; it needs the package index that `bin/setup` has used."""
    ended = subprocess.run([ROOT / "bin/release", folder / "dist"], capture_output=True, text=True)
    if ended.returncode != 0:
        is_offline = "No matching distribution" in ended.stderr or "Connection" in ended.stderr
        if is_offline and os.environ.get("CI") != "true":
            raise SkipTest("the package index cannot be reached")
        raise AssertionError(ended.stderr)
    return folder / "dist"


def _listed(dist: Path) -> set[str]:
    return {line.split(maxsplit=1)[1] for line in (dist / "SHA256SUMS").read_text().splitlines()}


def _pip(environment: Path, *arguments: str) -> None:
    command = [environment / "bin/python", "-m", "pip", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, env=_without_checkout())
    assert ended.returncode == 0, ended.stderr


def _without_checkout() -> dict[str, str]:
    """The environment without what leads Python to the checkout and to the packages of its tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _contents(wheel: Path) -> dict[str, int]:
    """The files of a wheel and their checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: one.CRC for one in archive.infolist()}
