"""Prints the import sheet of docs/explanation/architecture.md: `python -m tests.import_sheet`.

A box is a package; in the second sheet, each sub-package and each module beside sub-packages.  A layer is as high as
the longest chain of imports below it.
"""

from __future__ import annotations

from collections import defaultdict
from graphlib import TopologicalSorter

from tests.test_architecture import LAYERS, imports, modules, package_of


def boxes(whole_packages: bool) -> tuple[dict[str, set[str]], dict[str, int]]:
    """The boxes that each box imports; the lines of each box."""
    edges: dict[str, set[str]] = defaultdict(set)
    lines: dict[str, int] = defaultdict(int)
    for name, path, tree in modules():
        own = _box(name, whole_packages)
        lines[own] += len(path.read_text().splitlines())
        edges[own] |= {_box(one, whole_packages) for one in imports(tree) if one.startswith("ipf.")} - {own, ""}
    return {box: edges[box] & set(lines) for box in lines if box}, lines


def layers(edges: dict[str, set[str]]) -> list[list[str]]:
    """Boxes by layer, from the lowest up."""
    height: dict[str, int] = {}
    for box in TopologicalSorter(edges).static_order():
        height[box] = 1 + max((height[one] for one in edges.get(box, ())), default=0)
    return [sorted(box for box, at in height.items() if at == level) for level in range(1, max(height.values()) + 1)]


def main() -> None:
    """Print the packages, then their sub-packages."""
    for whole_packages in (True, False):
        _print(*boxes(whole_packages))


def _print(edges: dict[str, set[str]], lines: dict[str, int]) -> None:
    found = layers(edges)
    print(f"{len(edges)} boxes, {len(found)} layers, {sum(map(len, edges.values()))} imports between them")
    for level in range(len(found), 0, -1):
        for box in found[level - 1]:
            print(f"{level:2}  {box:24} {lines[box]:6} lines  <- {' '.join(sorted(edges[box]))}")


def _box(module: str, whole_packages: bool) -> str:
    package = package_of(module)
    if whole_packages or package not in LAYERS:
        return package
    return "/".join(module.split(".")[1:3])


if __name__ == "__main__":
    main()
