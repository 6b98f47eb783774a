"""Who a provision of a Consent concerns: its actors, purposes and actions against a caller and a right.

A denial concerns a caller unless it surely concerns others; a permission only a caller that it surely means.

Source: https://hl7.org/fhir/R4/consent-definitions.html (provision.actor, action, purpose)
"""

from __future__ import annotations

from ipf.ports import Caller
from ipf.security.privacy.consent import Actor, Rule

_PERSONS = frozenset({"Practitioner", "Patient", "RelatedPerson", "Person"})
_SEEING = frozenset({"access", "use", "disclose"})
_CHANGING = _SEEING | {"correct"}
_KNOWN_ACTIONS = _CHANGING | {"collect"}
_TOP_PURPOSES = frozenset(
    {"TREAT", "HPAYMT", "HOPERAT", "HRESCH", "HMARKT", "PUBHLTH", "PATRQT", "PATADMIN", "COVERAGE"}
)
"""Purposes of v3-ActReason of which none is a kind of another; others may be a kind of one of them."""


def denies(rule: Rule, caller: Caller, right: str) -> bool:
    """Whether a denial may concern this caller with this right (one of `r`, `s`, `u`, `d`)."""
    if rule.actions and not rule.actions & (_SEEING if right in "rs" else _CHANGING) and rule.actions <= _KNOWN_ACTIONS:
        return False
    if rule.actors and all(_is(one, caller) is False for one in rule.actors):
        return False
    return not rule.purposes or _has_purpose(rule, caller) is not False


def permits(rule: Rule, caller: Caller, right: str) -> bool:
    """Whether a permission surely concerns this caller with this right."""
    if rule.actions and not (rule.actions & _SEEING and (right in "rs" or "correct" in rule.actions)):
        return False
    if rule.actors and not any(_is(one, caller) for one in rule.actors):
        return False
    return not rule.purposes or _has_purpose(rule, caller) is True


def _is(actor: Actor, caller: Caller) -> bool | None:
    """Whether the actor is the caller; None = not known.

    An identifier with the token's issuer as system is a name of that issuer, which is this caller's or another's.
    """
    names = {name for name in (caller.client, caller.subject) if name}
    if actor.value:
        own = caller.issuer and actor.system == caller.issuer
        if actor.value in names and (own or not actor.system):
            return True
        if own:
            return False
    if not actor.reference:
        return None
    kind, _, id = actor.reference.partition("/")
    if kind == "Device" and id == caller.client:
        return True
    if not caller.user:
        return None
    if actor.reference == caller.user:
        return True
    return False if kind in _PERSONS and caller.user.partition("/")[0] in _PERSONS else None


def _has_purpose(rule: Rule, caller: Caller) -> bool | None:
    """Whether one of the token's purposes is one of the rule's; None = not known."""
    codes = {text.rpartition("|")[2] for text in caller.purpose}
    if codes & rule.purposes:
        return True
    return False if codes and codes <= _TOP_PURPOSES and rule.purposes <= _TOP_PURPOSES else None
