"""Turns StructureDefinitions, CodeSystems and ValueSets into the rows of our tables: facts, without prose.

A tool for the generators in `r4/` and `us-core/`; the service reads only what they write.  A table is a text file: the
first line says where it comes from, each other line is a JSON array `[url, facts]`, sorted by url.  `ipf/fhir/facts.py`
reads it; its docstring explains the words.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

CORE = "http://hl7.org/fhir/StructureDefinition/"
FHIR_TYPE = CORE + "structuredefinition-fhir-type"
BEST_PRACTICE = CORE + "elementdefinition-bestpractice"
TYPE_MUST = CORE + "elementdefinition-type-must-support"
MAX_VALUE_SET = CORE + "elementdefinition-maxValueSet"
FLAGS = {"mustSupport": "must", "isModifier": "modifier", "isSummary": "summary"}
LEFT_OUT_TEXTS = ("http://snomed.info/sct", "http://loinc.org")  # displays that are not HL7's to give

Json = dict[str, Any]


def structure_row(structure: Json, prose: bool) -> list[Any]:
    """One StructureDefinition by its differential.  `prose`: with short texts and the words of the invariants."""
    facts: Json = {name: structure[name] for name in ("name", "type", "kind") if name in structure}
    facts["derivation"] = structure.get("derivation", "")
    facts["base"] = short(structure.get("baseDefinition", ""))
    if structure["abstract"]:
        facts["abstract"] = True
    if structure["type"] == "Extension" and structure.get("context"):
        facts["context"] = [[one["type"], one["expression"]] for one in structure["context"]]
    if "contextInvariant" in structure:
        facts["context_rules"] = structure["contextInvariant"]
    elements = (structure.get("differential") or structure["snapshot"])["element"]
    facts["elements"] = [*narrowed(structure, elements)]
    facts["elements"] += [[one["id"], element_facts(one, structure["url"], prose)] for one in elements]
    return [short(structure["url"]), facts]


def narrowed(structure: Json, elements: list[Json]) -> list[list[Any]]:
    """Choices that a differential narrows by naming only `valueQuantity`: what the published snapshot says of them."""
    declared = {one["id"] for one in elements}
    found = []
    for one in structure.get("snapshot", {}).get("element", ()):
        id, slicing_ = one["id"], one.get("slicing", {})
        stem = id.removesuffix("[x]")
        shortcut = any(each.startswith(stem) and "." not in each[len(stem) :] for each in declared)
        if id != stem and id not in declared and shortcut and slicing_.get("rules") == "closed":
            found.append([id, {"types": [one_type(each, id) for each in one["type"]], "slicing": slicing(slicing_)}])
    return found


def element_facts(element: Json, url: str, prose: bool) -> Json:
    """What one differential element says."""
    facts: Json = {}
    if "min" in element or "max" in element:
        facts["card"] = f"{element.get('min', '')}..{element.get('max', '')}"
    if "contentReference" in element:
        facts["content"] = element["contentReference"].rpartition("#")[2]
    if "type" in element:
        facts["types"] = [one_type(one, element["path"]) for one in element["type"]]
    if "binding" in element:
        facts["binding"] = binding(element["binding"])
    if "slicing" in element:
        facts["slicing"] = slicing(element["slicing"])
    rules = [rule(one, prose) for one in element.get("constraint", ()) if one.get("source", url) == url]
    if rules:
        facts["rules"] = rules
    for name, word in FLAGS.items():
        if element.get(name):
            facts[word] = 1
    values(element, facts)
    if prose and "short" in element:
        facts["short"] = element["short"]
    return facts


def values(element: Json, facts: Json) -> None:
    """fixed[x], pattern[x], minValue[x], maxValue[x], maxLength."""
    for name, value in element.items():
        for start in ("fixed", "pattern", "minValue", "maxValue"):
            if name.startswith(start) and name != start:
                facts[start] = [name[len(start) :], value]
    if "maxLength" in element:
        facts["maxLength"] = element["maxLength"]


def one_type(declared: Json, path: str) -> Any:
    """A type's name, or `[name, profiles, targets, must]`; `must`: 0 for the type itself, n for its target n."""
    code = declared["code"]
    for extension in declared.get("extension", ()):
        if extension["url"] == FHIR_TYPE:
            code = extension["valueUrl"]
    if path == "Resource.id":
        code = "id"  # the package says string, the text id
    profiles = [short(one) for one in declared.get("profile", ())]
    targets = [short(one) for one in declared.get("targetProfile", ())]
    must = [0] if is_must(declared) else []
    must += [number for number, one in enumerate(declared.get("_targetProfile", ()), 1) if one and is_must(one)]
    found = [code, profiles, targets, must]
    while not found[-1]:
        found.pop()
    return found if len(found) > 1 else code


def is_must(declared: Json) -> bool:
    """Whether one type, or one target, must be supported."""
    return any(one["url"] == TYPE_MUST and one["valueBoolean"] for one in declared.get("extension", ()))


def binding(declared: Json) -> list[str]:
    """`[strength, value set]`, with a third for what an extensible binding may never leave."""
    found = [declared["strength"], declared.get("valueSet", "").removesuffix("|4.0.1")]
    for extension in declared.get("extension", ()):
        if extension["url"] == MAX_VALUE_SET:
            found.append(extension["valueCanonical"].removesuffix("|4.0.1"))
    return found


def slicing(declared: Json) -> list[Any]:
    """`[rules, ordered, [[type, path], ...]]`."""
    discriminators = [[one["type"], one["path"]] for one in declared.get("discriminator", ())]
    return [declared["rules"], declared.get("ordered", False), discriminators]


def rule(declared: Json, prose: bool) -> list[str]:
    """`[key, severity, expression, words]`; the severity of a best practice is `practice`."""
    practice = any(one["url"] == BEST_PRACTICE for one in declared.get("extension", ()))
    severity = "practice" if practice else declared["severity"]
    return [declared["key"], severity, declared.get("expression", ""), declared["human"] if prose else ""]


def code_system_row(system: Json) -> list[Any]:
    """`[url, {name, content, concepts}]`; a concept is `[code, display, children, properties]`, ends left out."""
    facts = {"name": system.get("name", ""), "content": system["content"]}
    if system.get("caseSensitive") is False:
        facts["any_case"] = True
    facts["concepts"] = [concept(one) for one in system.get("concept", ())]
    return [system["url"], facts]


def concept(declared: Json) -> list[Any]:
    """One concept with those below it."""
    properties = {}
    for one in declared.get("property", ()):
        value = next(item for name, item in one.items() if name.startswith("value"))
        if one["code"] in ("parent", "notSelectable", "status", "subsumedBy"):
            properties.setdefault(one["code"], []).append(value)
    display = declared.get("display", "")
    found: list[Any] = [declared["code"], "" if display == declared["code"] else display]
    found += [[concept(one) for one in declared.get("concept", ())], properties]
    while found and not found[-1]:
        found.pop()
    return found


def value_set_row(value_set: Json) -> list[Any]:
    """`[url, {name, include, exclude}]`, or `{name, expansion}` where there is no compose."""
    facts: Json = {"name": value_set.get("name", "")}
    compose = value_set.get("compose", {})
    for word in ("include", "exclude"):
        if word in compose:
            facts[word] = [include(one) for one in compose[word]]
    return [value_set["url"], facts]


def include(declared: Json) -> Json:
    """One include or exclude: `system`, `codes`, `filters`, `sets`."""
    found: Json = {}
    system = declared.get("system")
    if system is not None:
        found["system"] = system
    if "concept" in declared:
        found["codes"] = [listed(one, system) for one in declared["concept"]]
    if "filter" in declared:
        found["filters"] = [[one["property"], one["op"], one["value"]] for one in declared["filter"]]
    if "valueSet" in declared:
        found["sets"] = [one.removesuffix("|4.0.1") for one in declared["valueSet"]]
    return found


def listed(declared: Json, system: str | None) -> Any:
    """A code, with its display where that is free to give."""
    display = declared.get("display", "")
    keep = display and system not in LEFT_OUT_TEXTS
    return [declared["code"], display] if keep else declared["code"]


def short(url: str) -> str:
    """A canonical of R4's own by its last part."""
    return url.removesuffix("|4.0.1").removeprefix(CORE)


def write_table(path: Path, head: Json, rows: list[list[Any]]) -> None:
    """Write a table, sorted, with the hash of its rows in the first line."""
    lines = sorted(compact(row) for row in rows)
    body = "\n".join(lines)
    first = compact({**head, "content_sha256": hashlib.sha256(body.encode()).hexdigest()})
    path.write_text(f"{first}\n{body}\n", encoding="utf-8")


def compact(value: Any) -> str:
    """JSON without white space."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
