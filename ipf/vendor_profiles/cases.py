"""Regression cases of a profile: a message, and its expected result.

`tests/name.hl7` is the message.  The expectation is `name.json`, the expected resources, or `name.error`, a text that
the error must contain (blank: any error).  In the other layout a case is a folder with `input.hl7` and `expected.json`
or `expected.error`; the input of a source that sends no HL7 v2 is `input.json`.

A comparison covers the members of the expectation only: other members may be present, `null` requires that a member is
absent, and lists are compared in any order.  `total` of a Bundle is the expected number of resources.  A member whose
value is `<placeholder...>` (the other layout, for ids) is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ipf.errors import Problem
from ipf.fhir.model.json import dumps, loads
from ipf.hl7.charset import DEFAULT_FALLBACK, decode, sniff
from ipf.hl7.header import missing_part, scan_header
from ipf.mapping.compiler.conversions import zone_offset
from ipf.mapping.library import polled
from ipf.mapping.library.maps import Library, ProfiledMessage
from ipf.mapping.library.mapset import transform
from ipf.mapping.runtime.zone import zone_of_sender
from ipf.ports import Claimed, Json, UnmappedCode
from ipf.ports.messages.sources import FHIR_REST, FHIR_TYPE, PolledSource
from ipf.vendor_profiles.manifest import Manifest, MappingItem
from ipf.vendor_profiles.quirks import control_id, fallback_charset, normalized

SUFFIX = ".hl7"
JSON_INPUT = "input.json"
_EXCERPT = 300
_PLACEHOLDER = "<placeholder"


@dataclass(frozen=True, slots=True)
class Case:
    """Result of one case; `message`: the reason of a failure."""

    path: str
    item: MappingItem
    passed: bool
    message: str = ""

    def as_json(self) -> Json:
        """As the admin API shows it."""
        return {
            "path": self.path,
            **self.item.named_type(),
            "passed": self.passed,
            "message": self.message or None,
        }


def case_files(name: str, item: MappingItem, files: Mapping[str, bytes]) -> list[str]:
    """The inputs of an entry of `tests`: itself, or those of a folder; empty when there are none."""
    if name in files:
        return [name]
    folder, suffix = f"{name.rstrip('/')}/", JSON_INPUT if item.is_source_type else SUFFIX
    return sorted(path for path in files if path.startswith(folder) and path.endswith(suffix))


def is_input(path: str) -> bool:
    """Whether a file of an archive is the input of a case."""
    return path.startswith("tests/") and (path.endswith((SUFFIX, f"/{JSON_INPUT}")))


def expectations(path: str, files: Mapping[str, bytes]) -> tuple[bytes | None, bytes | None]:
    """The expected resources and the expected error of an input; None: there is no such file."""
    stem = path.rpartition(".")[0]
    beside = f"{path.rpartition('/')[0]}/expected"
    stems = (beside,) if path.endswith(f"/{JSON_INPUT}") else (stem, beside) if stem.endswith("/input") else (stem,)
    found = [(files.get(f"{one}.json"), files.get(f"{one}.error")) for one in stems]
    return next((one for one in found if one != (None, None)), (None, None))


class Refused(Exception):
    """The message is refused on receipt, or cannot be mapped."""


def run_case(path: str, item: MappingItem, files: Mapping[str, bytes], library: Library, manifest: Manifest) -> Case:
    """Run one case: receive, apply quirks, and map its message; or map and normalize its JSON."""
    wanted, reason = expectations(path, files)
    stem = path.rpartition(".")[0]
    without = (wanted, reason) == (None, None) and stem.endswith("/input")
    if (wanted is None) == (reason is None) and not without:
        return Case(path, item, False, f"needs either {stem}.json or {stem}.error")
    try:
        bundle = _bundle(path, item, files, library, manifest)
    except Refused as refused:
        if reason is None:
            return Case(path, item, False, str(refused))
        text = reason.decode("utf-8", "replace").strip()
        if text.lower() in str(refused).lower():
            return Case(path, item, True)
        return Case(path, item, False, f"expected the error {text!r}, but it is: {refused}")
    if without:
        return Case(path, item, True, "without an expectation: the map takes it, its result is not compared")
    if wanted is None:
        return Case(path, item, False, "expected an error, but the message was mapped")
    try:
        difference = compare(loads(wanted), bundle)
    except Problem as problem:
        difference = f"the expectation cannot be read: {problem}"
    return Case(path, item, not difference, difference)


def _bundle(path: str, item: MappingItem, files: Mapping[str, bytes], library: Library, manifest: Manifest) -> Json:
    if not item.is_source_type:
        with zone_of_sender(zone_offset(manifest.time_zone) if manifest.time_zone else None):
            return received_and_mapped(files[path], item.message_type, library, manifest.quirks)[0]
    source = _source_of(item.message_type, manifest)
    if source is None:
        return _mapped_json(files[path], item.message_type, library)
    return _fetched_and_mapped(files[path], item.message_type, library, source)


def _source_of(message_type: str, manifest: Manifest) -> PolledSource | None:
    """The polled source that fetches what has this type; None: no item of the profile does."""
    for source in manifest.polled:
        if source.protocol == FHIR_REST and message_type.removeprefix(FHIR_TYPE) in source.fetched_types:
            return source
        if any(feed.message_type == message_type for feed in source.feeds):
            return source
    return None


def _fetched_and_mapped(content: bytes, source_type: str, library: Library, source: PolledSource) -> Json:
    """The result of a row of a polled source.  Raises Refused."""
    claimed = Claimed(
        0, 0, "", datetime.now(UTC), source.source_system, "case", source_type, content, "utf-8", 0,
        listener=source.listener, source_protocol=source.protocol,
    )  # fmt: skip
    try:
        return polled.explain(library, ProfiledMessage(claimed, library, source=source), claimed, None).bundle
    except Problem as problem:
        raise Refused(f"not mapped: {problem}") from problem
    except Exception as error:  # an internal error fails the case, not the process
        raise Refused(f"not mapped: unexpected {type(error).__name__}") from error


def _mapped_json(content: bytes, source_type: str, library: Library) -> Json:
    """The result of a map for JSON that no item of the profile fetches, as a Bundle.  Raises Refused."""
    try:
        made = transform(library.program_for(source_type), loads(content)).target
    except Problem as problem:
        raise Refused(f"not mapped: {problem}") from problem
    except Exception as error:  # an internal error fails the case, not the process
        raise Refused(f"not mapped: unexpected {type(error).__name__}") from error
    return made if made.get("resourceType") == "Bundle" else {"resourceType": "Bundle", "entry": [{"resource": made}]}


def received_and_mapped(
    frame: bytes, message_type: str, library: Library, quirks: Mapping[str, str]
) -> tuple[Json, tuple[UnmappedCode, ...]]:
    """The Bundle of a message, and its codes without a target.  Raises Refused."""
    try:
        message = _received(frame, quirks)
    except Problem as problem:
        raise Refused(f"refused: {problem}") from problem
    if message.message_type != message_type:
        raise Refused(f"refused: this is a message of type {message.message_type}, not {message_type}")
    try:
        mapped = library.transform(normalized(message, quirks))
        bundle = mapped.bundle
    except Problem as problem:
        raise Refused(f"not mapped: {problem}") from problem
    except Exception as error:  # as in the converter: an internal error fails the message, not the process
        raise Refused(f"not mapped: unexpected {type(error).__name__}") from error
    entries = bundle.get("entry", []) if bundle.get("resourceType") == "Bundle" else None
    if not isinstance(entries, list) or not all(isinstance(one, dict) and "resource" in one for one in entries):
        raise Refused("not mapped: the map makes no Bundle whose entries have resources")
    return bundle, mapped.unmapped


def _received(frame: bytes, quirks: Mapping[str, str]) -> Claimed:
    header = scan_header(frame)
    header.source_id = header.source_id or control_id(quirks, frame)
    missing = missing_part(header)
    if missing is not None:
        raise missing
    fallback = fallback_charset(quirks) or DEFAULT_FALLBACK
    codec = (sniff(frame) if frame[:3] != b"MSH" else None) or decode(frame, header.charset_names, fallback).codec
    return Claimed(
        0, 0, "", datetime.now(UTC), header.source_system, header.source_id, header.message_type, frame, codec, 0
    )


# ------------------------------------------------------------------------------------------------------- compare


def compare(wanted: Any, bundle: Json) -> str:
    """The first difference between expectation and Bundle; empty = none.  `wanted`: a Bundle, a list of resources, or a
    resource.
    """
    made = [entry.get("resource") for entry in bundle.get("entry", ())]
    if isinstance(wanted, dict) and wanted.get("resourceType") == "Bundle":
        total = wanted.get("total")
        if total is not None and total != len(made):
            return f"expected {total} resources, found {len(made)}"
        expected = [entry.get("resource") for entry in wanted.get("entry", ())]
    else:
        expected = wanted if isinstance(wanted, list) else [wanted]
    if not all(isinstance(one, dict) and "resourceType" in one for one in expected):
        return "the expectation must be a Bundle, a resource, or a list of resources"
    if all_matched(expected, made):
        return ""
    for one in expected:
        alike = [other for other in made if isinstance(other, dict) and other["resourceType"] == one["resourceType"]]
        if not any(matches(one, other) for other in alike):
            return _difference(one, alike)
    return "one resource was expected more often than it is present"


def matches(wanted: Any, found: Any) -> bool:
    """Whether `found` has all members of `wanted`."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            name not in found if value is None else name in found and matches(value, found[name])
            for name, value in wanted.items()
            if not (isinstance(value, str) and value.startswith(_PLACEHOLDER))
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and all_matched(wanted, found)
    return (type(wanted) is type(found) and bool(wanted == found)) or _numbers(wanted, found)


def _numbers(wanted: Any, found: Any) -> bool:
    """Numbers are compared by value."""
    if isinstance(wanted, bool) or isinstance(found, bool) or isinstance(wanted, str) or isinstance(found, str):
        return False
    return bool(wanted == found)


def all_matched(wanted: Sequence[Any], found: Sequence[Any]) -> bool:
    """Whether each wanted item has its own match among those found (augmenting paths)."""
    owner: dict[int, int] = {}

    def place(number: int, seen: set[int]) -> bool:
        for at, one in enumerate(found):
            if at not in seen and matches(wanted[number], one):
                seen.add(at)
                if at not in owner or place(owner[at], seen):
                    owner[at] = number
                    return True
        return False

    return all(place(number, set()) for number in range(len(wanted)))


def _difference(wanted: Json, alike: Sequence[Json]) -> str:
    kind = wanted["resourceType"]
    if not alike:
        return f"no {kind} was made"
    if len(alike) > 1:
        return f"none of the {len(alike)} {kind} resources is as expected"
    for name, value in wanted.items():
        found = alike[0].get(name)
        if not matches({name: value}, alike[0]):
            return f"{kind}.{name}: expected {_excerpt(value)}, found {_excerpt(found)}"
    return f"{kind} is not as expected"


def _excerpt(value: Any) -> str:
    if value is None:
        return "nothing"
    text = dumps(value).decode()
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "..."
