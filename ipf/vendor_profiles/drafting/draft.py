"""A first profile from sample messages: manifest, maps, cases and a README with what was seen.

What arrives: a `Survey` and the general maps.  What leaves: files by name.  The profile validates and its cases pass,
since they are made with the maps of today: each message is a case, and its result the expectation (a message that fails
is a case of its error).  Cases hold the messages as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ipf.fhir.model.json import dumps
from ipf.mapping.library.maps import Library
from ipf.mapping.library.mapset import read_map
from ipf.ports import Json
from ipf.vendor_profiles.cases import Refused, received_and_mapped
from ipf.vendor_profiles.drafting.maps import map_text
from ipf.vendor_profiles.drafting.survey import Survey, listed

_UNUSABLE = re.compile(r"[^A-Za-z0-9]+")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]*")


@dataclass(slots=True)
class Draft:
    """`files`: content by name.  `unmapped`: codes without a target, by ConceptMap.  `without_map`: types without a
    general map.
    """

    id: str
    files: dict[str, bytes] = field(default_factory=dict)
    cases: dict[str, list[str]] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)
    unmapped: dict[str, Counter[str]] = field(default_factory=dict)
    without_map: dict[str, int] = field(default_factory=dict)


def draft(found: Survey, library: Library, name: str = "") -> Draft:
    """The files of the profile.  Problem MAPPING when the general maps do not compile."""
    made = Draft(name or profile_id(found))
    quirks = quirks_for(found)
    base = f"urn:example:{made.id}"
    maps: dict[str, bytes] = {}
    for message_type in sorted(found.types):
        if not library.has_map(message_type):
            made.without_map[message_type] = found.types[message_type]
            continue
        general = library.maps[library.map_url(message_type)]
        text = map_text(general, message_type, base, found.z_segments_of(message_type))
        maps[f"maps/{message_type}.fml"] = text.encode()
    contents = [read_map(text, path) for path, text in maps.items()]
    types = {path.removeprefix("maps/").removesuffix(".fml"): one.url for path, one in zip(maps, contents, strict=True)}
    _add_cases(made, found, library.with_profile(contents, types, ()), quirks)
    made.files |= maps
    made.files["manifest.yaml"] = _manifest(made, found, quirks).encode()
    made.files["README.md"] = _readme(made, found).encode()
    return made


def profile_id(found: Survey) -> str:
    """An id from the most frequent sender."""
    (application, facility), _ = found.senders.most_common(1)[0]
    return _UNUSABLE.sub("-", f"{application}-{facility}".lower()).strip("-")[:60] or "vendor"


def quirks_for(found: Survey) -> dict[str, str]:
    """The quirks that the samples call for."""
    quirks = {}
    if found.without_control_id:
        quirks["missing-control-id"] = "content-hash"
    fallback = [codec for (_, codec), _ in found.charsets.most_common() if codec in ("cp1252", "windows-1252")]
    if fallback:
        quirks["default-charset"] = "windows-1252"
    if found.padded:
        quirks["padded-values"] = "trim"
    others = [name for name, _ in found.times.most_common() if name in ("iso-8601", "day-first", "month-first")]
    if others and not {"day-first", "month-first"} <= set(others):
        quirks["timestamps"] = others[0]
    return quirks


def _add_cases(made: Draft, found: Survey, library: Library, quirks: Mapping[str, str]) -> None:
    numbers: Counter[str] = Counter()
    for sample in found.samples:
        message_type = sample.header.message_type
        if message_type in made.without_map:
            continue
        numbers[message_type] += 1
        stem = f"tests/{message_type.lower()}-{numbers[message_type]:03}"
        made.files[f"{stem}.hl7"] = sample.raw
        made.cases.setdefault(message_type, []).append(f"{stem}.hl7")
        try:
            bundle, unmapped = received_and_mapped(sample.raw, message_type, library, quirks)
        except Refused as refused:
            made.files[f"{stem}.error"] = f"{refused}\n".encode()
            made.failing.append(f"{stem}.hl7 ({sample.file}): {refused}")
            continue
        made.files[f"{stem}.json"] = dumps(_expectation(bundle)) + b"\n"
        for one in unmapped:
            made.unmapped.setdefault(one.concept_map, Counter())[one.code] += 1


def _expectation(bundle: Json) -> Json:
    entries = [{"resource": entry["resource"]} for entry in bundle.get("entry", ())]
    return {"resourceType": "Bundle", "total": len(entries), "entry": entries}


def _quoted(text: str) -> str:
    """A text of YAML."""
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "''") + "'"


def _manifest(made: Draft, found: Survey, quirks: Mapping[str, str]) -> str:
    applications = sorted({one for one, _ in found.senders if one})
    facilities = sorted({one for _, one in found.senders if one})
    by_facility = bool(facilities) and all(facility for _, facility in found.senders)
    resolver, names = ("msh-4", facilities) if by_facility else ("msh-3", applications)
    versions = ", ".join(f'"{one}"' for one in sorted(filter(None, found.versions)))
    lines = [
        "# Drafted from sample messages; every key is explained in docs/reference/vendor-profiles.md.",
        "profile:",
        f"  id: {made.id}",
        '  version: "0.1.0"',
        "  schemaVersion: 1",
        "  vendor:",
        f"    name: {_quoted(applications[0] if applications else made.id)}",
        '    fhirVersions: ["4.0.1"]',
        f"    hl7Versions: [{versions}]",
        "",
        "# The messages of these senders, on every listener. Add `port` for a listener of their own.",
        "ingest:",
        "  - id: feed",
        "    type: hl7v2-mllp",
        f"    facilityResolver: {resolver}",
        f"    facilities: [{', '.join(map(_quoted, names))}]",
        "",
        "mappings:" if made.cases else "mappings: []",
    ]
    for message_type, cases in made.cases.items():
        lines += [
            f"  - messageType: {message_type.replace('_', '^', 1)}",
            f"    map: maps/{message_type}.fml",
            "    tests:",
        ]
        lines += [f"      - {case}" for case in cases]
    if quirks:
        lines += ["", "quirks:", *(f"  {name}: {strategy}" for name, strategy in quirks.items())]
    lines += ["", "audit:", f"  agent-system: urn:example:{made.id}", "  enrichments:", "    - facility: MSH-4"]
    return "\n".join(lines) + "\n"


def _readme(made: Draft, found: Survey) -> str:
    """What was seen in the samples, and what to look at."""
    rows = [
        ("messages", str(len(found.samples))),
        (
            "senders (MSH-3, MSH-4)",
            listed((f"{one} {two}".strip(), count) for (one, two), count in found.senders.items()),
        ),
        ("versions (MSH-12)", listed(found.versions)),
        ("types", listed(found.types)),
        ("formats of times", listed(found.times)),
        (
            "character sets (MSH-18: used)",
            listed((f"{one or '-'}: {two}", n) for (one, two), n in found.charsets.items()),
        ),
    ]
    for name, numbers in sorted(found.z_segments.items()):
        rows.append((name, ", ".join(f"{name}-{number}" for number in numbers) if numbers else "no fields"))
    lines = [f"# {made.id}", "", "Drafted from sample messages. Cases hold these messages as they are.", ""]
    lines += ["| seen | values |", "|---|---|", *(f"| {name} | {_cell(text)} |" for name, text in rows)]
    lines += ["", "## To do", "", *(_to_do(made, found) or ["Nothing was found that the general maps do not read."])]
    lines += ["", "## Codes by field", "", "| field | values |", "|---|---|"]
    lines += [f"| {name} | {_cell(listed(values))} |" for name, values in sorted(found.codes.items())]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _to_do(made: Draft, found: Survey) -> list[str]:
    lines = [f"- {name} has a place in the maps: no field of it is read." for name in sorted(found.z_segments)]
    lines += [
        f"- {kind.replace('_', '^', 1)} ({count} messages) has no general map: write one and add it to `mappings`."
        for kind, count in made.without_map.items()
    ]
    lines += [
        f"- Codes without a target in {table}: {listed(codes)}. Map them for this sender (`ipfctl unmapped`), or with "
        "a ConceptMap of the vendor's own."
        for table, codes in sorted(made.unmapped.items())
    ]
    lines += [f"- This message fails: {text}" for text in made.failing]
    lines += [f"- {name} holds no HL7 v2 message and was left out." for name in found.skipped]
    if found.times["day or month first"] and "timestamps" not in quirks_for(found):
        lines.append("- Times have the day or the month first: ask the sender, and set the quirk `timestamps`.")
    if found.times["other"]:
        lines.append(f"- {found.times['other']} times have a format that no quirk reads.")
    return lines
