"""What a run consists of: units of modules, which a worker runs one after the other, in order of measured time."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = Path(__file__).with_name("seconds.json")
_MARK = re.compile(r'^(GROUP|FAMILY) = "([\w-]+)"$', re.M)
_UNKNOWN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Module:
    """A module of tests.  `group`: of `bin/test --all`, or empty.  `family`: of modules that share what they start."""

    name: str
    group: str
    family: str


@dataclass(frozen=True, slots=True)
class Unit:
    """Modules (or tests by name) that one worker runs one after the other, and their measured seconds."""

    names: tuple[str, ...]
    seconds: float


def modules(root: Path = ROOT) -> list[Module]:
    """All modules of tests, by name."""
    return [_read(path, root) for path in sorted((root / "tests").rglob("test_*.py"))]


def measured(path: Path = SECONDS) -> dict[str, float]:
    """Seconds of each module in the runs that were kept (`bin/test --keep-times`)."""
    return json.loads(path.read_text()) if path.exists() else {}


def keep(seconds: dict[str, float], path: Path = SECONDS) -> None:
    """Keep these times for later runs; those of modules that did not run stay, those of modules that are gone go."""
    there = {one.name for one in modules()}
    known = {name: round(value, 1) for name, value in (measured(path) | seconds).items() if name in there}
    path.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


def units(chosen: Iterable[Module], seconds: dict[str, float]) -> list[Unit]:
    """The longest first, so that no worker has a long one left at the end."""
    together = defaultdict(list)
    for module in chosen:
        together[module.family or module.name].append(module.name)
    made = [Unit(tuple(names), sum(seconds.get(one, _UNKNOWN_SECONDS) for one in names)) for names in together.values()]
    return sorted(made, key=lambda unit: (-unit.seconds, unit.names))


def shard(all_units: Sequence[Unit], number: int, count: int) -> list[Unit]:
    """Part `number` of `count` (from 1), of about equal time: each unit goes to the part that has least so far."""
    loads = [0.0] * count
    mine = []
    for unit in all_units:
        place = loads.index(min(loads))
        loads[place] += unit.seconds
        if place == number - 1:
            mine.append(unit)
    return mine


def named(all_modules: Sequence[Module], name: str) -> list[Module]:
    """The modules of a package, one module, or a test as a module of its own; none for an unknown name."""
    inside = [one for one in all_modules if one.name == name or one.name.startswith(name + ".")]
    if inside:
        return inside
    holder = next((one for one in all_modules if name.startswith(one.name + ".")), None)
    return [Module(name, holder.group, holder.family)] if holder else []


def _read(path: Path, root: Path) -> Module:
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    marks = dict(_MARK.findall(path.read_text()))
    return Module(name, marks.get("GROUP", ""), marks.get("FAMILY", ""))
