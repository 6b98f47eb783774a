"""What the record of one patient shows of a request: its path and query, without what may be about other patients.

Whoever may read the record of one patient must not learn from it which other patients a request named or found.  So the
answer depends on the request and on this patient alone, never on what else was found:

- `Patient/2/$everything` in the record of another patient is `Patient/$everything`.
- A parameter that names patients keeps this one's reference and loses the others.
- A value that holds for every match, so for this patient as well, stays: one value, without modifier or chain.
- Other values are left out: alternatives (`identifier=1,2`), chains, `_has`, references, and all of them in a search
  with `_include` or `_revinclude`, whose results are more than matches.  The names of the parameters stay.

The complete query is in the record without patient that then accompanies those of the patients.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import parse_qsl, urlencode

from ipf.errors import Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import loads
from ipf.ports import Request
from ipf.security.audit.rules import LONGEST_FORM, LONGEST_TARGET, clean

Pairs = Sequence[tuple[str, str]]

PATIENT = re.compile(r"(?:.*/)?(Patient/[A-Za-z0-9\-.]{1,64})(?:/_history/.*)?")
_NAMING = frozenset({"patient", "subject", "patient._id", "subject._id"})
_ABOUT_THE_RESULT = frozenset((
    "_count", "_sort", "_summary", "_elements", "_total", "_lastUpdated", "_since", "_type", "_outputFormat", "_until",
    "_deident", "expungeDeletedResources", "expungePreviousVersions",
))  # fmt: skip
_OWN = frozenset({"_id", "_tag", "_profile", "_security"})
_INCLUDES = frozenset({"_include", "_revinclude"})


def query_of(request: Request) -> Pairs:
    """The search parameters of a request, those of a posted form, $export and $expunge too; a posted GraphQL query."""
    if request.method == "POST" and request.path[-1:] in (("$export",), ("$expunge",)):
        return (*request.query, *_posted_parameters(request.body))
    if request.method == "POST" and request.path[-1:] == ("$graphql",):
        return (*request.query, ("query", request.body[:LONGEST_FORM].decode("utf-8", "replace")))
    if request.method != "POST" or request.path[-1:] != ("_search",):
        return request.query
    form = parse_qsl(request.body[:LONGEST_FORM].decode("utf-8", "replace"), keep_blank_values=True)
    return (*request.query, *form)


def _posted_parameters(body: bytes) -> Iterator[tuple[str, str]]:
    """The plain values of a Parameters resource; none of another body, which is refused."""
    try:
        sent = loads(body) if 0 < len(body) <= LONGEST_FORM else None
    except Problem:
        return
    listed = sent.get("parameter") if isinstance(sent, dict) else None
    for one in listed if isinstance(listed, list) else ():
        for key, value in one.items() if isinstance(one, dict) else ():
            if key.startswith("value") and isinstance(value, str | bool):
                yield str(one.get("name")), value if isinstance(value, str) else str(value).lower()


def target_of(path: Sequence[str], query: Pairs) -> str:
    """Path and query, bounded, without control characters."""
    text = "/".join(path)
    return clean(f"{text}?{urlencode(query)}" if query else text, LONGEST_TARGET)


def patients_asked_for(path: Sequence[str], query: Pairs) -> Iterator[str]:
    """The patients that a query names."""
    resource_type = _type_searched(path)
    for name, value in query:
        for one in value.split(",") if _names_patients(name, resource_type) else ():
            matched = _patient(one)
            if matched is not None:
                yield matched


def target_for(patient: str, path: Sequence[str], query: Pairs, complete: str = "") -> str:
    """What the record of `patient` (`Patient/1`) shows of a request.  `complete`: its target, if it is known."""
    resource_type, asked = _type_searched(path), path
    if path[:1] == ("Patient",) and len(path) > 1 and path[1][:1] not in "$_" and f"Patient/{path[1]}" != patient:
        path = ("Patient", *path[2:])
    if not query:
        return complete if complete and path is asked else target_of(path, ())
    finds_more = any(name.partition(":")[0] in _INCLUDES for name, _ in query)
    shown = [(name, _shown(name, value, patient, resource_type, finds_more)) for name, value in query]
    return complete if complete and path is asked and shown == [*query] else target_of(path, shown)


def _shown(name: str, value: str, patient: str, resource_type: str, finds_more: bool) -> str:
    """What remains of a value."""
    if name in _ABOUT_THE_RESULT or name.partition(":")[0] in _INCLUDES:
        return value
    if _names_patients(name, resource_type):
        return ",".join(one for one in value.split(",") if _patient(one) == patient)
    is_alternative = "," in value or ":" in name or "." in name or name.startswith("_has")
    if finds_more or is_alternative or _is_reference(name, resource_type):
        return ""
    return value


def _type_searched(path: Sequence[str]) -> str:
    """`Observation` of `Observation/_search` and of `Patient/1/Observation`; "" = several."""
    return next((one for one in reversed(path[::2]) if one[:1].isupper()), "")


def _names_patients(name: str, resource_type: str) -> bool:
    code, _, modifier = name.partition(":")
    if modifier not in ("", "Patient"):
        return False
    return code in _NAMING or (code == "_id" and resource_type == "Patient" and not modifier)


def _patient(text: str) -> str | None:
    matched = PATIENT.fullmatch(text if "/" in text else f"Patient/{text}")
    return None if matched is None else matched[1]


def _is_reference(code: str, resource_type: str) -> bool:
    """Whether a parameter may name another resource, or is not known."""
    if code.startswith("_"):
        return code not in _OWN
    parameter = definitions().search_parameters(resource_type).get(code)
    return parameter is None or parameter.type == "reference"
