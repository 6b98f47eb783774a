"""The first maps of a profile: the general map of each type, with places for the Z segments of the samples.

A map of the draft does what the general one does.  It imports the general maps, so only what is the vendor's own is
written here.  A Z segment gets a group that is called with the Patient (with the Bundle, where the general map makes
the Patient elsewhere), and in it one rule for each field seen, as a comment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ipf.mapping.language.model import Dependent, Group, Parameter, Rule, Source, StructureMap
from ipf.mapping.language.printer import print_map

_LONGEST_SEGMENT = 3


def map_text(general: StructureMap, message_type: str, base: str, z_segments: Mapping[str, Sequence[int]]) -> str:
    """The text of the map of one message type.  `base`: start of the vendor's canonicals (`urn:example:acme`)."""
    first = general.groups[0]
    name = f"Vendor_{message_type}"
    if not z_segments:
        calls = (Dependent(first.name, tuple(Parameter("id", one.name) for one in first.inputs)),)
        rules: tuple[Rule, ...] = (Rule("general", (Source(first.inputs[0].name),), dependents=calls),)
        targets: dict[str, tuple[str, str]] = {}
    else:
        rules, targets = _with_places(first, sorted(z_segments))
    group = replace(first, name=name, rules=rules, documentation="", extends="")
    made = StructureMap(
        url=f"{base}:{message_type}",
        name=name,
        title=f"{message_type.replace('_', '^', 1)} as the general map {general.url}, with what is the vendor's own",
        status="active",
        structures=general.structures,
        imports=("urn:ipf:map:*",),
        groups=(group,),
    )
    places = [_place(one, message_type, base, numbers, *targets[one]) for one, numbers in sorted(z_segments.items())]
    return "\n".join([print_map(made).rstrip(), "", *places])


def _with_places(group: Group, names: Sequence[str]) -> tuple[tuple[Rule, ...], dict[str, tuple[str, str]]]:
    """The rules of a group with a call for each Z segment, and the target of each call: its name and type."""
    target, context = "patient", ""

    def changed(rule: Rule) -> Rule:
        nonlocal target, context
        patient = next((one.variable for one in rule.targets if _makes_patient(one.transform, one.parameters)), "")
        if patient and not context:
            source = rule.sources[0]
            # a group such as PATIENT_RESULT is of one patient, so only its own Z segments are of this patient
            is_group = len(source.element) > _LONGEST_SEGMENT and bool(source.variable)
            target, context = patient, source.variable if is_group else source.context
            return replace(rule, rules=(*rule.rules, *_calls(names, context, target)))
        return replace(rule, rules=tuple(changed(one) for one in rule.rules))

    rules = tuple(changed(one) for one in group.rules)
    if context:
        return rules, dict.fromkeys(names, (target, "Patient"))
    source, bundle = group.inputs[0].name, group.inputs[1].name
    return (*group.rules, *_calls(names, source, bundle)), dict.fromkeys(names, (bundle, "Bundle"))


def _makes_patient(transform: str, parameters: Sequence[Parameter]) -> bool:
    return transform == "create" and bool(parameters) and parameters[0].value == "Patient"


def _calls(names: Sequence[str], context: str, target: str) -> list[Rule]:
    return [
        Rule(
            name,
            (Source(context, name, variable=name.lower()),),
            dependents=(Dependent(f"Vendor_{name}", (Parameter("id", name.lower()), Parameter("id", target))),),
        )
        for name in names
    ]


def _place(name: str, message_type: str, base: str, numbers: Sequence[int], target: str, kind: str) -> str:
    """The group of a Z segment."""
    variable = name.lower()
    fields = ", ".join(f"{name}-{number}" for number in numbers) or "none"
    lines = [
        f"// {name} in {message_type.replace('_', '^', 1)}. Fields with values in the samples: {fields}.",
        "// A place: take a rule out of its comment, and say what the field means",
        "// (docs/reference/vendor-profiles.md, Z segments).",
        f"group Vendor_{name}(source {variable}, target {target} : {kind}) {{",
    ]
    for number in numbers if kind == "Patient" else ():
        value = f"extension.url = '{base}:{variable}-{number}', extension.value = cast(value, 'string')"
        rule = f"{variable}.{name}_{number} as value -> {target}.extension as extension, {value}"
        lines.append(f'  // {rule} "{name}-{number}";')
    return "\n".join([*lines, "}", ""])
