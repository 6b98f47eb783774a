"""The published test suites and sample data in `../shared/reference`, which are not part of this repository.

Without that folder the tests that need it are not collected.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT.parent / "shared" / "reference"

T = TypeVar("T")


def needs_reference(test: T) -> T | None:
    """Decorator of a test case or test method that reads `REFERENCE`; without it None, which trial does not collect."""
    return test if REFERENCE.is_dir() else None
