"""Which servers an import may read from.  The client that connects asks for every address that a name resolves to.

An import is a request that a client makes this server send: without `IPF_IMPORT_ALLOW` it reads from public addresses
only, in the modes `relaxed` and `permissive` of channel security from private ones as well.

Source: docs/reference/fhir.md; https://cheatsheetseries.owasp.org/cheatsheets/Server_Side_Request_Forgery_Prevention_Cheat_Sheet.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ipf.subscriptions.addresses import (
    address_of,
    is_local,
    is_metadata,
    is_private,
    is_private_host,
    matches_host,
    matches_network,
)
from ipf.subscriptions.endpoints import split_endpoint
from ipf.subscriptions.policy import PERMISSIVE, RELAXED, STRICT

_ALLOW = "IPF_IMPORT_ALLOW"


@dataclass(frozen=True, slots=True)
class ImportSources:
    """`mode`: of channel security.  `allow`: host patterns and networks; when set, nothing else is read from."""

    mode: str = STRICT
    allow: tuple[str, ...] = ()

    def refusals(self, url: str) -> Iterator[str]:
        """A text for each rule that a URL violates."""
        parts = split_endpoint(url)
        if parts is None:
            yield "the endpoint must be an absolute http or https URL"
            return
        if parts.scheme != "https" and self.mode != PERMISSIVE:
            yield "the endpoint must be HTTPS"
        if "@" in parts.netloc or parts.fragment:
            yield "the endpoint must not carry credentials or a fragment"
        yield from self._host(parts.hostname or "")

    def forbids(self, host: str, address: str, port: int) -> str | None:
        """Why no connection may be opened to an address that this host resolves to; None: it may.

        A host pattern with a wildcard does not permit local addresses, and no host pattern permits metadata addresses.
        """
        return None if self._permits(host, address) else f"{_ALLOW} does not name it"

    @property
    def _is_lenient(self) -> bool:
        return self.mode in (RELAXED, PERMISSIVE)

    def _host(self, host: str) -> Iterator[str]:
        if self.allow:
            if not any(matches_host(host, pattern) for pattern in self.allow):
                yield f"this server does not read from the host: {_ALLOW} does not name it"
            return
        address = address_of(host.rstrip("."))
        if not self._is_lenient and is_private_host(host):
            yield f"the host is private, local or not a plain name, and {_ALLOW} does not name it"
        elif address is not None and is_metadata(address):
            yield "the endpoint is the address of a cloud metadata service"

    def _permits(self, host: str, address: str) -> bool:
        target = address_of(address)
        if target is None:
            return False
        if any(matches_network(target, pattern) for pattern in self.allow):
            return True
        if not self.allow:
            return not is_metadata(target) if self._is_lenient else not is_private(target)
        patterns = [pattern for pattern in self.allow if matches_host(host, pattern)]
        if is_metadata(target) or not patterns:
            return False
        return not is_local(target) or any("*" not in pattern and "?" not in pattern for pattern in patterns)
