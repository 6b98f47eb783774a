"""The validator: a resource in, findings out.

A resource is validated against its type, the profiles in its `meta.profile` and the profiles that the caller names.
Contained resources and entries of a Bundle are validated too.  Profiles are compiled on first use.  The validator reads
nothing from the store: of a reference to another resource it checks the type that the text names.

Source: https://hl7.org/fhir/R4/validation.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipf.fhir.fhirpath import FhirPathError, Host
from ipf.fhir.fhirpath.evaluation.terms import terminology_host
from ipf.fhir.model.definitions import definitions
from ipf.fhir.profiles.library import Structures
from ipf.fhir.profiles.rows import canonical
from ipf.fhir.terminology import Terminology
from ipf.fhir.validation.checks.bundles import BundleIndex, check_bundle
from ipf.fhir.validation.checks.definitions import check_profile
from ipf.fhir.validation.findings import Check, Contained, Finding, Json, Policy, Run, Scope, failed, used_up
from ipf.fhir.validation.profiles.compiler import Compiler
from ipf.fhir.validation.profiles.slicing import is_in_slice
from ipf.fhir.validation.proposals import nearest, profile_meant
from ipf.fhir.validation.questionnaires import Form, check_response, read_form

R4_ONLY = Policy()
MOST_FORMS = 1000


class Validator:
    """Validates against `structures` and `terminology`; `questionnaire` finds a Questionnaire by its canonical.
    One instance serves the process."""

    def __init__(
        self,
        structures: Structures | None = None,
        terminology: Terminology | None = None,
        questionnaire: Callable[[str], Json | None] = lambda canonical: None,
    ) -> None:
        self.structures = structures or Structures()
        self.terminology = terminology or Terminology()
        self.compiler = Compiler(self.structures, self.terminology, self)
        self._terms = terminology_host(self.terminology)
        self._questionnaire = questionnaire
        self._forms: dict[str, Form | None] = {}

    def validate(self, resource: Json, profiles: Sequence[str] = (), policy: Policy = R4_ONLY) -> list[Finding]:
        """The findings about a resource, without duplicates.  `profiles`: more canonicals that it must conform to."""
        location = str(resource.get("resourceType"))
        run = Run(Scope(resource, resource, lambda reference: None, location), policy)
        self._resource(resource, location, run, profiles, None, None)
        return list(dict.fromkeys([*used_up(run.left), *run.findings]))

    def validate_nested(
        self, value: Any, location: str, run: Run, profiles: Sequence[str], checks: Sequence[Check] = ()
    ) -> None:
        """Validate a resource within another: contained, in a Bundle, in Parameters; once in a run.

        `checks`: of a profile on the outer resource that has rules for the elements of this one.

        The type and each profile of the outer resource lead here, which would double the work with each level.
        """
        outer = run.scope
        contained = location.startswith(".contained[", len(outer.location))
        if contained and not run.policy.contained:
            return
        root, key = outer.root if contained else None, (location, tuple(profiles))
        try:
            if key not in run.nested:
                run.nested.add(key)
                self._resource(value, location, run, profiles, root, outer)
            if checks and type(value) is dict:
                run.scope = _scope(value, location, root, outer)
                for check in checks:
                    check(value, None, location, run)
        finally:
            run.scope = outer

    def conforms(self, value: Json, profile: str, run: Run) -> bool | None:
        """Whether a value conforms to a profile; None for an unknown profile.  A recursive call gives True."""
        key = (id(value), profile)
        if key not in run.conforming:
            run.conforming[key] = True
            check = self.compiler.profile(canonical(profile))
            if check is None:
                return None
            scope = run.scope
            inner_scope = Scope(value, value, scope.resolve, "") if "resourceType" in value else scope
            inner_run = Run(inner_scope, run.policy, conforming=run.conforming, depth=run.depth, left=run.left)
            check(value, None, "", inner_run)
            run.conforming[key] = not failed(inner_run.findings)
        return run.conforming[key]

    def host(self, run: Run) -> Host:
        """The FHIRPath host functions: references within the document, value sets, profiles."""
        terms = self._terms
        return Host(
            resolve=run.scope.resolve,
            member_of=terms.member_of,
            subsumes=terms.subsumes,
            conforms_to=lambda value, profile: self.conforms(value, profile, run) if isinstance(value, dict) else None,
            element_definition=self._element_definition,
            in_slice=lambda item, profile, name: self._in_slice(item, profile, name, run),
        )

    def host_for(self, resource: Json) -> Host:
        """As `host`, for expressions on a resource that is not validated."""
        return self.host(Run(Scope(resource, resource, lambda reference: None, ""), R4_ONLY))

    def _element_definition(self, path: str) -> Json | None:
        tree = self.compiler.tree(canonical(path.partition(".")[0]))
        node = tree.nodes.get(path) if tree is not None else None
        return node.element if node is not None else None

    def _in_slice(self, item: Any, profile: str, name: str, run: Run) -> bool | None:
        tree = self.compiler.tree(canonical(profile))
        if tree is None:
            raise FhirPathError("slice() does not know this profile")
        if name not in tree.slices:
            raise FhirPathError("slice(): the profile has no slice of this name")
        return is_in_slice(item, tree.slices[name], run)

    def _resource(
        self,
        value: Any,
        location: str,
        run: Run,
        profiles: Sequence[str],
        root: Json | None,
        outer: Scope | None,
    ) -> None:
        declared_type = value.get("resourceType") if isinstance(value, dict) else None
        kind = declared_type if isinstance(declared_type, str) else None
        check = self.compiler.profile(canonical(kind)) if kind in definitions().resource_types else None
        if check is None or kind is None:
            text, known = "resourceType is not a resource type of R4", sorted(definitions().resource_types)
            run.error("structure", text, location, lambda: nearest(kind or "", known))
            return
        run.scope = _scope(value, location, root, outer)
        index = run.scope.index
        check(value, None, location, run)
        if kind == "Bundle" and index is not None:
            check_bundle(value, index, location, run)
        if kind == "QuestionnaireResponse":
            self._answers(value, location, run)
        if kind == "StructureDefinition":
            check_profile(value, self.structures, location, run)
        for profile in dict.fromkeys([*self._declared_profiles(value, location, run), *map(canonical, profiles)]):
            if profile != canonical(kind):
                self._profile(profile, kind, value, location, run)

    def _answers(self, response: Json, location: str, run: Run) -> None:
        """Check a QuestionnaireResponse against its Questionnaire: contained in it, of a package, or stored."""
        url = response.get("questionnaire")
        if not isinstance(url, str):
            return
        form = self._form(url, response)
        if form is not None:
            check_response(response, form, location, self.terminology, run)
        else:
            text = f"not checked: the questionnaire {url[:200]} is unknown to this server"
            run.warn("not-found", text, f"{location}.questionnaire")

    def _form(self, url: str, response: Json) -> Form | None:
        if url.startswith("#"):
            found = Contained(response).find(url[1:])
            return read_form(found) if found is not None and found.get("resourceType") == "Questionnaire" else None
        if url not in self._forms:
            known = self._questionnaire(url)
            if len(self._forms) >= MOST_FORMS:
                self._forms.clear()  # canonicals come from clients
            self._forms[url] = read_form(known) if known is not None else None
        return self._forms[url]

    def _profile(self, profile: str, kind: str, value: Json, location: str, run: Run) -> None:
        of_type = self.compiler.base_type(profile)
        check = self.compiler.profile(profile)
        if of_type is None or check is None:
            failure = self.structures.failure(profile)
            if failure:
                run.warn("not-supported", f"not checked: {failure[:500]}", location)
                return
            text = f"not checked: the profile {profile[:200]} is unknown to this server"
            run.warn("not-found", text, location, lambda: profile_meant(profile))
        elif of_type != kind and not definitions().is_a(kind, of_type):
            run.error("structure", f"{profile} is a profile on {of_type}, not on {kind}", location)
        else:
            check(value, None, location, run)

    def _declared_profiles(self, value: Json, location: str, run: Run) -> list[str]:
        meta = value.get("meta")
        declared = meta.get("profile") if isinstance(meta, dict) else None
        return [one for one in declared if isinstance(one, str)] if isinstance(declared, list) else []


def _scope(value: Json, location: str, root: Json | None, outer: Scope | None) -> Scope:
    """The scope of a resource.  `root`: the one that contains it."""
    index = BundleIndex(value) if value.get("resourceType") in ("Bundle", "Parameters") else None
    contained = Contained(value) if root is None or outer is None else outer.contained
    return Scope(
        value, root or value, _resolver(value, root or value, index, outer, contained), location, index, contained
    )


def _resolver(
    value: Json, root: Json, index: BundleIndex | None, outer: Scope | None, contained: Contained
) -> Callable[[str], Json | None]:
    """The resolver of references in a resource: to contained resources of `root` and entries of the same Bundle."""
    enclosing: BundleIndex | None = outer.index if outer is not None else None

    def resolve(reference: str) -> Json | None:
        if reference[:1] == "#":
            return contained.find(reference[1:]) if reference[1:] else root
        if index is not None:
            found = index.find(reference, None)
            if found:
                return found[0]
        if enclosing is not None:
            found = enclosing.find(reference, enclosing.url_of(value))
            return found[0] if found else None
        return outer.resolve(reference) if outer is not None else None

    return resolve
