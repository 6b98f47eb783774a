"""Which file names further pairs of databases, and whose pair the other settings mean."""

from __future__ import annotations

from dataclasses import dataclass

from ipf.config.parsers import optional
from ipf.config.variables import variable


@dataclass(frozen=True)  # only one base of Settings may have slots
class PlacementFile:
    """Several pairs of databases in one process (`config/placements.py`)."""

    placements_file: str | None = variable(
        "IPF_PLACEMENTS_FILE", optional, None, "TOML file: pairs of databases of groups of tenants; unset: one pair"
    )

    @property
    def placement(self) -> str:
        """The name of the placement whose pair of databases is meant; "": there is one pair."""
        return ""

    @property
    def placed_tenants(self) -> tuple[str, ...]:
        """The tenants of that placement."""
        return ()
