"""Validation of a profile: parsed, compiled with the maps in use, and run on its regression cases.

What arrives: the bytes of an archive, and the library of the general maps.  What leaves: a `Validation`, with a profile
when there are no errors.  Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ipf.errors import Problem
from ipf.fhir.model.json import loads
from ipf.hl7.message import Message
from ipf.mapping.language.model import StructureMap
from ipf.mapping.library.maps import Library, ProfiledMessage
from ipf.mapping.library.mapset import read_map
from ipf.ports import Claimed, Json
from ipf.ports.messages.mapping import Origin
from ipf.security.audit.rules import clean
from ipf.vendor_profiles.archive import MANIFEST, Archive, read_archive
from ipf.vendor_profiles.cases import Case, case_files, expectations, is_input, run_case
from ipf.vendor_profiles.findings import Finding, Findings
from ipf.vendor_profiles.manifest import Manifest, read_manifest
from ipf.vendor_profiles.map_names import with_names_of_ipf
from ipf.vendor_profiles.quirks import normalized

_LONGEST_DETAIL = 200


@dataclass(frozen=True, slots=True)
class Profile:
    """A valid profile.  `file`: name of its archive.  `library`: the general maps with its own."""

    file: str
    digest: str
    manifest: Manifest
    library: Library

    def has_map(self, message_type: str) -> bool:
        """Whether it has its own map for this type."""
        return self.library.has_map(message_type)

    def apply(self, message: Claimed) -> ProfiledMessage:
        """Apply the quirks to a message, and collect its audit details."""
        quirks, audit = self.manifest.quirks, self.manifest.audit
        library = self.library if self.has_map(message.message_type) else None
        if message.is_json:
            source = next((one for one in self.manifest.polled if one.listener == message.listener), None)
            origin = Origin(audit.agent_system, message.source_system) if audit.agent_system else None
            return ProfiledMessage(message, library, origin, source)
        read = normalized(message, quirks)
        origin = None
        if audit.agent_system or audit.enrichments:
            parsed = Message.parse(read.raw, read.charset or None)
            details = ((name, clean(field.read(parsed), _LONGEST_DETAIL)) for name, field in audit.enrichments)
            origin = Origin(audit.agent_system, message.source_system, tuple(one for one in details if one[1]))
        return ProfiledMessage(read, library, origin)


@dataclass(frozen=True, slots=True)
class Validation:
    """The result for an archive.  `profile` None: it is invalid, and `findings` say why."""

    manifest: Manifest | None
    findings: tuple[Finding, ...]
    cases: tuple[Case, ...]
    profile: Profile | None

    def as_json(self) -> Json:
        """The response of `POST /admin/api/profiles/validate`."""
        failed = sum(1 for case in self.cases if not case.passed)
        return {
            "valid": self.profile is not None,
            "profile": profile_json(self.manifest) if self.manifest is not None else None,
            "ingest": served(self.manifest) if self.manifest is not None else [],
            "mappings": mappings(self.manifest, self.profile) if self.manifest is not None else [],
            "tests": {
                "passed": len(self.cases) - failed,
                "failed": failed,
                "cases": [case.as_json() for case in self.cases],
            },
            "problems": [finding.as_json() for finding in self.findings],
        }


def profile_json(manifest: Manifest) -> Json:
    """Identity of a profile: id, version, vendor."""
    vendor = manifest.vendor
    return {
        "id": manifest.id,
        "version": manifest.version,
        "vendor": {
            "name": vendor.name,
            "productLine": vendor.product_line or None,
            "productVersion": vendor.product_version or None,
            "fhirVersions": list(vendor.fhir_versions),
            "hl7Versions": list(vendor.hl7_versions),
        },
    }


def served(manifest: Manifest) -> list[Json]:
    """Whether each ingest item is served; `reason`: why not."""
    return [
        {"id": item.id, "type": item.type, "served": not item.reason, "reason": item.reason or None}
        for item in manifest.served
    ]


def mappings(manifest: Manifest, profile: Profile | None) -> list[Json]:
    """The map of each message type; `url` null: it does not compile."""
    return [
        {
            **item.named_type(),
            "map": item.map,
            "url": profile.library.map_url(item.message_type) if profile is not None else None,
            "tests": list(item.tests),
        }
        for item in manifest.mappings
    ]


def validate_profile(content: bytes, file: str, library: Library, *, run_cases: bool = True) -> Validation:
    """Validate an archive.  Problem MALFORMED: it is no archive; TOO_LARGE: it exceeds a limit.

    `run_cases` False: skip the regression cases.
    """
    findings = Findings()
    archive = read_archive(content, findings)
    manifest = None
    if MANIFEST in archive.files:
        manifest = read_manifest(archive.files[MANIFEST], findings)
    else:
        findings.error(MANIFEST, "", "is missing")
    if manifest is None:
        return Validation(None, tuple(findings.items), (), None)
    made = _compiled(archive, manifest, library, findings)
    _check_paths(archive, manifest, findings)
    cases: tuple[Case, ...] = ()
    if made is not None and run_cases:
        cases = tuple(_cases(archive, manifest, made))
        failed = [case for case in cases if not case.passed]
        for case in failed:
            findings.error(case.path, "", f"this regression case fails: {case.message}")
    usable = made is not None and not findings.errors
    profile = Profile(file, archive.digest, manifest, made) if usable and made is not None else None
    return Validation(manifest, tuple(findings.items), cases, profile)


def _compiled(archive: Archive, manifest: Manifest, library: Library, findings: Findings) -> Library | None:
    """The general maps with those of the archive, which take precedence; None when one is broken."""
    before = len(findings.errors)
    maps: dict[str, StructureMap] = {}
    tables: list[Mapping[str, Any]] = []
    for path in sorted(archive.files):
        if path.startswith("maps/"):
            _read_map(path, archive.files[path], maps, tables, findings)
    types = {}
    for item in manifest.mappings:
        found = maps.get(item.map)
        if found is not None:
            types[item.message_type] = found.url
        elif item.map and item.map not in archive.files:
            findings.error(MANIFEST, f"{item.pointer}/map", f"there is no file {item.map}", item.line)
        elif item.map and not item.map.startswith("maps/"):
            findings.error(MANIFEST, f"{item.pointer}/map", "maps are below maps/", item.line)
    if len(findings.errors) > before:
        return None
    try:
        made = library.with_profile(maps.values(), types, tables)
        for one in maps.values():
            made.check(one.url)
    except Problem as problem:
        findings.problem("maps", problem)
        return None
    return made


def _read_map(
    path: str, content: bytes, maps: dict[str, StructureMap], tables: list[Mapping[str, Any]], findings: Findings
) -> None:
    """A map by its path, or a ConceptMap."""
    try:
        if path.endswith(".json"):
            resource = loads(content)
            if isinstance(resource, dict) and resource.get("resourceType") == "ConceptMap":
                tables.append(resource)
                return
        elif not path.endswith((".fml", ".map")):
            findings.warning(path, "", "is neither a map (.fml, .map) nor a resource (.json), and is ignored")
            return
        made, renamed = with_names_of_ipf(read_map(content, path))
    except Problem as problem:
        findings.problem(path, problem)
        return
    if renamed:
        findings.note(path, "", f"{renamed} names of HL7 v2 in lower case are read as src.PID, pid.PID_3, cx.CX_1")
    twin = next((other for other, one in maps.items() if one.url == made.url), None)
    if twin is not None:
        findings.error(path, "", f"has the url of {twin}: {made.url}")
    maps[path] = made


def _check_paths(archive: Archive, manifest: Manifest, findings: Findings) -> None:
    named: set[str] = set()
    for item in manifest.mappings:
        for place, path in enumerate(item.tests):
            at = f"{item.pointer}/tests/{place}"
            cases = case_files(path, item, archive.files)
            named.update(cases)
            if not cases:
                findings.error(MANIFEST, at, f"there is no file {path}, and no folder with cases", item.line)
            elif not all(is_input(one) for one in cases):
                findings.error(MANIFEST, at, "a case is tests/*.hl7, or a folder tests/*/ with input.hl7", item.line)
            elif cases != [path]:
                findings.note(MANIFEST, at, f"the folder is read as {', '.join(cases)}", item.line)
            for one in cases:
                if expectations(one, archive.files) == (None, None) and one.rpartition(".")[0].endswith("/input"):
                    findings.warning(one, "", "has no expected.json, so only that the map takes it is checked")
    for path in sorted(archive.files):
        if is_input(path) and path not in named:
            findings.warning(path, "", "no mapping lists this case, so it is not run")
    if manifest.mappings and not manifest.served:
        findings.warning(MANIFEST, "/ingest", "no ingest item selects messages for these maps")


def _cases(archive: Archive, manifest: Manifest, library: Library) -> Iterator[Case]:
    for item in manifest.mappings:
        for name in item.tests:
            for path in case_files(name, item, archive.files):
                yield run_case(path, item, archive.files, library, manifest)
