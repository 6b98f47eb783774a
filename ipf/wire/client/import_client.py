"""Reads the inputs of bulk imports over HTTP.

Each address that a host name resolves to must be permitted (`ImportSources.forbids`); redirects are not followed.
"""

from __future__ import annotations

from typing import Any

from ipf.errors import Category, Problem
from ipf.wire.client.remote_service import RemoteService
from ipf.wire.client.resolver import AddressRule

TIMEOUT_SECONDS = 300.0
_HEADERS = {"Accept": "application/fhir+ndjson, application/x-ndjson;q=0.9, */*;q=0.1"}


class ImportClient:
    """`limit`: bytes of an input.  `forbids`: addresses that may not be connected to."""

    def __init__(self, reactor: Any, limit: int, forbids: AddressRule) -> None:
        self._service = RemoteService(
            reactor, TIMEOUT_SECONDS, "the input", body_limit=limit, connections_per_host=0, forbids=forbids
        )

    async def fetch(self, url: str) -> bytes:
        """The body of one GET.  Problem UPSTREAM; the URL is not named."""
        response = await self._service.get(url, _HEADERS)
        if response.status != 200:
            raise Problem(Category.UPSTREAM, f"the server of the input answered {response.status}")
        return response.body
