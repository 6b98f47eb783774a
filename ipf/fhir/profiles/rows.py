"""A row of facts in, a StructureDefinition with its differential out.

A row has `name type kind derivation base` (and `abstract`, `context`, `context_rules`), and `elements`, pairs of an
element's id and its facts:

    card "1..1" (an end may be empty)   types ["code", ["Reference", profiles, targets, must]]   content "path"
    binding [strength, value set, largest value set]   slicing [rules, ordered, [[type, path]]]
    rules [[key, severity, expression, words]]   fixed / pattern / minValue / maxValue [Type, value]   maxLength
    must / modifier / summary 1   short "words"

A canonical of R4 is abbreviated to its last part.  Severity `practice` is a warning that R4 marks as best practice.
Source: https://hl7.org/fhir/R4/elementdefinition.html
"""

from __future__ import annotations

from typing import Any

from ipf.fhir.profiles.tables import CORE

Json = dict[str, Any]
BEST_PRACTICE = CORE + "elementdefinition-bestpractice"
MAX_VALUE_SET = CORE + "elementdefinition-maxValueSet"
_TYPE_MUST = CORE + "elementdefinition-type-must-support"
_FLAGS = {"must": "mustSupport", "modifier": "isModifier", "summary": "isSummary"}
_VALUES = ("fixed", "pattern", "minValue", "maxValue")


def structure(url: str, facts: Json, version: str, publisher: str) -> Json:
    """The StructureDefinition of a row, without a snapshot."""
    url = canonical(url)
    found: Json = {
        "resourceType": "StructureDefinition",
        "id": url.rpartition("/")[2],
        "url": url,
        "version": version,
        "name": facts["name"],
        "status": "active",
        "publisher": publisher,
        "fhirVersion": "4.0.1",
        "kind": facts["kind"],
        "abstract": facts.get("abstract", False),
        "type": facts["type"],
    }
    if "context" in facts:
        found["context"] = [{"type": kind, "expression": expression} for kind, expression in facts["context"]]
    if "context_rules" in facts:
        found["contextInvariant"] = facts["context_rules"]
    if facts["base"]:
        found["baseDefinition"] = canonical(facts["base"])
        found["derivation"] = facts["derivation"]
    found["differential"] = {"element": [element(id, each, url) for id, each in facts["elements"]]}
    return found


def element(id: str, facts: Json, url: str) -> Json:
    """One ElementDefinition of a differential."""
    found: Json = {"id": id, "path": path_of(id)}
    last = id.rpartition(".")[2]
    if ":" in last:
        found["sliceName"] = last.partition(":")[2]
    if "slicing" in facts:
        found["slicing"] = _slicing(*facts["slicing"])
    if "short" in facts:
        found["short"] = facts["short"]
    if "card" in facts:
        least, _, most = facts["card"].partition("..")
        found.update({"min": int(least)} if least else {}, **({"max": most} if most else {}))
    if "content" in facts:
        found["contentReference"] = "#" + facts["content"]
    if "types" in facts:
        found["type"] = [_type(one) for one in facts["types"]]
    for name in _VALUES:
        if name in facts:
            found[name + facts[name][0]] = facts[name][1]
    if "maxLength" in facts:
        found["maxLength"] = facts["maxLength"]
    if "rules" in facts:
        found["constraint"] = [_rule(url, *one) for one in facts["rules"]]
    found.update({name: True for word, name in _FLAGS.items() if word in facts})
    if "binding" in facts:
        found["binding"] = _binding(*facts["binding"])
    return found


def path_of(id: str) -> str:
    """The path of an element id: `Patient.name` of `Patient.name:official`."""
    return ".".join(part.partition(":")[0] for part in id.split("."))


def canonical(url: str) -> str:
    """The full canonical of an abbreviated one."""
    return url if ":" in url else CORE + url


def _slicing(rules: str, ordered: bool, discriminators: list[list[str]]) -> Json:
    found = [{"type": kind, "path": path} for kind, path in discriminators]
    return {**({"discriminator": found} if found else {}), "ordered": ordered, "rules": rules}


def _type(facts: Any) -> Json:
    if isinstance(facts, str):
        return {"code": facts}
    code: str = facts[0]
    profiles, targets, must = (facts[number] if number < len(facts) else [] for number in (1, 2, 3))
    mark = {"extension": [{"url": _TYPE_MUST, "valueBoolean": True}]}
    found: Json = {**(mark if 0 in must else {}), "code": code}
    if profiles:
        found["profile"] = [canonical(one) for one in profiles]
    if targets:
        found["targetProfile"] = [canonical(one) for one in targets]
        if any(must):
            found["_targetProfile"] = [mark if number in must else None for number in range(1, len(targets) + 1)]
    return found


def _rule(url: str, key: str, severity: str, expression: str, words: str) -> Json:
    found: Json = {}
    if severity == "practice":
        found["extension"] = [{"url": BEST_PRACTICE, "valueBoolean": True}]
        severity = "warning"
    found.update(key=key, severity=severity, human=words or f"{expression} is true")
    return {**found, **({"expression": expression} if expression else {}), "source": url}


def _binding(strength: str, value_set: str, largest: str = "") -> Json:
    found: Json = {"extension": [{"url": MAX_VALUE_SET, "valueCanonical": largest}]} if largest else {}
    return {**found, "strength": strength, **({"valueSet": value_set} if value_set else {})}
