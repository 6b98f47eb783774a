"""A wheel installed elsewhere and started from another folder: maps and FHIR data travel with it."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tempfile
import venv
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.faults.feed import admission
from tests.faults.scenario import Scenario
from tests.flows.test_end_to_end import answer_to
from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


class InstalledTests(TestCase):
    def test_installed_elsewhere(self) -> None:
        """`pip install .` into a fresh environment; the dependencies come from the one that runs the tests."""
        folder = Path(tempfile.mkdtemp(prefix="ipf-installed-"))
        folder.chmod(0o755)
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        twistd = _install(folder)
        ipfctl = subprocess.run([folder / "env/bin/ipfctl", "--version"], capture_output=True, text=True)
        self.assertIn("version", ipfctl.stdout, ipfctl.stderr)
        run(self._works(twistd))

    async def _works(self, twistd: Path) -> None:
        scenario = Scenario()
        scenario.service.environment["PYTHONPATH"] = ""
        scenario.service.twistd = twistd
        async with scenario:
            answer = await answer_to(scenario.service.mllp_port, admission("M1", "P1", "+4711"))
            self.assertEqual(answer[1], b"MSA|AA|M1")
            self.assertTrue(await scenario.sink.until(1, PATIENCE))
            self.assertNotIn(str(ROOT), scenario.service.log_tail(100_000))


def _install(folder: Path) -> Path:
    """The environment's `twistd`."""
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".git", ".venv", "var", "__pycache__", "_trial_temp*"))
    venv.create(folder / "env", with_pip=False)
    python = folder / "env/bin/python"
    site = next((folder / "env/lib").glob("python3*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run([python, "-m", "pip", "install", *options, str(source)], check=True, cwd=folder)
    shutil.rmtree(source)
    twistd = folder / "env/bin/twistd"
    twistd.write_text(f"#!{python}\nfrom twisted.scripts.twistd import run\nrun()\n")
    twistd.chmod(0o755)
    return twistd
