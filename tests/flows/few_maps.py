"""Maps for services that receive admissions, merges and results alone: a start compiles in a fraction of the time."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.runner.shared import once
from tests.service_process import ROOT

_KEPT = frozenset({"ADT_A01.fml", "ADT_A40.fml", "ORU_R01.fml"})


def few_maps() -> Path:
    """The maps of the project without those of other messages."""
    return once("few-maps", _make)


def _make(folder: Path) -> None:
    shutil.copytree(ROOT / "maps", folder, dirs_exist_ok=True)
    for path in (folder / "messages").iterdir():
        if path.name not in _KEPT:
            path.unlink()
