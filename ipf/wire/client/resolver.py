"""Names looked up under a rule: an address that may not be connected to is never tried.

The addresses that a name resolves to are judged before a connection is opened, and the connection goes to one of those
very addresses; so a name that resolves to something else a moment later (DNS rebinding) gains nothing, and a forbidden
port learns nothing, not even that somebody knocked.

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

Permits = Callable[[str, str], bool]
"""(host as the URL names it, IP address): whether a connection may be opened."""


@implementer(IHostnameResolver)
class GuardedResolver:
    """Passes on the permitted addresses of one host.  `forbade`: the last look-up found none but others."""

    def __init__(self, reactor: Any, host: str, permits: Permits) -> None:
        self._reactor = reactor
        self._host = host
        self._permits = permits
        self.forbade = False

    def resolveHostName(
        self,
        resolutionReceiver: IResolutionReceiver,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Sequence[type[IAddress]] | None = None,
        transportSemantics: str = "TCP",
    ) -> IHostResolution:
        """Twisted: look a name up."""
        receiver = _Permitted(resolutionReceiver, self)
        found: IHostResolution = self._reactor.nameResolver.resolveHostName(
            receiver, hostName, portNumber, addressTypes, transportSemantics
        )
        return found

    def permits(self, address: IAddress) -> bool:
        """Whether this one may be passed on."""
        return self._permits(self._host, getattr(address, "host", ""))


@implementer(IResolutionReceiver)
class _Permitted:
    """One look-up."""

    def __init__(self, receiver: IResolutionReceiver, resolver: GuardedResolver) -> None:
        self._receiver = receiver
        self._resolver = resolver
        self._passed = self._dropped = 0

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        """Twisted: it begins."""
        self._receiver.resolutionBegan(resolutionInProgress)

    def addressResolved(self, address: IAddress) -> None:
        """Twisted: one more address."""
        if self._resolver.permits(address):
            self._passed += 1
            self._receiver.addressResolved(address)
        else:
            self._dropped += 1

    def resolutionComplete(self) -> None:
        """Twisted: that was all."""
        self._resolver.forbade = self._dropped > 0 and not self._passed
        self._receiver.resolutionComplete()


@implementer(IReactorPluggableNameResolver)
class GuardedReactor:
    """The reactor for endpoints to one host, with a resolver of its own."""

    def __init__(self, reactor: Any, resolver: GuardedResolver) -> None:
        self._reactor = reactor
        self.nameResolver = resolver

    def installNameResolver(self, resolver: IHostnameResolver) -> IHostnameResolver:
        """Twisted: nobody may replace it."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)
