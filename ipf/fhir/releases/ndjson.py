"""A code system as lines of JSON: the CodeSystem resource without codes, then one concept a line.

A concept is what CodeSystem.concept is in R4: `code`, `display`, `definition`, `designation`, `property`, `concept`;
its parents are in the property `parent` (or `subsumedBy`), or it stands within one.  `inactive`, `status` and
`notSelectable` mean what R4 says.

Source: https://hl7.org/fhir/R4/codesystem.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.fhir.releases.files import Faults, Files
from ipf.fhir.terminology.codesystem import text_of
from ipf.ports import Json
from ipf.ports.fhir.terminology import Designation
from ipf.ports.fhir.terminology_import import NewConcept, NewSystem, Progress

_PARENTS = frozenset(("parent", "subsumedBy"))
_DEEPEST = 50
_EVERY = 20_000


def read_ndjson(files: Files, version: str, progress: Progress) -> Iterator[NewSystem]:
    """The code system of each file."""
    names = files.names(r".*\.(ndjson|jsonl|json)") or (files.names(".*") if files.path.is_file() else [])
    if not names:
        raise Problem(Category.NOT_FOUND, f"{files.path} has no file *.ndjson")
    for name in names:
        yield _read(files, name, version, progress)


def _read(files: Files, name: str, version: str, progress: Progress) -> NewSystem:
    faults, system = Faults(), None
    for number, line in files.lines(name):
        if not line.strip():
            continue
        try:
            one = loads(line.encode())
            if not isinstance(one, dict):
                raise Problem(Category.MALFORMED, "a line must be one JSON object")
            if system is None:
                system = begun(one, version)
            else:
                add_concept(system, one, ())
        except Problem as problem:
            faults.add(name, number, problem.text)
            if system is None:
                break
        if number % _EVERY == 0:
            progress("concepts read", number)
    faults.check()
    if system is None:
        raise Problem(Category.MALFORMED, f"{name}: the first line must be a CodeSystem")
    return system


def begun(resource: Json, version: str = "") -> NewSystem:
    """The system of a CodeSystem, with the concepts that it has.  Problem MALFORMED when it has no url."""
    if resource.get("resourceType") != "CodeSystem" or not isinstance(resource.get("url"), str):
        raise Problem(Category.MALFORMED, "a CodeSystem with a url is expected")
    properties = {
        str(one["code"]): str(one.get("type", "string"))
        for one in resource.get("property", ())
        if isinstance(one, dict) and "code" in one and one["code"] not in _PARENTS
    }
    name = str(resource.get("title") or resource.get("name") or resource["url"])
    known_version = version or str(resource.get("version", ""))
    is_case_sensitive = resource.get("caseSensitive") is not False
    system = NewSystem(resource["url"], known_version, name, is_case_sensitive, properties)
    for one in resource.get("concept", ()):
        add_concept(system, one, ())
    return system


def add_concept(system: NewSystem, concept: Any, parents: tuple[str, ...], depth: int = 0) -> None:
    """Add a concept and those within it.  Problem MALFORMED for one without a code, or one that is there."""
    if not isinstance(concept, dict) or not isinstance(concept.get("code"), str) or not concept["code"]:
        raise Problem(Category.MALFORMED, "a concept needs a code")
    if depth > _DEEPEST:
        raise Problem(Category.MALFORMED, f"concepts stand more than {_DEEPEST} deep within each other")
    code = concept["code"]
    made = NewConcept(code, str(concept.get("display", "")), definition=str(concept.get("definition", "")))
    made.parents += parents
    for one in concept.get("property", ()):
        _add_property(system, made, one)
    for one in concept.get("designation", ()):
        use = one.get("use", {})
        chosen = (str(use.get("system", "")), str(use.get("code", "")), str(use.get("display", "")))
        made.designations.append(Designation(str(one.get("language", "")), str(one.get("value", "")), chosen))
    if code in system.concepts:
        raise Problem(Category.MALFORMED, f"the code {code[:60]} is there twice")
    system.concepts[code] = made
    for one in concept.get("concept", ()):
        add_concept(system, one, (code,), depth + 1)


def _add_property(system: NewSystem, made: NewConcept, one: Json) -> None:
    name = str(one.get("code", ""))
    kind, value = next(((key[5:], item) for key, item in one.items() if key.startswith("value")), ("", None))
    text = text_of(value)
    if not name or value is None:
        raise Problem(Category.MALFORMED, f"a property of {made.code[:60]} needs a code and a value")
    if name in _PARENTS:
        if text not in made.parents:
            made.parents.append(text)
        return
    made.is_active = made.is_active and not (
        (name == "inactive" and text == "true") or (name == "status" and text in ("retired", "inactive"))
    )
    made.is_abstract = made.is_abstract or (name == "notSelectable" and text == "true")
    if name != "inactive":
        made.properties.append((name, text))
        system.properties.setdefault(name, kind if kind == "Coding" else kind[:1].lower() + kind[1:])
