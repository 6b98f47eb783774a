"""Channels to subscribers, one module each behind `ports.Channel`, by their `Subscription.channel.type`.

Adding one: a module beside these, and its line in `open_channels`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ipf.config.settings import Settings
from ipf.ports import Channels
from ipf.security.vault import Vault
from ipf.wire.channels.email import Email, MailServer
from ipf.wire.channels.message import Message
from ipf.wire.channels.rest_hook import RestHook
from ipf.wire.channels.signed import SignedChannel
from ipf.wire.channels.websocket_resource import Websocket
from ipf.wire.client.resolver import Permits


def open_channels(settings: Settings, reactor: Any, source: str, permits: Permits | None) -> Channels:
    """Every channel of this process.  `source`: the address under which messages say that they come from here.

    `permits`: which addresses may be connected to.
    """
    seconds = settings.delivery_timeout_ms / 1000
    vault = Vault(settings.secret_key)
    hook = RestHook(reactor, seconds, permits=permits)
    rest_hook = SignedChannel(hook, vault, settings.signing_secret, lambda: datetime.now(UTC))
    server = MailServer.of(settings.smtp_url) if settings.smtp_url else None
    return {
        "rest-hook": rest_hook,
        "websocket": Websocket(),
        "message": Message(rest_hook, source),
        "email": Email(reactor, server, seconds),
    }
