"""The check of extensions: known ones against their definition and its contexts; unknown ones are reported.

An extension with an unknown definition gives an information.  An unknown modifier extension gives a warning, because
a receiver that does not understand it must not use the resource.

Source: https://hl7.org/fhir/R4/extensibility.html, https://hl7.org/fhir/R4/defining-extensions.html#context
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipf.fhir.validation.checks.contexts import broken_invariant, is_allowed, is_allowed_at
from ipf.fhir.validation.findings import Check, Json, Run

Definition = Callable[[str], Json | None]
CheckOf = Callable[[str], Check | None]


def extension_check(
    base: Check, definition: Definition, check_of: CheckOf, modifier: bool, hosts: frozenset[str]
) -> Check:
    """The check of one extension.  `base`: the check of type Extension; `hosts`: names of the extended element."""
    allowed: dict[str, bool | None] = {}

    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        url = value.get("url") if type(value) is dict else None
        known = definition(url) if type(url) is str and ":" in url else None
        if type(url) is not str or known is None or known.get("type") != "Extension":
            base(value, extra, location, run)
            if type(url) is str and (":" in url or "Extension" not in hosts):
                _unknown(url, modifier, location, run)
            return
        profile_check = check_of(url)
        (profile_check or base)(value, extra, location, run)
        if url not in allowed:
            allowed[url] = is_allowed(known, hosts)
        if allowed[url] is not True and not is_allowed_at(known, location, run):
            locations = ", ".join(one.get("expression", "") for one in known.get("context", ()))
            run.error("extension", f"the extension {url} is not allowed here, only on: {locations}", location)
        broken = broken_invariant(known, value, location, run)
        if broken is not None:
            run.error("extension", f"the extension {url} demands here: {broken}", location)

    return check


def _unknown(url: str, modifier: bool, location: str, run: Run) -> None:
    if ":" not in url:
        run.error("extension", f"the extension's url '{url[:100]}' must be absolute", location)
    elif modifier:
        run.warn("extension", f"the modifier extension {url[:200]} is unknown to this server", location)
    else:
        severity = run.policy.unknown_extensions
        run.add(severity, "extension", f"not checked: the extension {url[:200]} is unknown to this server", location)
