"""Closes refused connections of TLS listeners.

A factory refuses a connection by returning no protocol.  Twisted's TLS then completes the handshake all the same, and
keeps the connection open until the client closes it.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IAddress, IProtocolFactory
from twisted.internet.protocol import Protocol
from zope.interface import implementer


class AbortProtocol(Protocol):
    """Aborts its connection."""

    def connectionMade(self) -> None:
        """Twisted: the connection is open."""
        transport: Any = self.transport
        transport.abortConnection()


@implementer(IProtocolFactory)
class AbortRefused:
    """Wraps the factory of a TLS listener, and aborts the connections that it refuses."""

    noisy = False

    def __init__(self, factory: Any) -> None:
        self._factory = factory

    def doStart(self) -> None:
        """Twisted: the port opens."""
        self._factory.doStart()

    def doStop(self) -> None:
        """Twisted: the port closes."""
        self._factory.doStop()

    def buildProtocol(self, addr: IAddress) -> Protocol:
        """Twisted: a connection."""
        protocol: Protocol | None = self._factory.buildProtocol(addr)
        return AbortProtocol() if protocol is None else protocol
