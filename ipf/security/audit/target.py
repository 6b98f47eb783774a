"""What the records of one request show of its path and query.  `Asked` reads both once, whatever their size.

Whoever may read the record of one patient must not learn from it which other patients a request named or found.  So the
answer depends on the request and on this patient alone, never on what else was found:

- `Patient/2/$everything` in the record of another patient is `Patient/$everything`.
- A parameter that names patients keeps this one's reference and loses the others.
- A value that holds for every match, so for this patient as well, stays: one value, without modifier or chain.
- Other values are left out: alternatives (`identifier=1,2`), chains, `_has`, references, and all of them in a search
  with `_include` or `_revinclude`, whose results are more than matches.  The names of the parameters stay.

The complete query is in the record without patient that then accompanies those of the patients.  It is cut at
LONGEST_TARGET characters.  Of the patients whom a query names, the first MOST_NAMED have records.  `Asked.details` has
the number of the others, the length of what was cut, and the SHA-256 of the query, so that whoever knows a query can
prove that it was this one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import chain
from urllib.parse import parse_qsl, quote_plus

from ipf.errors import Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import loads
from ipf.ports import Request
from ipf.security.audit.rules import LONGEST_FORM, LONGEST_TARGET, MOST_SEGMENTS, clean

Pairs = Sequence[tuple[str, str]]

MOST_NAMED = 100
"""Patients whom a query names that have a record each, besides those whom the request found."""
MOST_PARAMETERS = 500
"""Parameters of a query that are read; the listeners accept no more in a URL."""

PATIENT = re.compile(r"(?:.*/)?(Patient/[A-Za-z0-9\-.]{1,64})(?:/_history/.*)?")
_NAMING = frozenset({"patient", "subject", "patient._id", "subject._id"})
_ABOUT_THE_RESULT = frozenset((
    "_count", "_sort", "_summary", "_elements", "_total", "_lastUpdated", "_since", "_type", "_outputFormat", "_until",
    "_deident", "expungeDeletedResources", "expungePreviousVersions",
))  # fmt: skip
_OWN = frozenset({"_id", "_tag", "_profile", "_security"})
_INCLUDES = frozenset({"_include", "_revinclude"})


class Asked:
    """Path and query of one request.

    `complete`: both as text, bounded, without control characters.  `named`: the first MOST_NAMED patients of the query.
    `details`: what `complete` and `named` leave out, as pairs of a name and a text; empty if they have everything.
    """

    def __init__(self, path: Sequence[str] = (), query: Pairs = ()) -> None:
        self.path = path[:MOST_SEGMENTS]
        self.query = query[:MOST_PARAMETERS]
        self._type = _type_searched(self.path) if query else ""
        self.complete, is_cut = _rendered(self.path, self.query)
        self.named, further = _named(self.query, self._type) if query else ((), 0)
        is_cut = is_cut or len(path) > MOST_SEGMENTS or len(query) > MOST_PARAMETERS
        self.details = _left_out(path, query, further, is_cut) if further or is_cut else ()

    def target_for(self, patient: str) -> str:
        """What the record of `patient` (`Patient/1`) shows."""
        path = self.path
        if path[:1] == ("Patient",) and len(path) > 1 and path[1][:1] not in "$_" and f"Patient/{path[1]}" != patient:
            path = ("Patient", *path[2:])
        if not self.query:
            return self.complete if path is self.path else target_of(path, ())
        parts, naming = self._parts
        own = [(place, found) for place, values in naming if (found := values.of(patient))]
        if own:
            parts = parts.copy()
        for place, found in own:
            parts[place] += _quoted(",".join(found))
        return clean(f"{'/'.join(path)}?{'&'.join(parts)}", LONGEST_TARGET)

    @cached_property
    def _parts(self) -> tuple[list[str], list[tuple[int, _Naming]]]:
        """The parameters for the records of patients, and what is added to which of them for the patients it names.

        They end where their texts alone fill a target.
        """
        finds_more = any(name.partition(":")[0] in _INCLUDES for name, _ in self.query)
        parts: list[str] = []
        naming: list[tuple[int, _Naming]] = []
        length = 0
        for place, (name, value) in enumerate(self.query):
            if length > LONGEST_TARGET:
                break
            shown = ""
            if _names_patients(name, self._type):
                naming.append((place, _Naming(value)))
            elif _stays(name, value, self._type, finds_more):
                shown = value
            parts.append(_pair(name, shown)[: LONGEST_TARGET + 1])
            length += len(name) + len(shown) + 2
        return parts, naming


class _Naming:
    """A value that names patients."""

    __slots__ = ("_longer", "_values")

    def __init__(self, value: str) -> None:
        values = value.split(",")
        self._values = frozenset(values)
        self._longer: dict[str, list[str]] = {}  # by patient: URLs and references to versions
        for one in values if value.count("/") > value.count("Patient/") else ():
            if one.count("/") > 1 and (patient := _patient(one)) is not None:
                self._longer.setdefault(patient, []).append(one)

    def of(self, patient: str) -> list[str]:
        """The references to this patient."""
        short = [one for one in (patient[8:], patient) if one in self._values]
        return short + self._longer.get(patient, []) if self._longer else short


def query_of(request: Request) -> Pairs:
    """The search parameters of a request, those of a posted form, $export and $expunge too; a posted GraphQL query."""
    if request.method != "POST" or not request.body:
        return request.query
    last = request.path[-1:]
    if last in (("$export",), ("$expunge",)):
        return (*request.query, *_posted_parameters(request.body))
    if last not in (("$graphql",), ("_search",)):
        return request.query
    text = request.body[:LONGEST_FORM].decode("utf-8", "replace")
    if last == ("$graphql",):
        return (*request.query, ("query", text))
    fields = "&".join(text.split("&", MOST_PARAMETERS)[:MOST_PARAMETERS])
    return (*request.query, *parse_qsl(fields, keep_blank_values=True))


def asked_of(request: Request) -> Asked:
    """Path and query of a request."""
    return Asked(request.path, query_of(request))


def _posted_parameters(body: bytes) -> Iterator[tuple[str, str]]:
    """The plain values of a Parameters resource; none of another body, which is refused."""
    try:
        sent = loads(body) if 0 < len(body) <= LONGEST_FORM else None
    except Problem:
        return
    listed = sent.get("parameter") if isinstance(sent, dict) else None
    for one in listed[:MOST_PARAMETERS] if isinstance(listed, list) else ():
        for key, value in one.items() if isinstance(one, dict) else ():
            if key.startswith("value") and isinstance(value, str | bool):
                yield str(one.get("name")), value if isinstance(value, str) else str(value).lower()


def target_of(path: Sequence[str], query: Pairs) -> str:
    """Path and query, bounded, without control characters."""
    return _rendered(path[:MOST_SEGMENTS], query)[0]


def _rendered(path: Sequence[str], query: Pairs) -> tuple[str, bool]:
    """Path and query, and whether the text is cut.  What is beyond LONGEST_TARGET is not encoded."""
    text = "/".join(path)
    sign = "?"
    for name, value in query:
        if len(text) > LONGEST_TARGET:
            break
        text += sign + _pair(name, value)
        sign = "&"
    return clean(text, LONGEST_TARGET), len(text) > LONGEST_TARGET


def _pair(name: str, value: str) -> str:
    return f"{_quoted(name)}={_quoted(value)}"


def _quoted(text: str) -> str:
    """The text as a part of a query; one character more than a target has, if it is longer than that."""
    return quote_plus(text[: LONGEST_TARGET + 1], errors="replace")


def _left_out(path: Sequence[str], query: Pairs, further: int, is_cut: bool) -> tuple[tuple[str, str], ...]:
    """The details of a query that its records do not have completely."""
    parts = ["/".join(path), *chain.from_iterable(query)]
    text = "\0".join(parts)
    details = [("patients without a record", str(further))] if further else []
    if is_cut:
        details.append(("characters", str(len(text))))
    return (*details, ("SHA-256", sha256(text.encode("utf-8", "replace")).hexdigest()))


def _named(query: Pairs, resource_type: str) -> tuple[Sequence[str], int]:
    """The first MOST_NAMED patients that a query names, and the number of further values."""
    found: dict[str, None] = {}
    read = further = 0
    for name, value in query:
        if not value or not _names_patients(name, resource_type):
            continue
        *first, rest = f"{value},".split(",", MOST_NAMED - read)
        read += len(first)
        further += rest.count(",")
        found.update(dict.fromkeys(filter(None, map(_patient, first))))
    return tuple(found), further


def _stays(name: str, value: str, resource_type: str, finds_more: bool) -> bool:
    """Whether a value, which names no patients, is in the records of patients."""
    if name in _ABOUT_THE_RESULT or name.partition(":")[0] in _INCLUDES:
        return True
    is_alternative = "," in value or ":" in name or "." in name or name.startswith("_has")
    return not (finds_more or is_alternative or _is_reference(name, resource_type))


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
