"""Name resolution under an address rule: forbidden addresses are never passed on to the endpoint that connects.

Each resolution is checked before a connection is opened, and the connection goes to an address that was checked.  A
name that later resolves to another address (DNS rebinding) gains nothing.  A forbidden port receives no packet.

Source: https://cheatsheetseries.owasp.org/cheatsheets/Server_Side_Request_Forgery_Prevention_Cheat_Sheet.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import (
    IAddress,
    IHostnameResolver,
    IHostResolution,
    IReactorPluggableNameResolver,
    IResolutionReceiver,
)
from zope.interface import implementer

AddressRule = Callable[[str, str, int], str | None]
"""(host of the URL, IP address, port): why a connection may not be opened; None: it may."""


@implementer(IHostnameResolver)
class PermittedAddressResolver:
    """Passes on the permitted addresses of one host.

    `forbidden`: the last resolution found addresses, and none of them is permitted: why not.
    """

    def __init__(self, reactor: Any, host: str, port: int, forbids: AddressRule) -> None:
        self._reactor = reactor
        self._host = host
        self._port = port
        self._forbids = forbids
        self.forbidden: str | None = None

    def resolveHostName(
        self,
        resolutionReceiver: IResolutionReceiver,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Sequence[type[IAddress]] | None = None,
        transportSemantics: str = "TCP",
    ) -> IHostResolution:
        """Twisted: resolve a name."""
        receiver = _PermittedAddresses(resolutionReceiver, self)
        resolution: IHostResolution = self._reactor.nameResolver.resolveHostName(
            receiver, hostName, portNumber, addressTypes, transportSemantics
        )
        return resolution

    def forbids(self, address: IAddress) -> str | None:
        """Why no connection to this address may be opened; None: it may."""
        return self._forbids(self._host, getattr(address, "host", ""), self._port)


@implementer(IResolutionReceiver)
class _PermittedAddresses:
    """Receives one resolution and forwards its permitted addresses."""

    def __init__(self, receiver: IResolutionReceiver, resolver: PermittedAddressResolver) -> None:
        self._receiver = receiver
        self._resolver = resolver
        self._permitted = 0
        self._forbidden: str | None = None

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        """Twisted: the resolution begins."""
        self._receiver.resolutionBegan(resolutionInProgress)

    def addressResolved(self, address: IAddress) -> None:
        """Twisted: one address."""
        forbidden = self._resolver.forbids(address)
        if forbidden is None:
            self._permitted += 1
            self._receiver.addressResolved(address)
        else:
            self._forbidden = self._forbidden or forbidden

    def resolutionComplete(self) -> None:
        """Twisted: there are no more addresses."""
        self._resolver.forbidden = None if self._permitted else self._forbidden
        self._receiver.resolutionComplete()


@implementer(IReactorPluggableNameResolver)
class ReactorWithResolver:
    """The reactor with another name resolver, for the endpoint of one host."""

    def __init__(self, reactor: Any, resolver: IHostnameResolver) -> None:
        self._reactor = reactor
        self.nameResolver = resolver

    def installNameResolver(self, resolver: IHostnameResolver) -> IHostnameResolver:
        """Twisted: not supported."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)
