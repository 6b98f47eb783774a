"""RxNorm: RXNCONSO, RXNREL and RXNSAT in RRF.

Concepts are those of the source RXNORM.  Relations between them become properties by their name (RELA), such as
`has_ingredient`; `isa` is the hierarchy.  Attributes become properties by their name (ATN), beside `TTY`.

Sources: https://www.nlm.nih.gov/research/umls/rxnorm/docs/techdoc.html, https://hl7.org/fhir/R4/rxnorm.html
"""

from __future__ import annotations

from collections.abc import Iterator

from ipf.fhir.releases.files import Faults, Files
from ipf.ports.fhir.terminology import Designation
from ipf.ports.fhir.terminology_import import NewConcept, NewSystem, Progress

URL = "http://www.nlm.nih.gov/research/umls/rxnorm"
_CONSO = ["RXCUI", "LAT", "TS", "LUI", "STT", "SUI", "ISPREF", "RXAUI", "SAUI", "SCUI", "SDUI", "SAB", "TTY", "CODE",
          "STR", "SRL", "SUPPRESS", "CVF"]  # fmt: skip
_REL = ["RXCUI1", "RXAUI1", "STYPE1", "REL", "RXCUI2", "RXAUI2", "STYPE2", "RELA", "RUI", "SRUI", "SAB", "SL", "DIR",
        "RG", "SUPPRESS", "CVF"]  # fmt: skip
_SAT = ["RXCUI", "LUI", "SUI", "RXAUI", "STYPE", "CODE", "ATUI", "SATUI", "ATN", "SAB", "ATV", "SUPPRESS", "CVF"]
_SOURCE = "RXNORM"
_OF_NAMES = frozenset(("SY", "TMSY", "PSN", "ET"))  # term types of further names
_EVERY = 50_000


def read_rxnorm(files: Files, version: str, progress: Progress) -> Iterator[NewSystem]:
    """The release; its version has to be given, since the files do not say it."""
    faults = Faults()
    system = NewSystem(URL, version, "RxNorm", properties={"TTY": "code"})
    _names(files, system, faults, progress)
    _relations(files, system, faults, progress)
    _attributes(files, system, faults, progress)
    faults.check()
    yield system


def _names(files: Files, system: NewSystem, faults: Faults, progress: Progress) -> None:
    name = files.name(r"RXNCONSO\.RRF", "table of names (RXNCONSO.RRF)")
    for number, row in enumerate(files.piped_rows(name, _CONSO, faults), 1):
        if number % _EVERY == 0:
            progress("names read", number)
        if row["SAB"] != _SOURCE:
            continue
        if not row["RXCUI"].isdigit():
            faults.add(row.file, row.line, f"the RXCUI {row['RXCUI'][:40]!r} is no number")
            continue
        concept = system.concepts.setdefault(row["RXCUI"], NewConcept(row["RXCUI"], is_active=False))
        if row["TTY"] in _OF_NAMES:
            concept.designations.append(Designation("en", row["STR"], ("", row["TTY"], "")))
            continue
        concept.display = concept.display or row["STR"]
        concept.is_active = concept.is_active or row["SUPPRESS"] != "O"
        if ("TTY", row["TTY"]) not in concept.properties:
            concept.properties.append(("TTY", row["TTY"]))
    for concept in system.concepts.values():
        if not concept.display and concept.designations:
            concept.display = concept.designations[0].value
            concept.is_active = True


def _relations(files: Files, system: NewSystem, faults: Faults, progress: Progress) -> None:
    """A row says that concept 2 has the relation to concept 1."""
    for name in files.names(r"RXNREL\.RRF"):
        for number, row in enumerate(files.piped_rows(name, _REL, faults), 1):
            if number % _EVERY == 0:
                progress("relations read", number)
            first, second = system.concepts.get(row["RXCUI1"]), system.concepts.get(row["RXCUI2"])
            if row["SAB"] != _SOURCE or first is None or second is None or not row["RELA"]:
                continue
            if row["RELA"] == "isa":
                if first.code not in second.parents and first is not second:
                    second.parents.append(first.code)
            elif row["RELA"] != "inverse_isa":
                second.properties.append((row["RELA"], first.code))
                system.properties[row["RELA"]] = "code"


def _attributes(files: Files, system: NewSystem, faults: Faults, progress: Progress) -> None:
    for name in files.names(r"RXNSAT\.RRF"):
        for number, row in enumerate(files.piped_rows(name, _SAT, faults), 1):
            if number % _EVERY == 0:
                progress("attributes read", number)
            concept = system.concepts.get(row["RXCUI"])
            if row["SAB"] == _SOURCE and concept is not None and row["ATN"]:
                concept.properties.append((row["ATN"], row["ATV"]))
                system.properties.setdefault(row["ATN"], "string")
