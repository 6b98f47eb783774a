"""The settings of message brokers that Subscriptions may name.

Source: docs/reference/subscriptions.md, "Message brokers".
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.config.brokers import Broker, brokers
from ipf.config.variables import variable


@dataclass(frozen=True)  # only one base of Settings may have slots
class BrokerSettings:
    """The brokers with their credentials."""

    brokers: tuple[Broker, ...] = variable(
        "IPF_BROKERS",
        brokers,
        (),
        "brokers of subscriptions: kafka+tls://user:password@host/topics, nats+tls://host, amqp+tls://host",
        secret=True,
    )
