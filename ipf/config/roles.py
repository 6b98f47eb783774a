"""The roles of a process: the parts of the service that it runs.  Every role may run in any number of processes.

Sources: decisions section 1 and "`IPF_ROLES`"; docs/how-to/several-processes.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.config.parsers import boolean, optional, words
from ipf.config.variables import variable

RECEIVE, CONVERT, DELIVER, POLL, ADMIN = "receive", "convert", "deliver", "poll", "admin"
FHIR, MAPPING, CONSOLE = "fhir", "mapping", "console"

ENGINE = (RECEIVE, CONVERT, DELIVER, POLL, ADMIN)
ALL = (*ENGINE, FHIR, MAPPING)
"""The roles of the default.  The console is a process of its own unless it is named."""
ROLES = (*ALL, CONSOLE)
GROUPS = {"all": ALL, "engine": ENGINE}


def roles(value: str) -> tuple[str, ...]:
    """Roles and groups of roles, separated by commas or spaces, as single roles in the order of `ROLES`."""
    named = words(value.lower())
    unknown = [one for one in named if one not in GROUPS and one not in ROLES]
    if unknown or not named:
        known = ", ".join((*GROUPS, *ROLES))
        raise ValueError(f"expected one or more of {known}" + (f", not {unknown[0]}" if unknown else ""))
    found = {role for one in named for role in GROUPS.get(one, (one,))}
    return tuple(role for role in ROLES if role in found)


@dataclass(frozen=True)  # only one base of Settings may have slots
class RoleSettings:
    """What this process runs."""

    roles: tuple[str, ...] = variable(
        "IPF_ROLES", roles, ALL, "parts of the service that this process runs: all, engine, or single roles"
    )
    fhir_listen: str | None = variable(
        "IPF_FHIR_LISTEN", optional, None, "endpoint of /fhir, /mapping and /websocket; unset: on the HTTP listener"
    )
    worker_enabled: bool = variable("IPF_WORKER_ENABLED", boolean, True, "false: IPF_ROLES without convert")
    polling_enabled: bool = variable("IPF_POLLING_ENABLED", boolean, True, "false: IPF_ROLES without poll")

    @property
    def running(self) -> tuple[str, ...]:
        """The roles that run: those of `IPF_ROLES`, without what the two switches take away."""
        off = {CONVERT: not self.worker_enabled, POLL: not self.polling_enabled}
        return tuple(role for role in self.roles if not off.get(role, False))

    def runs(self, *roles: str) -> bool:
        """Whether one of these roles runs."""
        return not set(roles).isdisjoint(self.running)
