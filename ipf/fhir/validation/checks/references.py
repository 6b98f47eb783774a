"""The check of references: the type and the profile of the target.

The type is taken from the reference itself (`Patient/1`, `.../Patient/1`), from `Reference.type`, or from the resource
when it is contained or in the same Bundle.  The existence of other resources is not checked.

Source: https://hl7.org/fhir/R4/references.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ipf.fhir.model.definitions import definitions
from ipf.fhir.validation.findings import Check, Json, Run

_RESTFUL = re.compile(r"(?:.*/)?([A-Z][A-Za-z]+)/[A-Za-z0-9\-.]{1,64}(?:/_history/[A-Za-z0-9\-.]{1,64})?$")
_CORE = "http://hl7.org/fhir/StructureDefinition/"
Conforms = Callable[[Json, str, Run], bool | None]
BaseType = Callable[[str], str | None]


def reference_check(targets: Sequence[str], base_type: BaseType, conforms: Conforms) -> Check:
    """The check of Reference values.  `targets`: allowed profiles (empty: any).  `base_type`: the type of a profile."""
    allowed = {kind for kind in map(base_type, targets) if kind is not None}
    known = len(targets) > 0 and len(allowed) > 0 and all(base_type(one) is not None for one in targets)
    anything = not known or "Resource" in allowed or "DomainResource" in allowed
    profiles = [] if anything else [one for one in targets if not _is_type(one)]
    plain = {base_type(one) for one in targets if _is_type(one)}
    allowed_types = ", ".join(sorted(allowed))

    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        text = value.get("reference") if type(value) is dict else 0
        if type(text) is not str:
            if type(value) is not dict:
                return
            declared_type = value.get("type")
            if (
                not anything
                and type(declared_type) is str
                and declared_type not in allowed
                and declared_type in definitions().resource_types
            ):
                run.error(
                    "structure",
                    f"a reference to {declared_type} is not allowed here, only to {allowed_types}",
                    location,
                )
            return
        found, named = run.scope.resolve(text), target_type(text)
        if found is not None and named not in (None, found.get("resourceType")):
            run.error(
                "structure", f"the reference names a {named}, its target is a {found.get('resourceType')}", location
            )
        elif found is None and run.policy.exists is not None and named and not run.policy.exists(text):
            run.error("not-found", f"the target {text[:100]} does not exist", location)
        kind = found.get("resourceType") if found is not None else named or value.get("type")
        if type(kind) is not str or anything:
            return
        if kind not in allowed and kind in definitions().resource_types:
            run.error("structure", f"a reference to {kind} is not allowed here, only to {allowed_types}", location)
        elif found is not None and profiles and kind not in plain:
            _check_profiles(found, [one for one in profiles if base_type(one) == kind], location, run, conforms)

    return check


def _check_profiles(found: Json, profiles: list[str], location: str, run: Run, conforms: Conforms) -> None:
    results = [conforms(found, one, run) for one in profiles]
    if results and not any(result is not False for result in results):
        names = ", ".join(one.rpartition("/")[2] for one in profiles)
        run.error("structure", f"the target of the reference conforms to none of: {names}", location)


def target_type(reference: str) -> str | None:
    """The resource type in the text of a reference; None for `urn:`, `#` and other urls."""
    if reference[:1] == "#" or reference[:4] == "urn:":
        return None
    match = _RESTFUL.fullmatch(reference.partition("?")[0])
    kind = match[1] if match else None
    return kind if kind in definitions().resource_types else None


def _is_type(profile: str) -> bool:
    name = profile.removeprefix(_CORE)
    return "/" not in name and definitions().is_type(name)
