"""The validator: a resource in, findings out.

A resource is checked by its type, by the profiles in its `meta.profile`, and by those that the caller names; what is in
it (contained, entries of a Bundle) likewise.  Everything needed is compiled when it is first met, so the first resource
of a type costs milliseconds, the next ones a fraction of one.  Nothing is read from elsewhere: references to what is
not in the resource are checked by their form.

Source: https://hl7.org/fhir/R4/validation.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipf.fhir.fhirpath import Host
from ipf.fhir.model.definitions import definitions
from ipf.fhir.profiles.library import Structures
from ipf.fhir.profiles.rows import canonical
from ipf.fhir.terminology import Terminology
from ipf.fhir.validation.bundles import Index, check_bundle
from ipf.fhir.validation.compiler import Compiler
from ipf.fhir.validation.findings import Finding, Json, Policy, Run, Scope, failed

R4_ONLY = Policy()


class Validator:
    """Validates against what `structures` and `terminology` know.  Made once, used for the life of the process."""

    def __init__(self, structures: Structures | None = None, terminology: Terminology | None = None) -> None:
        self.structures = structures or Structures()
        self.terminology = terminology or Terminology()
        self.compiler = Compiler(self.structures, self.terminology, self)

    def validate(self, resource: Json, profiles: Sequence[str] = (), policy: Policy = R4_ONLY) -> list[Finding]:
        """What is wrong with a resource, each thing once.  `profiles`: canonicals that it must conform to as well."""
        place = str(resource.get("resourceType"))
        run = Run(Scope(resource, resource, lambda reference: None, place), policy)
        self._resource(resource, place, run, profiles, None, None)
        return list(dict.fromkeys(run.findings))

    def nested(self, value: Any, place: str, run: Run, profiles: Sequence[str]) -> None:
        """Check a resource inside another: contained, in a Bundle, in Parameters."""
        outer = run.scope
        contained = place.startswith(".contained[", len(outer.place))
        if contained and not run.policy.contained:
            return
        try:
            self._resource(value, place, run, profiles, outer.root if contained else None, outer)
        finally:
            run.scope = outer

    def conforms(self, value: Json, profile: str, run: Run) -> bool | None:
        """Whether a value is valid by a profile; None when the profile is not known.  Asked again meanwhile: True."""
        key = (id(value), profile)
        if key not in run.conforming:
            run.conforming[key] = True
            check = self.compiler.profile(canonical(profile))
            if check is None:
                return None
            scope = run.scope
            inside = Scope(value, value, scope.resolve, "") if "resourceType" in value else scope
            silent = Run(inside, run.policy, conforming=run.conforming, depth=run.depth)
            check(value, None, "", silent)
            run.conforming[key] = not failed(silent.findings)
        return run.conforming[key]

    def host(self, run: Run) -> Host:
        """The host of FHIRPath: resources of the same document, value sets, profiles."""
        return Host(
            resolve=run.scope.resolve,
            member_of=self._member_of,
            conforms_to=lambda value, profile: self.conforms(value, profile, run) if isinstance(value, dict) else None,
        )

    def _resource(
        self,
        value: Any,
        place: str,
        run: Run,
        profiles: Sequence[str],
        root: Json | None,
        outer: Scope | None,
    ) -> None:
        said = value.get("resourceType") if isinstance(value, dict) else None
        kind = said if isinstance(said, str) else None
        check = self.compiler.profile(canonical(kind)) if kind in definitions().resource_types else None
        if check is None or kind is None:
            run.error("structure", "resourceType names no resource of R4", place)
            return
        index = Index(value) if kind in ("Bundle", "Parameters") else None
        run.scope = Scope(value, root or value, _resolver(value, root or value, index, outer), place, index)
        check(value, None, place, run)
        if kind == "Bundle" and index is not None:
            check_bundle(value, index, place, run)
        for profile in dict.fromkeys([*self._claimed(value, place, run), *map(canonical, profiles)]):
            if profile != canonical(kind):
                self._profile(profile, kind, value, place, run)

    def _profile(self, profile: str, kind: str, value: Json, place: str, run: Run) -> None:
        of_type = self.compiler.base_type(profile)
        check = self.compiler.profile(profile)
        if of_type is None or check is None:
            run.warn("not-found", f"not checked: the profile {profile[:200]} is not known here", place)
        elif of_type != kind and not definitions().is_a(kind, of_type):
            run.error("structure", f"{profile} is a profile on {of_type}, not on {kind}", place)
        else:
            check(value, None, place, run)

    def _claimed(self, value: Json, place: str, run: Run) -> list[str]:
        meta = value.get("meta")
        claimed = meta.get("profile") if isinstance(meta, dict) else None
        return [one for one in claimed if isinstance(one, str)] if isinstance(claimed, list) else []

    def _member_of(self, value: Any, value_set: str) -> bool | None:
        if isinstance(value, str):
            return self.terminology.contains(value_set, None, value)
        codings = value.get("coding", [value]) if isinstance(value, dict) else []
        pairs = [(one.get("system"), one.get("code")) for one in codings if isinstance(one, dict)]
        answers = [
            self.terminology.contains(value_set, system, code) for system, code in pairs if isinstance(code, str)
        ]
        return True if True in answers else None if None in answers else False


def _resolver(value: Json, root: Json, index: Index | None, outer: Scope | None) -> Callable[[str], Json | None]:
    """How references in a resource are resolved: contained in `root`, or an entry of the Bundle around."""
    around: Index | None = outer.index if outer is not None else None

    def resolve(reference: str) -> Json | None:
        if reference[:1] == "#":
            return _contained(root, reference[1:])
        if index is not None:
            found = index.find(reference, None)
            if found:
                return found[0]
        if around is not None:
            found = around.find(reference, around.url_of(value))
            return found[0] if found else None
        return outer.resolve(reference) if outer is not None else None

    return resolve


def _contained(root: Json, id: str) -> Json | None:
    if not id:
        return root
    contained = root.get("contained")
    found = (
        (one for one in contained if isinstance(one, dict) and one.get("id") == id)
        if isinstance(contained, list)
        else ()
    )
    return next(iter(found), None)
