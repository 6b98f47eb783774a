"""The FHIR packages of this installation (`IPF_PACKAGE_DIR`), and the search parameters that they define."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ipf.config.paths import folder
from ipf.config.settings import Settings
from ipf.fhir.model.packages import Packages
from ipf.fhir.search.parameters.shipped import TYPES, serve


def load_packages(settings: Settings, types: Collection[str] | None = None) -> Packages:
    """The FHIR packages of this installation.  Problem MALFORMED names archive and entry.

    `types`: load resources of these types only.
    """
    if settings.package_dir:
        return Packages.load(Path(settings.package_dir), types)
    shipped = folder("fhir") / "packages"
    return Packages.load(shipped if shipped.is_dir() else None, types)


def register_search_parameters(settings: Settings) -> None:
    """Register the search parameters of US Core and of the packages in this process.

    Problem MALFORMED for a broken package.
    """
    serve(load_packages(settings, TYPES))
