"""ICD-10-CM: the order file (icd10cm-order-*.txt) or the tabular list (icd10cm-tabular-*.xml).

Codes get their dot.  The order file has the hierarchy by the length of the codes; the tabular list has chapters and
sections too.  Codes that are not valid for submission are abstract.

Sources: https://www.cms.gov/medicare/coding-billing/icd-10-codes, https://hl7.org/fhir/R4/icd.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from ipf.errors import Category, Problem
from ipf.fhir.releases.files import Faults, Files
from ipf.ports.fhir.terminology import Designation
from ipf.ports.fhir.terminology_import import NewConcept, NewSystem, Progress

URL = "http://hl7.org/fhir/sid/icd-10-cm"
_CODE = re.compile(r"[A-Z][0-9][0-9A-Z]{1,5}")
_ORDER = r"icd10cm[-_]order[-_a-z0-9]*\.txt"
_TABULAR = r"icd10cm[-_]tabular[-_a-z0-9]*\.xml"
_EVERY = 10_000
_NOTES = ("inclusionTerm", "includes")


def read_icd10cm(files: Files, version: str, progress: Progress) -> Iterator[NewSystem]:
    """The release; its version is the year in the name of the file unless one is given."""
    system = NewSystem(URL, version, "ICD-10-CM", is_case_sensitive=False)
    order, tabular = files.names(_ORDER), files.names(_TABULAR)
    if files.path.is_file() and not order and not tabular:
        name = files.path.name
        order, tabular = ([], [name]) if name.lower().endswith(".xml") else ([name], [])
    if order:
        _read_order(files, order[-1], system, progress)
    elif tabular:
        _read_tabular(files, tabular[-1], system, progress)
    else:
        raise Problem(Category.NOT_FOUND, f"{files.path} has no order file (icd10cm-order-...txt) and no tabular list")
    year = re.search(r"(20\d\d)", (order or tabular)[-1])
    system.version = version or (year[1] if year else "")
    yield system


def _read_order(files: Files, name: str, system: NewSystem, progress: Progress) -> None:
    """Columns by position: number 1-5, code 7-13, whether it is valid 15, short 17-76 and long description 78-."""
    faults = Faults()
    for number, line in files.lines(name):
        if not line.strip():
            continue
        code, valid, short, long = line[6:13].strip(), line[14:15], line[16:76].strip(), line[77:].strip()
        if not _CODE.fullmatch(code) or valid not in ("0", "1") or not short:
            faults.add(name, number, "no code, validity and description in columns 7, 15 and 17")
            continue
        concept = NewConcept(dotted(code), long or short, is_abstract=valid == "0")
        if short != concept.display:
            concept.designations.append(Designation("en", short))
        parent = next(
            (dotted(code[:end]) for end in range(len(code) - 1, 2, -1) if dotted(code[:end]) in system.concepts), None
        )
        if parent is not None:
            concept.parents.append(parent)
        system.concepts[concept.code] = concept
        if number % _EVERY == 0:
            progress("codes read", number)
    faults.check()


def dotted(code: str) -> str:
    """`A000` as `A00.0`."""
    return code if len(code) <= 3 else f"{code[:3]}.{code[3:]}"


def _read_tabular(files: Files, name: str, system: NewSystem, progress: Progress) -> None:
    try:
        with files.open(name) as source:
            root = _parsed(source.read(), name)
    except ElementTree.ParseError as error:
        raise Problem(Category.MALFORMED, f"{name}:{error.position[0]}: {error}") from error
    year = root.findtext("version") or ""
    system.version = system.version or year
    for chapter in root.iter("chapter"):
        code = f"chapter-{(chapter.findtext('name') or '').strip()}"
        system.concepts[code] = NewConcept(code, (chapter.findtext("desc") or "").strip(), is_abstract=True)
        for section in chapter.findall("section"):
            section_code = section.get("id", "")
            if not section_code:
                raise Problem(Category.MALFORMED, f"{name}: a section of {code} has no id")
            text = (section.findtext("desc") or "").strip()
            system.concepts[section_code] = NewConcept(section_code, text, is_abstract=True, parents=[code])
            for diagnosis in section.findall("diag"):
                _diagnosis(diagnosis, section_code, system, name)
        progress("codes read", len(system.concepts))


def _parsed(content: bytes, name: str) -> ElementTree.Element:
    """The root; a document type is refused, since it may define entities."""
    if b"<!DOCTYPE" in content[:4096] or b"<!ENTITY" in content:
        raise Problem(Category.MALFORMED, f"{name}: a document type is not accepted")
    return ElementTree.fromstring(content)


def _diagnosis(element: ElementTree.Element, parent: str, system: NewSystem, name: str) -> None:
    """A code and those within it."""
    pending = [(element, parent)]
    while pending:
        one, above = pending.pop()
        code, text = (one.findtext("name") or "").strip(), (one.findtext("desc") or "").strip()
        if not code or not text:
            raise Problem(Category.MALFORMED, f"{name}: a code below {above} has no name or no desc")
        below = one.findall("diag")
        concept = NewConcept(code, text, is_abstract=bool(below), parents=[above])
        for kind in _NOTES:
            notes = one.find(kind)
            for note in notes.findall("note") if notes is not None else ():
                concept.designations.append(Designation("en", "".join(note.itertext()).strip(), ("", kind, "")))
        system.concepts[code] = concept
        pending += [(each, code) for each in below]
