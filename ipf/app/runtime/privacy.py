"""Labels and Consents as the settings ask for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack

from ipf.app.runtime.process import now
from ipf.config.settings import Settings
from ipf.errors import StoreUnreachable
from ipf.ports.fhir.consents import StoredConsent
from ipf.security.access import install, installed
from ipf.security.privacy.labels import LabelRules
from ipf.security.privacy.policy import Privacy
from ipf.security.privacy.register import ConsentRegister
from ipf.store.postgres.database import Database
from ipf.store.resources.writing.consents import PostgresConsents


def install_privacy(settings: Settings, database: Database, stack: AsyncExitStack) -> None:
    """Let labels and Consents limit the decisions of this process; nothing when both are off.

    With the settings of a placement: the Consents of its tenants are those of its database.
    """
    if not settings.access_labels and not settings.access_consent:
        return
    consents = ConsentRegister(PostgresConsents(database), now) if settings.access_consent else None
    if settings.placement and consents is not None:
        _place(settings.placed_tenants, consents, stack)
    elif not settings.placement:
        _install(settings, consents, stack)


def install_placed_privacy(settings: Settings, stack: AsyncExitStack) -> None:
    """As `install_privacy`, for all placements.  Nothing is decided about a tenant before its placement is open."""
    if settings.access_labels or settings.access_consent:
        _install(settings, ConsentRegister(_Unreachable(), now) if settings.access_consent else None, stack)


def _install(settings: Settings, consents: ConsentRegister | None, stack: AsyncExitStack) -> None:
    labels = LabelRules.of(settings.access_labels) if settings.access_labels else None
    clients = frozenset(settings.access_trusted_clients)
    install(Privacy(labels, consents, settings.multitenancy == "enabled", clients))
    stack.callback(install, None)


class _Unreachable:
    """`ConsentSource` of a placement that is not open."""

    async def epoch(self) -> int:
        """See `ConsentSource.epoch`."""
        raise StoreUnreachable()

    async def changes(self, since: int) -> Sequence[StoredConsent]:
        """See `ConsentSource.changes`."""
        raise StoreUnreachable()

    async def page(self, after_rid: int, limit: int) -> Sequence[StoredConsent]:
        """See `ConsentSource.page`."""
        raise StoreUnreachable()


def _place(tenants: Iterable[str], consents: ConsentRegister, stack: AsyncExitStack) -> None:
    privacy = installed()
    assert privacy is not None, "install_placed_privacy comes first"

    def remove() -> None:
        for tenant in tenants:
            if privacy.placed.get(tenant) is consents:
                del privacy.placed[tenant]

    privacy.placed.update(dict.fromkeys(tenants, consents))
    stack.callback(remove)
