"""Which pair of databases has the data of a tenant, and what serves it now.

A `Placement` stands for a pair while the service runs, whether its servers can be reached or not.  Requests of its
tenants are refused while it does not serve, so that clients and senders repeat them; nothing of another pair is
touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ipf.app.roles.api import Api
from ipf.config.placements import CLOSED, DEFAULT, FROZEN, OTHERS, PlacementSettings
from ipf.errors import Category, Problem
from ipf.pipeline.receive.receive import Receiver
from ipf.security.audit.senders import SenderRefused
from ipf.wire.admin.actuator import Health


@dataclass(frozen=True, slots=True)
class Serving:
    """What an opened pair offers.  `receiver`: stores messages; `api`: answers requests; `health`: of the pair.

    `refused`: records senders that may not send.
    """

    receiver: Receiver
    api: Api
    health: Health
    refused: SenderRefused | None = None


@dataclass(slots=True)
class Placement:
    """A pair of databases.  `serving`: None while it cannot be used, for the `reason`, which is for operators.

    `refusing`: the receiver that answers AE meanwhile.  `most`: requests that may wait for it at a time; further ones
    are refused, so that a server that hangs does not use up the connections of the process.
    """

    settings: PlacementSettings
    refusing: Receiver
    most: int
    serving: Serving | None = None
    reason: str = "its databases have not been reached yet"
    waiting: int = field(default=0)

    @property
    def name(self) -> str:
        """Its name."""
        return self.settings.name

    @property
    def is_frozen(self) -> bool:
        """Whether nothing may be written."""
        return self.settings.state == FROZEN

    @property
    def receiver(self) -> Receiver:
        """What takes the messages of its tenants now."""
        return self.refusing if self.serving is None or self.is_frozen else self.serving.receiver

    def use(self, *, writes: bool = False) -> Serving:
        """What serves a request.  Problem UNAVAILABLE."""
        if self.serving is None or (writes and self.is_frozen):
            raise Problem(Category.UNAVAILABLE, self.unusable)
        return self.serving

    @property
    def unusable(self) -> str:
        """Why it cannot be used, or not for writing, for clients."""
        if self.settings.state == CLOSED:
            return f"the placement {self.name} is closed; try again later"
        if self.is_frozen and self.serving is not None:
            return f"the placement {self.name} is frozen: nothing is written for now; try again later"
        return f"the placement {self.name} cannot be reached; try again later"


class Directory:
    """The placements by tenant and by name; there is always the default one."""

    def __init__(self, placements: Iterable[Placement]) -> None:
        self._by_name: dict[str, Placement] = {}
        self._by_tenant: dict[str, Placement] = {}
        self.replace(placements)

    def replace(self, placements: Iterable[Placement]) -> None:
        """These are the placements from now on."""
        self._by_name = {one.name: one for one in placements}
        self._by_tenant = {tenant: one for one in self._by_name.values() for tenant in one.settings.tenants}

    @property
    def all(self) -> tuple[Placement, ...]:
        """All of them, the default first."""
        return tuple(self._by_name.values())

    @property
    def default(self) -> Placement:
        """That of every tenant that no other names."""
        return self._by_name[DEFAULT]

    def of(self, tenant: str) -> Placement:
        """The placement of a tenant."""
        return self._by_tenant.get(tenant) or self._by_tenant[OTHERS]

    def receiver(self, tenant: str) -> Receiver:
        """The receiver that stores the messages of a tenant."""
        return self.of(tenant).receiver

    def named(self, name: str) -> Placement:
        """The placement of this name.  Problem NOT_FOUND."""
        found = self._by_name.get(name)
        if found is None:
            raise Problem(Category.NOT_FOUND, f"there is no placement named {name[:40]!r}")
        return found
