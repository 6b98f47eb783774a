"""The instructions of etc/docker/Dockerfile, and what .dockerignore lets into its build."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "etc/docker"


class Instruction(NamedTuple):
    """One instruction: its name, and its text on one line."""

    name: str
    text: str

    def words(self) -> list[str]:
        """Its words without flags."""
        return [word for word in shlex.split(self.text) if not word.startswith("--")]


def stages() -> list[list[Instruction]]:
    """The instructions before the first FROM, then those of each stage."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    found: list[list[Instruction]] = [[]]
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append(Instruction(name, re.sub(r"\s+", " ", rest)))
    return found


def named(name: str, instructions: list[Instruction]) -> list[Instruction]:
    """Those of one name."""
    return [one for one in instructions if one.name == name]


def is_in_context(path: str) -> bool:
    """Whether .dockerignore, which names what is let in, lets a path in."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = [line[1:] for line in lines if line.startswith("!")]
    return any(path == one or path.startswith(f"{one}/") or one.startswith(f"{path}/") for one in let_in)
