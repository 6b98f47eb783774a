"""What a differential may change of an element: a profile narrows its base and never widens it.

Input: an element of the base, and the element of a differential of a profile (derivation `constraint`).  Output: the
changes that narrow the element, and a text for each change that would widen it, which is left out.  So the element
keeps the rule of its base: a value that conforms to a profile conforms to its base.

Sources: https://hl7.org/fhir/R4/profiling.html#resources ("a profile cannot relax"), and the rules "Constraint
profiles" of each member in https://hl7.org/fhir/R4/elementdefinition.html#interpretation
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ipf.fhir.model.definitions import definitions
from ipf.fhir.profiles.comparing import compare, matches_fixed, matches_pattern
from ipf.fhir.profiles.tables import CORE

Json = dict[str, Any]
Widened = tuple[Json, list[str]]

_STRENGTHS = ("example", "preferred", "extensible", "required")
_RULES = ("open", "openAtEnd", "closed")
_ANY_TYPE = ("Element", "BackboneElement", "Resource", "DomainResource")


def narrowing(base: Json, declared: Json) -> Widened:
    """The members of `declared` that narrow `base`, and what is wrong with the others."""
    kept, wrong = dict(declared), []
    for name in declared:
        rule = _RULE.get(name) or next((one for start, one in _BY_START if name.startswith(start)), None)
        for text in rule(base, kept, name) if rule is not None else ():
            wrong.append(text)
    return kept, wrong


def _least(base: Json, kept: Json, name: str) -> Iterator[str]:
    if kept["min"] < base.get("min", 0):
        yield f"min {kept.pop('min')} is less than {base['min']} of the base"


def _most(base: Json, kept: Json, name: str) -> Iterator[str]:
    if _number(kept["max"]) > _number(base.get("max", "*")):
        yield f"max {kept.pop('max')} is more than {base['max']} of the base"


def _number(most: str) -> float:
    return float("inf") if most == "*" else int(most)


def _types(base: Json, kept: Json, name: str) -> Iterator[str]:
    """Types that the base lacks are left out; one without profiles or targets keeps those of the base."""
    allowed = base.get("type")
    if not allowed or base.get("base", base)["path"][0].islower():  # the value of a primitive, written in several ways
        return
    found = []
    for one in kept["type"]:
        same = [each for each in allowed if _is_a(one["code"], each["code"])]
        if not same:
            yield f"{one['code']} is no type of the base"
            continue
        own = dict(one)
        for list_name in ("profile", "targetProfile"):
            lists = [each.get(list_name) for each in same if each["code"] == one["code"]]
            urls = list(dict.fromkeys(url for each in lists for url in each or ())) if all(lists) else []
            fitting = [url for url in own.get(list_name, ()) if _fits(url, urls)]
            yield from (f"{url} is no {list_name} of the base" for url in own.get(list_name, ()) if url not in fitting)
            if urls:
                own[list_name] = fitting or urls
        found.append(own)
    kept["type"] = found or allowed


def _fits(url: str, allowed: list[str]) -> bool:
    """Whether a type as profile or target is allowed; a profile may be derived from one that is."""
    kind = _type_of(url)
    return not allowed or kind is None or any(_is_a(kind, one) for one in map(_type_of, allowed) if one is not None)


def _type_of(url: str) -> str | None:
    """The type of R4 that a canonical names."""
    name = url.removeprefix(CORE)
    return name if url.startswith(CORE) and definitions().is_type(name) else None


def _is_a(code: str, allowed: str) -> bool:
    """Whether the base allows a type.  Types of FHIRPath are R4's own way to write those of ids and urls."""
    if code == allowed or allowed in _ANY_TYPE or "http://hl7.org/fhirpath/" in (code[:24], allowed[:24]):
        return True
    return definitions().is_a(code, allowed)


def _binding(base: Json, kept: Json, name: str) -> Iterator[str]:
    """A weaker binding leaves that of the base."""
    own, inherited = kept["binding"].get("strength"), base.get("binding", {}).get("strength")
    if own in _STRENGTHS and inherited in _STRENGTHS and _STRENGTHS.index(own) < _STRENGTHS.index(inherited):
        del kept["binding"]
        yield f"a binding of strength {own} is weaker than {inherited} of the base"


def _value(base: Json, kept: Json, name: str) -> Iterator[str]:
    """A fixed or pattern value has to have that of the base."""
    for old, value in base.items():
        if old.startswith("fixed"):
            fits = name.startswith("fixed") and matches_fixed(kept[name], value)
        elif old.startswith("pattern"):
            fits = matches_pattern(kept[name], value)
        else:
            continue
        if not fits:
            del kept[name]
            yield f"{name} is not the value that the base demands"
            return


def _limit(sign: int) -> Callable[[Json, Json, str], Iterator[str]]:
    def rule(base: Json, kept: Json, name: str) -> Iterator[str]:
        old = base.get(name)
        if old is not None and compare(kept[name], old) == sign:
            del kept[name]
            yield f"{name} allows more than that of the base"

    return rule


def _constraints(base: Json, kept: Json, name: str) -> Iterator[str]:
    """A constraint of the base cannot be given another expression or a lower severity."""
    known = {one.get("key"): one for one in base.get("constraint", ())}
    own = []
    for one in kept["constraint"]:
        old = known.get(one.get("key"))
        if old is None or (one.get("expression") == old.get("expression") and one.get("severity") != "warning"):
            own.append(one)
        elif one.get("expression") != old.get("expression") or old.get("severity") == "error":
            yield f"the constraint {one.get('key')} is one of the base"
    kept["constraint"] = own


def _slicing(base: Json, kept: Json, name: str) -> Iterator[str]:
    """Closed slicing stays closed, ordered slicing ordered."""
    old, own = base.get("slicing"), kept["slicing"]
    if old is None:
        return
    made = {**old, **own}
    if own.get("rules") in _RULES and _RULES.index(own["rules"]) < _RULES.index(old.get("rules", "open")):
        made["rules"] = old["rules"]
        yield f"the slicing of the base is {old['rules']}"
    if old.get("ordered") and own.get("ordered") is False:
        made["ordered"] = True
        yield "the slicing of the base is ordered"
    kept["slicing"] = made


def _flag(base: Json, kept: Json, name: str) -> Iterator[str]:
    if base.get(name) and not kept[name]:
        del kept[name]
        yield f"{name} is true in the base"


_RULE: dict[str, Callable[[Json, Json, str], Iterator[str]]] = {
    "min": _least,
    "max": _most,
    "type": _types,
    "binding": _binding,
    "maxLength": _limit(1),
    "constraint": _constraints,
    "slicing": _slicing,
    "mustSupport": _flag,
    "isModifier": _flag,
}
_BY_START = (("fixed", _value), ("pattern", _value), ("minValue", _limit(-1)), ("maxValue", _limit(1)))
