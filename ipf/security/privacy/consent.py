"""A Consent in, the denials in it out.

An active Consent of scope patient-privacy denies with its root provision (`type` deny, or a `policyRule` OPTOUT when
the provision has no type) except for what nested permissions allow, or with the nested denials of a root that permits.
One level of nesting is read.  What cannot be read as narrower counts as a denial of all data of the patient: deeper
levels, modifier extensions, classes and kinds of data that cannot be tested, times of data.  `Denial.is_widened` tells.

Source: https://hl7.org/fhir/R4/consent.html; https://profiles.ihe.net/ITI/PCF/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ipf.fhir.model.dates import date_range, moment
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.reference import parse_reference
from ipf.fhir.structure.primitives import is_id
from ipf.ports import Json
from ipf.security.privacy.labels import Label

_SCOPE = "patient-privacy"
_RESOURCE_TYPES = "http://hl7.org/fhir/resource-types"
_BASE = "http://hl7.org/fhir/StructureDefinition/"
_TESTED_DATA = frozenset({"instance", "dependents"})


@dataclass(frozen=True, slots=True)
class Selection:
    """The resources of a patient that a provision concerns; empty elements do not restrict.

    `types`, `profiles`: of `class`.  `codes`: each `system|code` or `code`.  `data`: meaning and reference.
    `is_partial`: a part of the provision that restricts further cannot be tested on a resource, and is left out here: a
    denial is wider by it, a permission is not used.
    """

    types: frozenset[str] = frozenset()
    profiles: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    labels: tuple[Label, ...] = ()
    data: tuple[tuple[str, str], ...] = ()
    is_partial: bool = False


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class Actor:
    """An actor of a provision: `reference` (`Type/id`) or the identifier of a logical reference, each may be ""."""

    reference: str
    system: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One provision: who (any of `actors`), why (`purposes`), what for (`actions`), when, which resources."""

    selection: Selection = EVERYTHING
    actors: tuple[Actor, ...] = ()
    purposes: frozenset[str] = frozenset()
    actions: frozenset[str] = frozenset()
    start: datetime | None = None
    end: datetime | None = None

    def is_in_force(self, now: datetime) -> bool:
        """Whether it applies now; the end is exclusive."""
        return (self.start is None or self.start <= now) and (self.end is None or now < self.end)

    @property
    def concerns_everybody(self) -> bool:
        """Whether it says nothing of the caller."""
        return not (self.actors or self.purposes or self.actions)


@dataclass(frozen=True, slots=True)
class Denial:
    """The data of `patient` (its logical id) that `rule` selects are denied, except for what `exceptions` permit."""

    patient: str
    rule: Rule
    exceptions: tuple[Rule, ...] = ()
    is_widened: bool = False


def denials_of(consent: Json) -> tuple[Denial, ...]:
    """The denials of a Consent; none when it is not active, of another scope, or permits only."""
    if consent.get("status") != "active" or not _is_privacy(consent):
        return ()
    patient = _patient(consent)
    if patient is None:
        return ()
    provision = consent.get("provision") or {}
    kind = provision.get("type") or ("deny" if _opts_out(consent) else "permit")
    nested = [one for one in provision.get("provision") or () if isinstance(one, dict)]
    has_denial = kind == "deny" or any(one.get("type") != "permit" for one in nested)
    if has_denial and ("modifierExtension" in consent or "implicitRules" in consent or _is_modified(provision)):
        return (Denial(patient, Rule(), is_widened=True),)
    found = [_denial(patient, one, one.get("provision") or (), ()) for one in nested if one.get("type") != "permit"]
    if kind == "deny":
        permitting = [one for one in nested if one.get("type") == "permit"]
        found.insert(0, _denial(patient, provision, (), permitting))
    return tuple(found)


def names_no_patient(consent: Json) -> bool:
    """Whether an active Consent denies something, but not of a Patient that this server can know."""
    return _patient(consent) is None and bool(denials_of({**consent, "patient": {"reference": "Patient/x"}}))


def _denial(patient: str, provision: Json, ignored: Sequence[Json], permitting: Sequence[Json]) -> Denial:
    """`permitting`: the exceptions; one that is narrowed by further provisions is not used.  `ignored`: too deep."""
    if _is_modified(provision):
        return Denial(patient, Rule(), is_widened=True)
    rules = [_rule(one) for one in permitting if not one.get("provision") and not _is_modified(one)]
    rule, exceptions = _rule(provision), tuple(one for one in rules if not one.selection.is_partial)
    is_widened = bool(ignored) or rule.selection.is_partial or len(exceptions) < len(permitting)
    return Denial(patient, rule, exceptions, is_widened)


def _rule(provision: Json) -> Rule:
    start, end = _period(provision.get("period") or {})
    actions, has_other_actions = _codes(provision.get("action") or ())
    purposes = [str(one.get("code", "")) for one in provision.get("purpose") or ()]
    selection = _selection(provision)
    if has_other_actions or "" in purposes:
        selection = replace(selection, is_partial=True)
    return Rule(
        selection,
        tuple(_actor(one.get("reference") or {}) for one in provision.get("actor") or ()),
        frozenset() if "" in purposes else frozenset(purposes),
        frozenset(code for _, code in actions),
        start,
        end,
    )


def _selection(provision: Json) -> Selection:
    found = _classes(provision.get("class") or ())
    codings, has_other_codes = _codes(provision.get("code") or ())
    data, has_other_data = _data(provision.get("data") or ())
    labels = [(str(one.get("system", "")), str(one.get("code", ""))) for one in provision.get("securityLabel") or ()]
    has_other_labels = any(not code for _, code in labels)
    parts = found.is_partial, has_other_codes, has_other_data, has_other_labels, "dataPeriod" in provision
    return replace(
        found,
        codes=tuple(_token(*coding) for coding in codings),
        labels=() if has_other_labels else tuple(labels),
        data=data,
        is_partial=any(parts),
    )


def _codes(concepts: Sequence[Json]) -> tuple[list[tuple[str, str]], bool]:
    """The codings of concepts, and whether there is a concept without one; then none, as they would restrict more."""
    found = [list(_codings(one)) for one in concepts]
    return ([], True) if not all(found) else ([coding for codings in found for coding in codings], False)


def _classes(classes: Sequence[Json]) -> Selection:
    types: set[str] = set()
    profiles: list[str] = []
    for one in classes:
        system, code = str(one.get("system", "")), str(one.get("code", ""))
        name = code.removeprefix(_BASE)
        if system in (_RESOURCE_TYPES, "") and code in definitions().resource_types:
            types.add(code)
        elif code.startswith(_BASE) and name in definitions().resource_types:
            types.add(name)
        elif "://" in code and "/StructureDefinition/" in code:
            profiles.append(code)
        else:
            return Selection(is_partial=True)
    return Selection(frozenset(types), tuple(profiles))


def _data(data: Sequence[Json]) -> tuple[tuple[tuple[str, str], ...], bool]:
    """The data, and whether there are some that cannot be tested; then none."""
    found = []
    for one in data:
        reference = parse_reference(str((one.get("reference") or {}).get("reference", "")))
        if reference is None or one.get("meaning") not in _TESTED_DATA:
            return (), True
        found.append((str(one["meaning"]), f"{reference.resource_type}/{reference.id}"))
    return tuple(found), False


def _actor(reference: Json) -> Actor:
    literal = parse_reference(str(reference.get("reference", "")))
    identifier = reference.get("identifier") or {}
    text = "" if literal is None else f"{literal.resource_type}/{literal.id}"
    return Actor(text, str(identifier.get("system", "")), str(identifier.get("value", "")))


def _period(period: Json) -> tuple[datetime | None, datetime | None]:
    """Start and exclusive end, by the precision of the dates."""
    first, last = date_range(str(period.get("start", ""))), date_range(str(period.get("end", "")))
    return None if first is None else moment(first[0]), None if last is None else moment(last[1])


def _is_privacy(consent: Json) -> bool:
    """Whether the scope is patient-privacy; a scope without a code is taken for it."""
    codes = [code for _, code in _codings(consent.get("scope") or {})]
    return not codes or _SCOPE in codes


def _opts_out(consent: Json) -> bool:
    return any(code.startswith("OPTOUT") for _, code in _codings(consent.get("policyRule") or {}))


def _patient(consent: Json) -> str | None:
    reference = parse_reference(str((consent.get("patient") or {}).get("reference", "")))
    if reference is None or reference.resource_type != "Patient" or not is_id(reference.id):
        return None
    return reference.id


def _is_modified(provision: Json) -> bool:
    return "modifierExtension" in provision


def _codings(concept: Json) -> Iterator[tuple[str, str]]:
    for one in concept.get("coding") or ():
        if one.get("code"):
            yield str(one.get("system", "")), str(one["code"])


def _token(system: str, code: str) -> str:
    """As a search writes it."""
    escaped = code.replace("\\", "\\\\").replace(",", "\\,").replace("|", "\\|").replace("$", "\\$")
    return f"{system}|{escaped}" if system else escaped
