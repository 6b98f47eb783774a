"""Writes `required-codes.json`: the elements of type `code` with a required binding, and the codes of their value sets.

    PYTHONPATH=. python fhir/r4/generate_required_codes.py

Read from the tables beside this file and in `../topics`, not from the package.  `elements`: element path -> value set, without
`http://hl7.org/fhir/ValueSet/`.  `sets`: value set -> its codes; "" for media types, which are tested by form.
"""

from __future__ import annotations

from pathlib import Path

from generate import Json, write

from ipf.fhir.profiles.tables import STRUCTURES, tables
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.open_systems import CURRENCIES

VALUE_SET = "http://hl7.org/fhir/ValueSet/"
GUIDES = ("r4", "topics")
CURRENCY = "urn:iso:std:iso:4217"
MEDIA_TYPE = "urn:ietf:bcp:13"


def main() -> None:
    """Write the file beside this one."""
    elements = bound_elements()
    content: Json = {"elements": elements, "sets": {name: codes(name) for name in sorted(set(elements.values()))}}
    write(Path(__file__).resolve().parent / "required-codes.json", content)


def bound_elements() -> dict[str, str]:
    """The value set of each element, by its path."""
    found = {}
    for guide, table in tables(STRUCTURES):
        for url in table if guide in GUIDES else ():
            facts = table.get(url) or {}
            if facts["derivation"] == "constraint":
                continue
            for path, element in facts["elements"]:
                if element.get("types") == ["code"] and element.get("binding", ("",))[0] == "required":
                    found[path] = element["binding"][1].partition("|")[0].removeprefix(VALUE_SET)
    return dict(sorted(found.items()))


def codes(name: str) -> str:
    """The codes of a value set, sorted; "" for media types."""
    members = Terminology().members(name if "/" in name else VALUE_SET + name)
    if members is None or members.unknown or not members.tests.keys() <= {CURRENCY, MEDIA_TYPE}:
        raise SystemExit(f"the codes of {name} are not known")
    if MEDIA_TYPE in members.tests:
        return ""
    found = {code for _, code, _ in members.members()} | (CURRENCIES if CURRENCY in members.tests else set())
    return " ".join(sorted(found))


if __name__ == "__main__":
    main()
