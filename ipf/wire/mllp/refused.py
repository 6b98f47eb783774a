"""Connections that a listener does not take, over TLS.

A factory that has no protocol for a connection closes it so; but Twisted's TLS goes on with the handshake, and keeps
the connection for as long as the client likes.  Behind this factory it is closed.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IAddress, IProtocolFactory
from twisted.internet.protocol import Protocol
from zope.interface import implementer


class Closed(Protocol):
    """Nobody is served here."""

    def connectionMade(self) -> None:
        """Twisted: it is there, and should not be."""
        transport: Any = self.transport
        transport.abortConnection()


@implementer(IProtocolFactory)
class RefusedConnection:
    """Around the factory of a TLS listener."""

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
        made: Protocol | None = self._factory.buildProtocol(addr)
        return Closed() if made is None else made
