"""Client of a polled source: GET requests with the credentials that its profile names.

What arrives: a source, the environment, URLs.  What leaves: replies.  Secrets are environment variables of the service;
one that is not set is a Problem that names it, and nothing is sent.  Redirects are not followed.

Source: docs/how-to/poll-a-server.md
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ipf.errors import Category, Problem
from ipf.ports.messages.feeds import Reply
from ipf.ports.messages.sources import FHIR_REST, AuthKind, PolledSource, SourceAuth
from ipf.wire.client.remote_service import RemoteService
from ipf.wire.client.tokens import Credentials, Grant, SignedCredentials

TIMEOUT_SECONDS = 60.0
BODY_LIMIT = 64 * 1024 * 1024
_VARIABLE = re.compile(r"\$\{(.*?)\}")


class SourceClient:
    """`ports.messages.feeds.Fetch` of one source.  Problem UPSTREAM: an environment variable is not set."""

    def __init__(self, source: PolledSource, environ: Mapping[str, str], reactor: Any) -> None:
        self._headers = _headers(source, environ)
        grant = grant_of(source.auth, environ)
        # A kept connection that the source closes at the moment of a request looks like an answer that was lost.
        self._service = RemoteService(
            reactor, TIMEOUT_SECONDS, "the source", grant, body_limit=BODY_LIMIT, connections_per_host=0
        )

    async def get(self, url: str) -> Reply:
        """One GET.  Problem UPSTREAM."""
        response = await self._service.authorized("GET", url, None, self._headers)
        return Reply(response.status, response.headers, response.body)

    async def close(self) -> None:
        """Close the unused connections."""
        await self._service.close()


def grant_of(auth: SourceAuth, environ: Mapping[str, str]) -> Grant | None:
    """The grant of a source; None: it needs no token, or has a fixed one."""
    if auth.kind is AuthKind.SECRET:
        client = _filled(auth.client_id, environ)
        return Credentials(auth.token_url, client, _value(auth.secret, environ), auth.scope)
    if auth.kind is AuthKind.SIGNED:
        client, key = _filled(auth.client_id, environ), _private_key(auth.secret, environ)
        return SignedCredentials(auth.token_url, client, key, auth.key_id, auth.algorithm, auth.scope)
    return None


def _headers(source: PolledSource, environ: Mapping[str, str]) -> dict[str, str]:
    is_fhir = source.protocol == FHIR_REST
    found = {"Accept": "application/fhir+json" if is_fhir else "application/json"}
    if is_fhir:
        found["Prefer"] = "handling=strict"  # a search that ignores _lastUpdated would fetch everything each time
    found |= {name: _filled(text, environ) for name, text in source.headers}
    if source.auth.kind is AuthKind.BEARER:
        found["Authorization"] = f"Bearer {_value(source.auth.secret, environ)}"
    return found


def _filled(text: str, environ: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: _value(found[1], environ), text)


def _value(name: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name, "").strip()
    if not value:
        raise Problem(Category.UPSTREAM, f"the environment variable {name} is not set")
    if not (value.isascii() and value.replace("\n", "").isprintable()):
        raise Problem(Category.UPSTREAM, f"the environment variable {name} holds what no header can have")
    return value


def _private_key(name: str, environ: Mapping[str, str]) -> str:
    """A PEM text, or the content of the file that the variable names."""
    value = _value(name, environ)
    if value.startswith("-----BEGIN"):
        return value
    try:
        return Path(value).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise Problem(Category.UPSTREAM, f"the file that {name} names cannot be read") from error
