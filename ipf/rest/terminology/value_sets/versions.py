"""Versions of code systems that a request of $expand asks for: `system-version`, `force-system-version` and
`check-system-version`, each `system|version`.

Source: https://hl7.org/fhir/R4/valueset-operation-expand.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ipf.errors import Category, Problem
from ipf.fhir.terminology import Terminology
from ipf.fhir.terminology.valueset import Membership
from ipf.rest.http.arguments import Arguments


@dataclass(frozen=True, slots=True)
class Versions:
    """System -> version: where a value set names none; whatever it names; that it must have come to.

    `place`: the parameter with the last ones.
    """

    default: Mapping[str, str]
    forced: Mapping[str, str]
    checked: Mapping[str, str]
    place: str = "check-system-version"

    def applied(self, terminology: Terminology) -> Terminology:
        """The terminology with these versions."""
        if not (self.default or self.forced or self.checked):
            return terminology
        return terminology.with_versions({**self.checked, **self.default}, self.forced)

    def check(self, members: Membership, terminology: Terminology) -> None:
        """Problem INVALID when a value set uses another version than it must."""
        used = {one.url: one.version for one in members.rules}
        for url in members.codes:
            known = terminology.source(url)
            if known is not None and url not in used and known.version:
                used[url] = known.version
        for url, version in self.checked.items():
            if used.get(url, version) != version:
                text = f"the value set uses version {used[url][:100]} of {url[:200]}, not {version[:100]}"
                raise Problem(Category.INVALID, text, self.place)


def chosen_versions(arguments: Arguments) -> Versions:
    """The versions of a request.  Problem VALUE for one that is no `system|version`."""
    default, forced, checked = (_pairs(arguments, f"{kind}system-version") for kind in ("", "force-", "check-"))
    return Versions(default, forced, checked)


def _pairs(arguments: Arguments, name: str) -> dict[str, str]:
    found = {}
    for one in arguments.texts(name):
        system, mark, version = one.partition("|")
        if not (system and mark and version):
            raise Problem(Category.VALUE, f"{name} must be system|version", name)
        found[system] = version
    return found
