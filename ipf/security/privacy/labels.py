"""Security labels (`meta.security`): which are protected, and which a caller may see.

A setting names the protected labels.  A resource with one of them is seen only by a caller whose token has the scope of
that label; any other resource is not affected.  The confidentiality codes are ordered: who protects R also protects V,
and who may see V may see R.

Scopes: `conf/R` and `sens/ETH` as the HEART profile of OAuth 2.0 for FHIR writes them (code of v3-Confidentiality, of
v3-ActCode), `label/system|code` for any other label.

Sources: https://hl7.org/fhir/R4/security-labels.html; https://openid.net/specs/openid-heart-fhir-oauth2-1_0-ID2.html
"Confidentiality and Sensitivity".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ipf.fhir.index.entries import token_value
from ipf.ports import Caller
from ipf.ports.queries.predicates import NOTHING, AllOf, ContextOutside, ManyValues, Not, Test, TextEquals

CONFIDENTIALITY = "http://terminology.hl7.org/CodeSystem/v3-Confidentiality"
ACT_CODE = "http://terminology.hl7.org/CodeSystem/v3-ActCode"
ORDER = ("U", "L", "M", "N", "R", "V")
"""Confidentiality, ascending."""

_OTHER_NAMES = {
    CONFIDENTIALITY: ("http://hl7.org/fhir/v3/Confidentiality", "urn:oid:2.16.840.1.113883.5.25", ""),
    ACT_CODE: ("http://hl7.org/fhir/v3/ActCode", "urn:oid:2.16.840.1.113883.5.4", ""),
}
"""Systems of earlier releases and of CDA.  A label without a system is taken for each of them."""

ABOUT_OTHERS = frozenset({"AuditEvent"})
"""Types that tell of labelled resources without their labels: seen by those who may see every label."""

_NO_CONTEXT = ContextOutside(ManyValues(()))  # the context of a Binary may have labels

Label = tuple[str, str]
"""(system, code)"""


def label_of(text: str) -> Label:
    """The label that a setting names: a code of v3-Confidentiality, or `system|code`.  ValueError for other texts."""
    system, bar, code = text.rpartition("|")
    if not bar:
        if text not in ORDER:
            raise ValueError(f"{text} is no code of v3-Confidentiality; write system|code")
        return CONFIDENTIALITY, text
    if not system or not code:
        raise ValueError(f"{text} is not written system|code")
    return system, code


def at_least(code: str) -> tuple[str, ...]:
    """This code of confidentiality and all above it; the code alone when it is none."""
    return ORDER[ORDER.index(code) :] if code in ORDER else (code,)


def at_most(code: str) -> tuple[str, ...]:
    """This code of confidentiality and all below it; the code alone when it is none."""
    return ORDER[: ORDER.index(code) + 1] if code in ORDER else (code,)


def tokens_of(labels: Iterable[Label]) -> tuple[str, ...]:
    """The index values of these labels, also under other names of their systems."""
    names = ((system, code) for system, code in labels)
    found = {token_value(code, name) for system, code in names for name in (system, *_OTHER_NAMES.get(system, ()))}
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class LabelRules:
    """The protected labels."""

    protected: frozenset[Label]

    @classmethod
    def of(cls, texts: Iterable[str]) -> LabelRules:
        """From the words of the setting.  ValueError names the wrong one."""
        found: set[Label] = set()
        for system, code in map(label_of, texts):
            codes = at_least(code) if system == CONFIDENTIALITY else (code,)
            found |= {(system, one) for one in codes}
        return cls(frozenset(found))

    def limit(self, caller: Caller, resource_type: str) -> Test | None:
        """The test that a resource has no label which the caller may not see; None = the caller may see all."""
        hidden = self.protected - _allowed(caller.scopes)
        if not hidden:
            return None
        if resource_type in ABOUT_OTHERS:
            return NOTHING
        labels = Not(TextEquals("_security", tokens_of(hidden)))
        return AllOf((labels, _NO_CONTEXT)) if resource_type == "Binary" else labels


def _allowed(scopes: Iterable[str]) -> set[Label]:
    """The labels that scopes name."""
    found: set[Label] = set()
    for scope in scopes:
        kind, slash, rest = scope.partition("/")
        if not slash:
            continue
        if kind == "conf":
            found |= {(CONFIDENTIALITY, code) for code in at_most(rest)}
        elif kind == "sens":
            found.add((ACT_CODE, rest))
        elif kind == "label" and "|" in rest:
            system, _, code = rest.rpartition("|")
            found.add((system, code))
    return found
