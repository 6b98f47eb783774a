"""Canonical URLs that `_include` and `_revinclude` follow, such as `QuestionnaireResponse:questionnaire`.

A URL with a version (`http://a.example/q|2`) means that version.  One without means every stored version: which is the
latest cannot be told from their texts.

Source: https://hl7.org/fhir/R4/references.html#canonical, https://hl7.org/fhir/R4/search.html#include
"""

from __future__ import annotations

from collections.abc import Collection

from ipf.fhir.index.entries import clean
from ipf.fhir.index.extract import extract
from ipf.fhir.index.sources import sources
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import loads
from ipf.fhir.search.language.includes import ALL
from ipf.ports import Version

_URL = "url"


def canonical_codes(resource_type: str, parameter: str) -> dict[str, tuple[str, ...]]:
    """Index codes of a reference parameter, or of all, with canonical URLs; each with the types of its targets."""
    parameters, found = definitions().search_parameters(resource_type), sources(resource_type)
    names = [one for one in found if parameters[one].type == "reference"] if parameter == ALL else [parameter]
    return {
        code: tuple(parameters[name].targets)
        for name in names
        if name in found and any(path.type_path == "canonical" for path in found[name].paths)
        for code in found[name].codes
    }


def urls_in(version: Version, codes: Collection[str]) -> set[str]:
    """The URLs and references of a resource under these codes.  The index has a URL with a version without it too."""
    found = {value for code, value in extract(loads(version.body)).texts if code in codes and "\t" not in value}
    with_version = {url for url, bar, _ in (one.partition("|") for one in found) if bar}
    return found - with_version


def urls_of(version: Version) -> set[str]:
    """The canonical URLs that mean a resource: without and with its version."""
    if b'"url":' not in version.body:
        return set()
    resource = loads(version.body)
    url, number = resource.get("url"), resource.get("version")
    if type(url) is not str:
        return set()
    return {clean(url), *([clean(f"{url}|{number}")] if type(number) is str else ())}


def url_codes(resource_type: str) -> tuple[str, ...]:
    """The index codes of the canonical URL of a type; none for a type without one."""
    found = sources(resource_type)
    return found[_URL].codes if _URL in found else ()
