"""`ipfctl completion` in the shells themselves, and the man page: both come from the tree of commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner
from twisted.trial.unittest import TestCase

from ipf.cli.main import cli
from tests.service_process import ROOT

_BASH = """
eval "$(ipfctl completion bash)"
complete -p ipfctl
COMP_WORDS=(ipfctl dead-letters re) COMP_CWORD=2
_ipfctl_completion ipfctl
echo "found ${COMPREPLY[*]}"
"""
_FISH = 'ipfctl completion fish | source; complete -C "ipfctl dead-letters re"'


class CompletionTests(TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ipf-completion-"))
        self.addCleanup(shutil.rmtree, self.folder)
        program = self.folder / "ipfctl"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -W ignore -m ipf.cli "$@"\n')
        program.chmod(0o755)

    def shell(self, *command: str) -> str:
        """The output of a shell that finds `ipfctl`."""
        path = f"{self.folder}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(self.folder)}
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=self.folder)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return ended.stdout

    def test_bash(self) -> None:
        said = self.shell("bash", "--norc", "-c", _BASH).splitlines()
        self.assertIn("-F _ipfctl_completion", said[0])
        self.assertEqual(said[-1], "found retry")

    def test_other_shells(self) -> None:
        """In fish where there is one; the syntax of the script in zsh where there is one."""
        for shell in ("zsh", "fish"):
            self.assertIn("_IPFCTL_COMPLETE", CliRunner().invoke(cli, ["completion", shell]).output)
        if shutil.which("fish"):
            self.assertEqual(self.shell("fish", "-c", _FISH).split()[0], "retry")
        if shutil.which("zsh"):
            (self.folder / "script").write_text(self.shell("ipfctl", "completion", "zsh"))
            self.shell("zsh", "-n", "script")


class ManPageTests(TestCase):
    def test_every_command_and_option_is_in_the_man_page(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="ipf-man-"))
        self.addCleanup(shutil.rmtree, folder)
        build = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--conf-dir", ROOT / "etc/site"]
        build += ["--builder", "man", "--tag", "man", "--doctree-dir", folder / "trees"]
        build += [ROOT / "etc/man", folder / "pages"]
        ended = subprocess.run(build, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        self.assertEqual(ended.returncode, 0, ended.stderr)
        page = (folder / "pages/ipfctl.1").read_text().replace("\\-", "-")
        for usage, options in commands(cli, "ipfctl"):
            self.assertIn(f"{usage} [OPTIONS]", page)
            for option in options:
                self.assertIn(option, page, usage)
        settings = (folder / "pages/ipf.7").read_text()
        for name in ("IPF_DB_URL", "IPF_UI_LISTEN", "SUBSCRIPTION_SERVICE_AUTH_ENABLED"):
            self.assertIn(name, settings)


def commands(command: click.Command, usage: str) -> Iterator[tuple[str, list[str]]]:
    """Every command with the names of its options, those without help text for people left out."""
    shown = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    yield usage, [name for one in shown for name in one.opts if name.startswith("--")]
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from commands(inner, f"{usage} {name}")
