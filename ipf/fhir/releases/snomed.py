"""SNOMED CT in RF2: the snapshot of an edition.

Display: the preferred synonym of the US English refset, else of any language, else the fully specified name.  Attribute
relationships become properties by the code of their type; simple refsets become the property `refset`.

Sources: https://confluence.ihtsdotools.org/display/DOCRELFMT (RF2), https://hl7.org/fhir/R4/snomedct.html
"""

from __future__ import annotations

from collections.abc import Iterator

from ipf.errors import Category, Problem
from ipf.fhir.releases.files import Faults, Files
from ipf.ports.fhir.terminology import Designation
from ipf.ports.fhir.terminology_import import NewConcept, NewSystem, Progress

URL = "http://snomed.info/sct"
IS_A, FSN, SYNONYM = "116680003", "900000000000003001", "900000000000013009"
PREFERRED, ACCEPTABLE = "900000000000548007", "900000000000549004"
US_ENGLISH = "900000000000509007"
_MODULE_IS_A = "900000000000012004"  # of the model component; it dates no edition
_USES = {FSN: (URL, FSN, "Fully specified name"), SYNONYM: (URL, SYNONYM, "Synonym")}
_EVERY = 50_000  # rows between two reports


def read_snomed(files: Files, version: str, progress: Progress) -> Iterator[NewSystem]:
    """The edition."""
    faults = Faults()
    system = NewSystem(URL, version, "SNOMED CT", properties={"moduleId": "code", "sufficientlyDefined": "boolean"})
    newest = _concepts(files, system, faults, progress)
    preferred = _preferred(files, faults, progress)
    _descriptions(files, system, preferred, faults, progress)
    _relationships(files, system, faults, progress)
    _refsets(files, system, faults, progress)
    faults.check()
    if not system.version:
        system.version = newest
    yield system


def _concepts(files: Files, system: NewSystem, faults: Faults, progress: Progress) -> str:
    """Fills the concepts; the version of the edition: of its module with the latest date."""
    modules: dict[str, tuple[str, int]] = {}
    name = files.name(r"s?x?sct2_Concept_Snapshot.*\.txt", "snapshot of concepts (sct2_Concept_Snapshot...txt)")
    columns = ["id", "effectiveTime", "active", "moduleId", "definitionStatusId"]
    for number, row in enumerate(files.tab_rows(name, columns, faults), 1):
        if not row["id"].isdigit():
            faults.add(row.file, row.line, f"the id {row['id'][:40]!r} is no number")
            continue
        defined = "true" if row["definitionStatusId"] == "900000000000073002" else "false"
        properties = [("moduleId", row["moduleId"]), ("sufficientlyDefined", defined)]
        system.concepts[row["id"]] = NewConcept(row["id"], is_active=row["active"] == "1", properties=properties)
        time, count = modules.get(row["moduleId"], ("", 0))
        modules[row["moduleId"]] = max(time, row["effectiveTime"]), count + 1
        if number % _EVERY == 0:
            progress("concepts read", number)
    modules.pop(_MODULE_IS_A, None)
    if not modules:
        return ""
    module = max(modules, key=lambda one: (modules[one][0], modules[one][1]))
    return f"{URL}/{module}/version/{modules[module][0]}"


def _preferred(files: Files, faults: Faults, progress: Progress) -> dict[str, str]:
    """Description -> the language refset in which it is preferred; US English wins."""
    found: dict[str, str] = {}
    columns = ["active", "refsetId", "referencedComponentId", "acceptabilityId"]
    for name in files.names(r"x?der2_cRefset_Language.*Snapshot.*\.txt"):
        for number, row in enumerate(files.tab_rows(name, columns, faults), 1):
            if row["active"] == "1" and row["acceptabilityId"] == PREFERRED:
                earlier = found.get(row["referencedComponentId"])
                if earlier != US_ENGLISH:
                    found[row["referencedComponentId"]] = row["refsetId"]
            if number % _EVERY == 0:
                progress("language refsets read", number)
    return found


def _descriptions(
    files: Files, system: NewSystem, preferred: dict[str, str], faults: Faults, progress: Progress
) -> None:
    names = files.names(r"x?sct2_Description_.*Snapshot.*\.txt")
    if not names:
        raise Problem(
            Category.NOT_FOUND, f"{files.path} has no snapshot of descriptions (sct2_Description_Snapshot...txt)"
        )
    ranks: dict[str, int] = {}
    columns = ["id", "active", "conceptId", "languageCode", "typeId", "term"]
    for name in names:
        for number, row in enumerate(files.tab_rows(name, columns, faults), 1):
            if number % _EVERY == 0:
                progress("descriptions read", number)
            if row["active"] != "1" or row["typeId"] not in _USES:
                continue
            concept = system.concepts.get(row["conceptId"])
            if concept is None:
                faults.add(row.file, row.line, f"there is no concept {row['conceptId'][:40]}")
                continue
            concept.designations.append(Designation(row["languageCode"], row["term"], _USES[row["typeId"]]))
            rank = _rank(row["typeId"], row["languageCode"], preferred.get(row["id"]))
            if rank < ranks.get(concept.code, 9):
                ranks[concept.code], concept.display = rank, row["term"]


def _rank(kind: str, language: str, refset: str | None) -> int:
    """The lower, the better a description is as display."""
    if kind == SYNONYM and refset is not None:
        return 0 if refset == US_ENGLISH else 1 if language == "en" else 2
    return (3 if language == "en" else 4) if kind == FSN else 5


def _relationships(files: Files, system: NewSystem, faults: Faults, progress: Progress) -> None:
    name = files.name(
        r"x?sct2_Relationship_Snapshot.*\.txt", "snapshot of relationships (sct2_Relationship_Snapshot...txt)"
    )
    columns = ["active", "sourceId", "destinationId", "typeId"]
    for number, row in enumerate(files.tab_rows(name, columns, faults), 1):
        if number % _EVERY == 0:
            progress("relationships read", number)
        if row["active"] != "1":
            continue
        source = system.concepts.get(row["sourceId"])
        missing = row["sourceId"] if source is None else row["destinationId"]
        if source is None or row["destinationId"] not in system.concepts:
            faults.add(row.file, row.line, f"there is no concept {missing[:40]}")
        elif row["typeId"] == IS_A:
            source.parents.append(row["destinationId"])
        else:
            source.properties.append((row["typeId"], row["destinationId"]))
            system.properties[row["typeId"]] = "code"


def _refsets(files: Files, system: NewSystem, faults: Faults, progress: Progress) -> None:
    """Members of simple refsets, which value sets of the form `?fhir_vs=refset/[id]` name."""
    for name in files.names(r"x?der2_Refset_.*Snapshot.*\.txt"):
        for number, row in enumerate(files.tab_rows(name, ["active", "refsetId", "referencedComponentId"], faults), 1):
            concept = system.concepts.get(row["referencedComponentId"])
            if row["active"] == "1" and concept is not None:
                concept.properties.append(("refset", row["refsetId"]))
                system.properties["refset"] = "code"
            if number % _EVERY == 0:
                progress("refsets read", number)
