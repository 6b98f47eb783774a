"""`python -m ipf.app.new_profile FROM OUT [ID]`: drafts a vendor profile from a folder of sample messages.

Reads the maps of this installation as the service does, needs no service, and writes the files of the profile into OUT,
which must be empty or absent.  Writes a summary as JSON to standard output.  Exits with status 1 and an error message
on standard error when there is no message, or OUT cannot be used.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ipf.app.maps.check import load_maps
from ipf.app.maps.installation import maps_folder
from ipf.config.environment import read
from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.mapping.library.maps import Library
from ipf.ports import Json
from ipf.vendor_profiles.archive import pack
from ipf.vendor_profiles.drafting.draft import Draft, draft
from ipf.vendor_profiles.drafting.survey import Survey, survey
from ipf.vendor_profiles.profile import validate_profile


def new_profile(source: Path, target: Path | None, library: Library, name: str = "") -> Json:
    """Write the profile; its summary.  `target` None: a folder named after the profile, here.  Problem REQUIRED or
    VALUE.
    """
    found = survey(source)
    made = draft(found, library, name)
    target = target or Path(made.id)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Problem(Category.VALUE, f"{target} is not an empty folder")
    for path, content in made.files.items():
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return _summary(target, found, made, library)


def _summary(target: Path, found: Survey, made: Draft, library: Library) -> Json:
    checked = validate_profile(pack(target), made.id, library).as_json()
    return {
        "folder": str(target),
        "id": made.id,
        "valid": checked["valid"],
        "messages": len(found.samples),
        "types": dict(sorted(found.types.items())),
        "cases": checked["tests"]["passed"],
        "failing": made.failing,
        "z_segments": {name: sorted(numbers) for name, numbers in sorted(found.z_segments.items())},
        "unmapped": {table: sorted(codes) for table, codes in sorted(made.unmapped.items())},
        "without_map": made.without_map,
        "skipped": found.skipped,
        "problems": checked["problems"],
    }


def main() -> None:
    """Entry point."""
    source, target, *name = sys.argv[1:]
    try:
        settings, _ = read(os.environ)
        library = load_maps(settings, (), maps_folder(settings), compiled=False)
        made = new_profile(Path(source), Path(target) if target else None, library, *name)
        sys.stdout.buffer.write(dumps(made))
    except (Problem, OSError) as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
