"""The container image: its Dockerfile against the project, and the programs that are in it only.

`bin/test-image` builds and runs it.
"""

from __future__ import annotations

import configparser
import importlib.util
import json
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.config.console import ConsoleSettings, console_variables
from ipf.config.settings import Settings, variables
from ipf.store.postgres import embedded
from tests.deployment.dockerfile import FOLDER, ROOT, Instruction, is_in_context, named, stages
from tests.waiting import PATIENCE


def program(name: str) -> Any:
    """A Python program of etc/docker as a module."""
    loader = SourceFileLoader(name, str(FOLDER / name))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    was, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = was
    return module


class DockerfileTests(TestCase):
    def setUp(self) -> None:
        self.head, self.build, self.image = stages()

    def test_what_is_copied_exists_and_is_let_into_the_build(self) -> None:
        copied = [word for one in named("COPY", self.build) for word in one.words()[:-1]]
        self.assertLessEqual({"ipf", "maps", "fhir", "twisted", "setup.cfg", "requirements/runtime.txt"}, set(copied))
        for path in copied:
            self.assertTrue((ROOT / path).exists(), path)
            self.assertTrue(is_in_context(path), f"{path}: not in .dockerignore")
        for path in (".git", "tests", "bin", "var", ".venv", "etc/ipf.env"):
            self.assertFalse(is_in_context(path), path)

    def test_the_wheel_gets_all_that_setup_cfg_names(self) -> None:
        cfg = configparser.ConfigParser()
        cfg.read(ROOT / "setup.cfg")
        folders = {one.partition(".")[0] for one in cfg["options"]["packages"].split()}
        folders |= {line.partition("=")[2].strip() for line in cfg["options"]["package_dir"].split("\n") if line}
        files = {*cfg["metadata"]["license_files"].split(), cfg["metadata"]["long_description"].removeprefix("file: ")}
        copied = {word for one in named("COPY", self.build) for word in one.words()[:-1]}
        self.assertEqual({*folders, *files, "pyproject.toml"} - copied, set())

    def test_versions_are_pinned(self) -> None:
        (default,) = named("ARG", self.head)
        name, _, base = default.text.partition("=")
        self.assertRegex(base, r"^\S+:[a-z0-9.-]+$")
        self.assertNotIn("latest", base)
        for stage in (self.build, self.image):
            self.assertEqual(stage[0].words()[0], f"${{{name}}}")
        pip = [part for one in named("RUN", self.build) for part in one.text.split("&&") if "pip install" in part]
        self.assertEqual(len(pip), 3)
        for command in pip:
            self.assertRegex(
                command, r"--require-hashes (--only-binary :all:|--no-deps --no-build-isolation)|--no-index --no-deps"
            )
        self.assertIn("--no-build-isolation --no-deps", " ".join(one.text for one in named("RUN", self.build)))
        self.assertNotRegex((FOLDER / "Dockerfile").read_text(), r"curl|wget|ADD ")

    def test_it_runs_without_rights(self) -> None:
        self.assertEqual(named("USER", self.image)[-1].text, "10001:10001")
        (entrypoint,), (command,) = named("ENTRYPOINT", self.image), named("CMD", self.image)
        self.assertEqual(json.loads(entrypoint.text), ["/usr/bin/tini", "--", "entrypoint"])
        self.assertEqual(json.loads(command.text), ["ipf"])
        self.assertIn(" tini", named("RUN", self.image)[0].text)

    def test_it_opens_nothing_by_itself(self) -> None:
        """Without tokens ipf binds loopback, unless an endpoint names an interface: the image names none."""
        set_here = environment(self.image)
        self.assertEqual({name for name in set_here if name.startswith(("IPF_", "SUBSCRIPTION_"))}, {"IPF_DATA_DIR"})
        self.assertIn("IPF_DATA_DIR", variables())
        self.assertEqual(set_here["IPF_DATA_DIR"], named("WORKDIR", self.image)[-1].text)
        self.assertEqual(set_here["IPF_DATA_DIR"], named("VOLUME", self.image)[-1].text)

    def test_the_ports_are_those_of_the_settings(self) -> None:
        settings, console = Settings(), ConsoleSettings()
        endpoints = (settings.mllp_listen[0].endpoint, settings.http_listen, console.listen)
        (exposed,) = named("EXPOSE", self.image)
        self.assertEqual(exposed.text.split(), [one.rpartition(":")[2] for one in endpoints])

    def test_the_health_check_is_in_the_image(self) -> None:
        (check,) = named("HEALTHCHECK", self.image)
        (command,) = json.loads(check.text.partition("CMD ")[2])
        copied = [one.words() for one in named("COPY", self.build) if "/opt/ipf/bin/" in one.text]
        self.assertIn(f"etc/docker/{command}", copied[0])
        self.assertIn("--chmod=0755", named("COPY", self.build)[-1].text)

    def test_the_module_that_is_left_out_exists(self) -> None:
        self.assertIn(f'"{embedded.__name__}"', (FOLDER / "compile").read_text())


def environment(stage: list[Instruction]) -> dict[str, str]:
    """The variables that a stage sets."""
    pairs = (word.partition("=") for one in named("ENV", stage) for word in one.words())
    return {name: value for name, _, value in pairs}


class EntrypointTests(TestCase):
    def run_it(self, *arguments: str) -> str:
        """What it executes, as a program of this name prints it."""
        folder = Path(self.mktemp())
        folder.mkdir()
        for name in ("twistd", "ipfctl"):
            (folder / name).write_text('#!/bin/sh\necho "${0##*/} $*"\n')
            (folder / name).chmod(0o755)
        path = {"PATH": f"{folder.resolve()}:{os.environ['PATH']}"}
        command = [str(FOLDER / "entrypoint"), *arguments]
        return subprocess.run(
            command, env=path, capture_output=True, text=True, timeout=PATIENCE, check=True
        ).stdout.strip()

    def test_the_service_the_console_and_commands(self) -> None:
        self.assertEqual(self.run_it("ipf"), "twistd --nodaemon --pidfile= ipf")
        self.assertEqual(self.run_it("ipf-ui"), "twistd --nodaemon --pidfile= ipf-ui")
        self.assertEqual(self.run_it("ipfctl", "status", "--json"), "ipfctl status --json")


class HealthcheckTests(TestCase):
    """`tests/deployment/test_feed.py` runs it against a service."""

    def test_addresses(self) -> None:
        address = program("healthcheck").address
        for endpoint, expected in {
            "tcp:8090": ("tcp", "127.0.0.1", 8090),
            "tcp:8091:interface=0.0.0.0": ("tcp", "127.0.0.1", 8091),
            "tcp:port=8091:interface=10.0.0.5:backlog=9": ("tcp", "10.0.0.5", 8091),
            "tcp:8090:interface=\\:\\:": ("tcp", "::1", 8090),
            "tcp6:8090": ("tcp6", "::1", 8090),
            "ssl:8443:privateKey=/etc/ipf/tls/http/tls.key:interface=fd00\\:\\:5": ("ssl", "fd00::5", 8443),
            "mtls:6661:privateKey=k:certKey=c:clientCa=a": ("mtls", "127.0.0.1", 6661),
        }.items():
            self.assertEqual(address(endpoint), expected, endpoint)
        for endpoint in ("unix:/run/ipf.sock", "tcp:80x"):
            with self.assertRaises(SystemExit, msg=endpoint):
                address(endpoint)

    def test_variables_are_those_of_the_settings(self) -> None:
        text = (FOLDER / "healthcheck").read_text()
        self.assertIn('"IPF_HTTP_LISTEN"', text)
        self.assertIn("IPF_HTTP_LISTEN", variables())
        self.assertIn('"IPF_UI_LISTEN"', text)
        self.assertIn("IPF_UI_LISTEN", console_variables())
