"""LOINC: Loinc.csv, and where they are there, the hierarchy of components, the parts and the answer lists.

Sources: https://loinc.org/kb/users-guide, https://hl7.org/fhir/R4/loinc.html
"""

from __future__ import annotations

from collections.abc import Iterator

from ipf.fhir.releases.files import Faults, Files, Row
from ipf.ports.fhir.terminology import Designation
from ipf.ports.fhir.terminology_import import NewConcept, NewSystem, Progress

URL = "http://loinc.org"
PROPERTIES = (
    "COMPONENT", "PROPERTY", "TIME_ASPCT", "SYSTEM", "SCALE_TYP", "METHOD_TYP", "CLASS", "STATUS", "CLASSTYPE",
    "ORDER_OBS", "EXAMPLE_UCUM_UNITS", "VersionFirstReleased", "VersionLastChanged", "CONSUMER_NAME",
)  # fmt: skip
_INACTIVE = frozenset(("DEPRECATED",))
_EVERY = 20_000


def read_loinc(files: Files, version: str, progress: Progress) -> Iterator[NewSystem]:
    """The release; its version is that of the newest term unless one is given."""
    faults = Faults()
    properties = dict.fromkeys((*PROPERTIES, "answer-list", "answers-for"), "string")
    system = NewSystem(URL, version, "LOINC", is_case_sensitive=False, properties=properties)
    newest = _terms(files, system, faults, progress)
    _hierarchy(files, system, faults, progress)
    _answers(files, system, faults, progress)
    faults.check()
    system.version = system.version or newest
    yield system


def _terms(files: Files, system: NewSystem, faults: Faults, progress: Progress) -> str:
    newest: tuple[tuple[int, ...], str] = (), ""
    name = files.name(r"Loinc\.csv", "table of terms (Loinc.csv)")
    for number, row in enumerate(files.csv_rows(name, ["LOINC_NUM", "LONG_COMMON_NAME", "STATUS"], faults), 1):
        code = row["LOINC_NUM"]
        if not code:
            faults.add(row.file, row.line, "there is no LOINC_NUM")
            continue
        designations = [
            Designation("en", row[column], (URL, column, column))
            for column in ("SHORTNAME", "DisplayName")
            if row.get(column) and row[column] != row["LONG_COMMON_NAME"]
        ]
        system.concepts[code] = NewConcept(
            code,
            row["LONG_COMMON_NAME"] or row.get("COMPONENT", "") or code,
            is_active=row["STATUS"] not in _INACTIVE,
            definition=row.get("DefinitionDescription", ""),
            properties=[(one, row[one]) for one in PROPERTIES if row.get(one)],
            designations=designations,
        )
        changed = row.get("VersionLastChanged", "")
        if changed:
            newest = max(newest, (_numbers(changed), changed))
        if number % _EVERY == 0:
            progress("terms read", number)
    return newest[1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(one) for one in version.split(".") if one.isdigit())


def _hierarchy(files: Files, system: NewSystem, faults: Faults, progress: Progress) -> None:
    """Terms and parts below parts."""
    names = files.names(r"(ComponentHierarchyBySystem|MultiAxialHierarchy)\.csv")
    for name in names[:1]:
        for number, row in enumerate(files.csv_rows(name, ["IMMEDIATE_PARENT", "CODE", "CODE_TEXT"], faults), 1):
            _part(system, row["CODE"], row["CODE_TEXT"])
            parent = row["IMMEDIATE_PARENT"]
            if parent:
                _part(system, parent, "")
                if parent not in system.concepts[row["CODE"]].parents:
                    system.concepts[row["CODE"]].parents.append(parent)
            if number % _EVERY == 0:
                progress("hierarchy read", number)


def _part(system: NewSystem, code: str, display: str) -> None:
    """A part that groups others, unless it is there."""
    known = system.concepts.get(code)
    if known is None:
        system.concepts[code] = NewConcept(code, display, is_abstract=code.startswith("LP"))
    elif not known.display:
        known.display = display


def _answers(files: Files, system: NewSystem, faults: Faults, progress: Progress) -> None:
    """Answers with their lists, lists with their answers as children, terms with the lists they use."""
    for name in files.names(r"AnswerList\.csv"):
        columns = ["AnswerListId", "AnswerListName", "AnswerStringId", "DisplayText"]
        for number, row in enumerate(files.csv_rows(name, columns, faults), 1):
            _answer(system, row)
            if number % _EVERY == 0:
                progress("answers read", number)
    for name in files.names(r"LoincAnswerListLink\.csv"):
        for row in files.csv_rows(name, ["LoincNumber", "AnswerListId"], faults):
            term = system.concepts.get(row["LoincNumber"])
            if term is None:
                faults.add(row.file, row.line, f"there is no term {row['LoincNumber'][:40]}")
            else:
                term.properties.append(("answers-for", row["AnswerListId"]))


def _answer(system: NewSystem, row: Row) -> None:
    list_id, answer = row["AnswerListId"], row["AnswerStringId"]
    if list_id not in system.concepts:
        system.concepts[list_id] = NewConcept(list_id, row["AnswerListName"], is_abstract=True)
    if not answer:
        return
    known = system.concepts.setdefault(answer, NewConcept(answer, row["DisplayText"]))
    if ("answer-list", list_id) not in known.properties:
        known.properties.append(("answer-list", list_id))
        known.parents.append(list_id)
