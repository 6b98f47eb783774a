"""The profiles in use, and the profile of each message, by the port it arrived on and the content of its MSH.

Each ingest item of a manifest is a rule.  The most specific matching rule wins: port and facility, then port alone,
then facility alone.  So the MSH of a message cannot override the profile and the tenant of its port.  A registry is
immutable; a reload makes a new one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ipf.hl7.header import Header, scan_header
from ipf.mapping.compiler.conversions import zone_offset
from ipf.mapping.library.maps import ProfiledMessage, VendorProfiles
from ipf.mapping.runtime.zone import Offset
from ipf.ports import Claimed
from ipf.vendor_profiles.archive import MANIFEST
from ipf.vendor_profiles.findings import Findings
from ipf.vendor_profiles.manifest import Ingest, Manifest
from ipf.vendor_profiles.profile import Profile
from ipf.vendor_profiles.source_fields import LISTENER, resolved

_PORT = re.compile(r"(?:tcp6?|ssl|tls|mtls):(?:port=)?(\d+)(?::|\Z)")


@dataclass(frozen=True, slots=True)
class Deployment:
    """The listeners and tenants of this installation.  `ports`: port by name of MLLP listener.

    `tenants`: tenant by name of listener, where the settings state one.  `allowed`: configured tenants; empty = any.
    """

    ports: Mapping[str, int]
    tenants: Mapping[str, str]
    allowed: frozenset[str] = frozenset()

    def listeners(self, port: int) -> frozenset[str]:
        """Names of the listeners on this port: from the settings, or the one that a profile opens."""
        return frozenset(name for name, one in self.ports.items() if one == port) | {listener_name(port)}

    def check(self, manifest: Manifest, findings: Findings) -> None:
        """Report tenants that are not configured, or differ from the tenant of the listener."""
        for item in manifest.ingest:
            if item.tenant is None:
                continue
            if self.allowed and item.tenant not in self.allowed:
                findings.error(MANIFEST, f"{item.pointer}/tenant", "is not among IPF_TENANTS", item.line)
            for name in _listeners(item, self) or ():
                stated = self.tenants.get(name)
                if stated is not None and stated != item.tenant:
                    text = f"IPF_MLLP_TENANTS assigns listener {name} to tenant {stated}"
                    findings.error(MANIFEST, f"{item.pointer}/tenant", text, item.line)


@dataclass(frozen=True, slots=True)
class Rule:
    """Matches the messages of one profile.  `listeners`, `facilities` None: any.  `zone`: of times without offset."""

    listeners: frozenset[str] | None
    resolver: str
    facilities: frozenset[str] | None
    tenant: str | None
    profile: Profile
    zone: Offset | None = None

    @property
    def rank(self) -> int:
        """Sort key: the most specific rule first."""
        return 2 * (self.listeners is None) + (self.facilities is None)

    def matches(self, listener: str, header: Header | None) -> bool:
        """Whether a message matches this rule."""
        if self.listeners is not None and listener not in self.listeners:
            return False
        if self.facilities is None:
            return True
        return header is not None and resolved(self.resolver, header, listener) in self.facilities


class ProfileRegistry:
    """`VendorProfiles` of the mapping library, and rules for the receiver.  `profiles`: in the order of their files."""

    def __init__(self, profiles: Sequence[Profile], deployment: Deployment) -> None:
        self.profiles = tuple(profiles)
        rules = [_rule(item, profile, deployment) for profile in profiles for item in profile.manifest.ingest]
        self._rules = sorted(rules, key=lambda rule: rule.rank)
        self._polled = {one.listener: profile for profile in profiles for one in profile.manifest.polled}
        self._needs_header = any(rule.facilities is not None for rule in rules)

    def rule_for(self, listener: str, header: Header) -> Rule | None:
        """The rule of a message that is being received."""
        return next((rule for rule in self._rules if rule.matches(listener, header)), None)

    def apply(self, message: Claimed) -> ProfiledMessage | None:
        """See `VendorProfiles.apply`."""
        if message.is_json:
            polled = self._polled.get(message.listener)
            return None if polled is None else polled.apply(message)
        rule = self._rule(message)
        return None if rule is None else replace(rule.profile.apply(message), zone=rule.zone)

    def has_map(self, message: Claimed) -> bool:
        """See `VendorProfiles.has_map`."""
        profile = self._profile(message)
        return profile is not None and profile.has_map(message.message_type)

    def _profile(self, message: Claimed) -> Profile | None:
        if message.is_json:
            return self._polled.get(message.listener)
        rule = self._rule(message)
        return rule.profile if rule is not None else None

    def _rule(self, message: Claimed) -> Rule | None:
        header = scan_header(message.raw) if self._needs_header else None
        return next((rule for rule in self._rules if rule.matches(message.listener, header)), None)


def conflicts(manifest: Manifest, others: Iterable[Profile], findings: Findings) -> None:
    """Report an id or an ingest rule that a profile in use already has."""
    for other in others:
        if other.manifest.id == manifest.id:
            findings.error(MANIFEST, "/profile/id", f"{other.file} has the same id: {manifest.id}")
        taken = {key for item in other.manifest.ingest for key in _keys(item)}
        for item in manifest.ingest:
            if not taken.isdisjoint(_keys(item)):
                findings.error(MANIFEST, item.pointer, f"{other.file} matches the same messages", item.line)


def listener_name(port: int) -> str:
    """The name of a listener that a profile opens: that of an unnamed listener in the settings."""
    return f"tcp:{port}"


def port_of(endpoint: str) -> int | None:
    """The TCP port of an endpoint string; None when it has none."""
    found = _PORT.match(endpoint)
    return int(found[1]) if found is not None else None


def _rule(item: Ingest, profile: Profile, deployment: Deployment) -> Rule:
    return Rule(
        _listeners(item, deployment),
        item.resolver,
        frozenset(item.facilities) if item.facilities and item.resolver != LISTENER else None,
        item.tenant,
        profile,
        zone_offset(item.time_zone) if item.time_zone else None,
    )


def _listeners(item: Ingest, deployment: Deployment) -> frozenset[str] | None:
    """Names of listeners; with the resolver `listener` the facilities are names of listeners."""
    named = frozenset(item.facilities) if item.resolver == LISTENER and item.facilities else None
    at_port = deployment.listeners(item.port) if item.port is not None else None
    if named is None or at_port is None:
        return named if at_port is None else at_port
    return named & at_port


def _keys(item: Ingest) -> set[tuple[int | None, str, str]]:
    if not item.facilities:
        return {(item.port, "", "")}
    return {(item.port, item.resolver, one) for one in item.facilities}


_: type[VendorProfiles] = ProfileRegistry
