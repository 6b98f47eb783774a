"""Labels and Consents as the settings ask for them."""

from __future__ import annotations

from contextlib import AsyncExitStack

from ipf.app.runtime.process import now
from ipf.config.settings import Settings
from ipf.security.access import install
from ipf.security.privacy.labels import LabelRules
from ipf.security.privacy.policy import Privacy
from ipf.security.privacy.register import ConsentRegister
from ipf.store.postgres.database import Database
from ipf.store.resources.writing.consents import PostgresConsents


def install_privacy(settings: Settings, database: Database, stack: AsyncExitStack) -> None:
    """Let labels and Consents limit the decisions of this process; nothing when both are off."""
    if not settings.access_labels and not settings.access_consent:
        return
    consents = ConsentRegister(PostgresConsents(database), now) if settings.access_consent else None
    labels = LabelRules.of(settings.access_labels) if settings.access_labels else None
    clients = frozenset(settings.access_trusted_clients)
    install(Privacy(labels, consents, settings.multitenancy == "enabled", clients))
    stack.callback(install, None)
