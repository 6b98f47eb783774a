"""Value sets that a code system defines by the form of their URL.

Sources: https://hl7.org/fhir/R4/snomedct.html#implicit, https://hl7.org/fhir/R4/loinc.html#implicit,
https://hl7.org/fhir/R4/rxnorm.html#implicit
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

Json = dict[str, Any]
SNOMED, LOINC = "http://snomed.info/sct", "http://loinc.org"
RXNORM = "http://www.nlm.nih.gov/research/umls/rxnorm"
ECL = "?fhir_vs=ecl/"


def set_and_version(canonical: str) -> tuple[str, str]:
    """The URL and the version of a value set.  In an expression constraint `|` is no version."""
    if ECL in canonical:
        return canonical, ""
    url, _, version = canonical.partition("|")
    return url, version


def implicit_set(url: str) -> Json | None:
    """The facts of an implicit value set; None when the URL is none."""
    base, mark, query = url.partition("?fhir_vs")
    if mark and base.startswith(SNOMED):
        version = {} if base == SNOMED else {"version": base}
        return _snomed(query, version)
    for system in (LOINC, RXNORM):
        if url == f"{system}/vs":
            return {"name": "", "include": [{"system": system}]}
    if url.startswith(f"{LOINC}/vs/LL"):
        answers = ["answer-list", "=", url.rpartition("/")[2]]
        return {"name": "", "include": [{"system": LOINC, "filters": [answers]}]}
    return None


def _snomed(query: str, version: Json) -> Json | None:
    kind, _, code = query.removeprefix("=").partition("/")
    filters = {
        "": [],
        "isa": [["concept", "is-a", code]],
        "refset": [["refset", "=", code]] if code else [["refset", "exists", "true"]],
        "ecl": [["constraint", "=", unquote(code)]],
    }
    if kind not in filters or (kind in ("isa", "ecl") and not code):
        return None
    return {"name": "", "include": [{"system": SNOMED, **version, "filters": filters[kind]}]}
