"""StructureMap resources: JSON <-> :class:`ipf.mapping.language.model.StructureMap`.

Reads R4 and R5 resources.  Writes R4, with the additions of R5 (constants, `///` pairs) in extensions of ipf, so that
text -> JSON -> text is lossless.  Problem MAPPING names the path of a mistake.

Source: https://hl7.org/fhir/R4/structuremap.html, https://hl7.org/fhir/R5/structuremap.html.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from hashlib import sha256
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.json import JsonDecimal, dumps
from ipf.mapping.language.check import check
from ipf.mapping.language.concepts import to_resource
from ipf.mapping.language.grammar_rules import MAX_NESTING
from ipf.mapping.language.model import (
    Code,
    CodePair,
    ConceptTable,
    Constant,
    Dependent,
    Group,
    Input,
    Parameter,
    Rule,
    Source,
    Structure,
    StructureMap,
    Target,
)
from ipf.ports import Json

METADATA = "urn:ipf:StructureDefinition/fml-metadata"
CONSTANT = "urn:ipf:StructureDefinition/fml-constant"
_METADATA_ELEMENTS = ("version", "experimental", "date", "publisher", "purpose", "copyright")
_PREFIXES = "urn:ipf:StructureDefinition/fml-prefix"
_PARAMETERS = {
    "id": "valueId",
    "string": "valueString",
    "boolean": "valueBoolean",
    "integer": "valueInteger",
    "decimal": "valueDecimal",
    "date": "valueDate",
    "time": "valueTime",
    "dateTime": "valueDateTime",
}
_KINDS = {name: kind for kind, name in _PARAMETERS.items()}
_DEFAULTS = {f"default{name[0].upper()}{name[1:]}": kind for name, kind in _KINDS.items()}


# ------------------------------------------------------------------------------------------------------- write


def to_json(content: StructureMap) -> Json:
    """The map as an R4 StructureMap resource."""
    contained = [_contained(one) for one in content.concept_tables]
    extensions = [_pair(METADATA, "key", one) for one in content.metadata]
    extensions += [_pair(CONSTANT, "name", (one.name, one.expression)) for one in content.constants]
    return _some(
        {
            "resourceType": "StructureMap",
            "contained": contained,
            "extension": extensions,
            "url": content.url,
            "name": content.name,
            "title": content.title,
            "status": content.status,
            "description": content.description,
            "structure": [
                _some({"url": one.url, "mode": one.mode, "alias": one.alias, "documentation": one.documentation})
                for one in content.structures
            ],
            "import": list(content.imports),
            "group": [_group(one) for one in content.groups],
        }
    )


def digest(content: StructureMap) -> str:
    """SHA-256 of the map as JSON, which is the same for text with other comments or white space."""
    return sha256(dumps(to_json(content))).hexdigest()


def _some(element: Json) -> Json:
    """Without empty values."""
    return {key: value for key, value in element.items() if value not in ("", None, [])}


def _pair(url: str, key: str, pair: tuple[str, str]) -> Json:
    parts = [{"url": key, "valueString": pair[0]}]
    if pair[1]:
        parts.append({"url": "value", "valueString": pair[1]})
    return {"url": url, "extension": parts}


def _contained(table: ConceptTable) -> Json:
    resource = to_resource(table)
    resource["extension"] = [_pair(_PREFIXES, "prefix", one) for one in table.prefixes]
    return resource


def _group(group: Group) -> Json:
    return _some(
        {
            "name": group.name,
            "extends": group.extends,
            "typeMode": group.type_mode,
            "documentation": group.documentation,
            "input": [_some({"name": one.name, "type": one.type, "mode": one.mode}) for one in group.inputs],
            "rule": [_rule(one) for one in group.rules],
        }
    )


def _rule(rule: Rule) -> Json:
    return _some(
        {
            "name": rule.name,
            "source": [_source(one) for one in rule.sources],
            "target": [_target(one) for one in rule.targets],
            "rule": [_rule(one) for one in rule.rules],
            "dependent": [_dependent(one) for one in rule.dependents],
            "documentation": rule.documentation,
        }
    )


def _source(source: Source) -> Json:
    made: Json = {
        "context": source.context,
        "min": source.minimum,
        "max": source.maximum,
        "type": source.type,
        "element": source.element,
        "listMode": source.list_mode,
        "variable": source.variable,
        "condition": source.condition,
        "check": source.check,
        "logMessage": source.log_message,
    }
    if source.default is not None:
        name = _PARAMETERS[source.default.kind]
        made[f"default{name[0].upper()}{name[1:]}"] = _json_value(source.default.value)
    if source.default_expression:
        made["defaultValueString"] = f"({source.default_expression})"
    return _some(made)


def _target(target: Target) -> Json:
    return _some(
        {
            "context": target.context,
            "contextType": "variable" if target.context else "",
            "element": target.element,
            "variable": target.variable,
            "listMode": list(target.list_modes),
            "listRuleId": target.list_rule_id,
            "transform": target.transform,
            "parameter": [_parameter(one) for one in target.parameters],
        }
    )


def _parameter(parameter: Parameter) -> Json:
    return {_PARAMETERS[parameter.kind]: _json_value(parameter.value)}


def _json_value(value: Any) -> Any:
    return JsonDecimal(str(value)) if isinstance(value, Decimal) and not isinstance(value, JsonDecimal) else value


def _dependent(dependent: Dependent) -> Json:
    """R4 allows variables only; other arguments take the R5 form."""
    if all(one.kind == "id" for one in dependent.parameters):
        return {"name": dependent.name, "variable": [str(one.value) for one in dependent.parameters]}
    return {"name": dependent.name, "parameter": [_parameter(one) for one in dependent.parameters]}


# -------------------------------------------------------------------------------------------------------- read


def from_json(resource: Mapping[str, Any], file: str = "") -> StructureMap:
    """Read a StructureMap resource.  Problem MAPPING when it is none."""
    if resource.get("resourceType") != "StructureMap":
        raise Problem(Category.MAPPING, "is no StructureMap", file or None)
    try:
        content = _read(resource, file)
        check(content)
        return content
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        text = f"is no valid StructureMap: {type(error).__name__} {error}"
        raise Problem(Category.MAPPING, text, file or None) from error


def _read(resource: Mapping[str, Any], file: str) -> StructureMap:
    return StructureMap(
        url=resource["url"],
        name=resource["name"],
        title=resource.get("title", ""),
        status=resource.get("status", "draft"),
        description=resource.get("description", ""),
        metadata=_read_metadata(resource),
        structures=tuple(
            Structure(one["url"], one["mode"], one.get("alias", ""), one.get("documentation", ""))
            for one in resource.get("structure", ())
        ),
        imports=tuple(resource.get("import", ())),
        constants=_read_constants(resource),
        concept_tables=tuple(
            _read_table(one) for one in resource.get("contained", ()) if one.get("resourceType") == "ConceptMap"
        ),
        groups=tuple(_read_group(one) for one in resource["group"]),
        file=file,
    )


def _read_metadata(resource: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The extension of ipf, and elements of the resource that a text has as `/// version = "1.0"`."""
    found = [_read_pair(one, "key") for one in resource.get("extension", ()) if one.get("url") == METADATA]
    known = {name for name, _ in found}
    for name in _METADATA_ELEMENTS:
        value = resource.get(name)
        if name not in known and isinstance(value, (str, bool)):
            found.append((name, value if isinstance(value, str) else str(value).lower()))
    return tuple(found)


def _read_constants(resource: Mapping[str, Any]) -> tuple[Constant, ...]:
    """The extension of ipf, and `const` of R5."""
    pairs = [_read_pair(one, "name") for one in resource.get("extension", ()) if one.get("url") == CONSTANT]
    pairs += [(one["name"], one["value"]) for one in resource.get("const", ())]
    return tuple(Constant(name, expression) for name, expression in pairs)


def _read_pair(extension: Mapping[str, Any], key: str) -> tuple[str, str]:
    parts = {one["url"]: one.get("valueString", "") for one in extension.get("extension", ())}
    return parts[key], parts.get("value", "")


def _read_table(resource: Mapping[str, Any]) -> ConceptTable:
    identifier = str(resource.get("id", ""))
    url = str(resource.get("url") or "#" + identifier)
    pairs = [_read_pair(one, "prefix") for one in resource.get("extension", ()) if one.get("url") == _PREFIXES]
    prefixes = dict(pairs)
    unmapped: list[tuple[str, str]] = []
    rows: list[CodePair] = []
    for group in resource.get("group", ()):
        source = _prefix(prefixes, group.get("source", ""), "s")
        target = _prefix(prefixes, group["target"], "t") if "target" in group else ""
        mode = group.get("unmapped", {})
        if mode:
            unmapped.append((source, "provided" if mode.get("mode") == "provided" else mode.get("code", "")))
        rows += [
            CodePair(Code(source, element["code"]), one.get("equivalence", "equivalent"), _read_code(target, one))
            for element in group.get("element", ())
            for one in element.get("target", ())
        ]
    own_id = identifier if identifier != url.removeprefix("#") else ""
    return ConceptTable(url, tuple(prefixes.items()), tuple(dict.fromkeys(unmapped)), tuple(rows), own_id)


def _read_code(prefix: str, target: Mapping[str, Any]) -> Code | None:
    return Code(prefix, target["code"]) if "code" in target else None


def _prefix(prefixes: dict[str, str], system: str, wanted: str) -> str:
    """The prefix for a code system; a new one when the resource has none."""
    for prefix, url in prefixes.items():
        if url == system:
            return prefix
    name, number = wanted, 1
    while name in prefixes:
        number += 1
        name = f"{wanted}{number}"
    prefixes[name] = system
    return name


def _read_group(group: Mapping[str, Any]) -> Group:
    return Group(
        group["name"],
        tuple(Input(one["name"], one["mode"], one.get("type", "")) for one in group["input"]),
        tuple(_read_rule(one, 1) for one in group.get("rule", ())),
        group.get("extends", ""),
        group.get("typeMode", "none"),
        group.get("documentation", ""),
    )


def _read_rule(rule: Mapping[str, Any], depth: int) -> Rule:
    if depth > MAX_NESTING:
        raise ValueError(f"rules nest deeper than {MAX_NESTING}")
    return Rule(
        rule.get("name", "") or rule["source"][0].get("element", "") or rule["source"][0]["context"],
        tuple(_read_source(one) for one in rule["source"]),
        tuple(_read_target(one) for one in rule.get("target", ())),
        tuple(_read_rule(one, depth + 1) for one in rule.get("rule", ())),
        tuple(_read_dependent(one) for one in rule.get("dependent", ())),
        rule.get("documentation", ""),
    )


def _read_source(source: Mapping[str, Any]) -> Source:
    default, expression = _read_default(source)
    return Source(
        source["context"],
        source.get("element", ""),
        source.get("type", ""),
        source.get("min", 0 if "max" in source else None),
        source.get("max", "*" if "min" in source else ""),
        default,
        expression,
        source.get("listMode", ""),
        source.get("variable", ""),
        source.get("condition", ""),
        source.get("check", ""),
        source.get("logMessage", ""),
    )


def _read_default(source: Mapping[str, Any]) -> tuple[Parameter | None, str]:
    """`defaultValue[x]` (R4), `defaultValue` (R5: a string); brackets mark an expression."""
    for name, value in source.items():
        if name == "defaultValue" or name in _DEFAULTS:
            if isinstance(value, str) and value.startswith("(") and value.endswith(")"):
                return None, value[1:-1]
            return Parameter(_DEFAULTS.get(name, "string"), value), ""
    return None, ""


def _read_target(target: Mapping[str, Any]) -> Target:
    return Target(
        target.get("context", ""),
        target.get("element", ""),
        target.get("variable", ""),
        target.get("transform", ""),
        tuple(_read_parameter(one) for one in target.get("parameter", ())),
        tuple(target.get("listMode", ())),
        target.get("listRuleId", ""),
    )


def _read_parameter(parameter: Mapping[str, Any]) -> Parameter:
    name, value = next((name, value) for name, value in parameter.items() if name in _KINDS)
    return Parameter(_KINDS[name], Decimal(str(value)) if name == "valueDecimal" else value)


def _read_dependent(dependent: Mapping[str, Any]) -> Dependent:
    variables = tuple(Parameter("id", one) for one in dependent.get("variable", ()))
    others = tuple(_read_parameter(one) for one in dependent.get("parameter", ()))
    return Dependent(dependent["name"], variables + others)
