"""GET [base]/metadata and [base]/.well-known/smart-configuration.

Sources: https://hl7.org/fhir/R4/http.html#capabilities, https://hl7.org/fhir/smart-app-launch/conformance.html
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import lru_cache

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.fhir.capability import Route, capability_statement
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Request
from ipf.rest.http.exchange import entity_tags, selection
from ipf.rest.write.repository import Repository

Statement = Callable[[Request, Repository], Awaitable[Answer]]


async def metadata(request: Request, repository: Repository, routes: Iterable[Route], terminology: Statement) -> Answer:
    """The CapabilityStatement, or with `mode=terminology` what `terminology` answers."""
    mode = "full"
    for name, value in selection(request.query):
        if name != "mode" or value not in ("full", "normative", "terminology"):
            raise Problem(Category.VALUE, "metadata supports mode=full, normative and terminology", name[:60])
        mode = value
    version = repository.software_version
    if mode == "terminology":
        return await terminology(request, repository)
    is_secured, generation = repository.smart is not None, definitions().generation
    topics = await _topics(request, repository)
    body = _statement(request.base_url, version, is_secured, tuple(routes), generation, topics, repository.deletes_many)
    tag = hashlib.sha256(body).hexdigest()[:32]
    sent = request.headers.get("if-none-match", "")
    is_known = tag in entity_tags(sent) or sent.strip() == "*"
    return Answer(304 if is_known else 200, b"" if is_known else body, [("ETag", f'W/"{tag}"')])


async def _topics(request: Request, repository: Repository) -> tuple[str, ...]:
    """Canonical URLs of the served topics; while the store is unreachable, of those loaded before."""
    matcher = repository.matcher
    with suppress(StoreUnreachable):
        await repository.refresh()
    served = matcher.topics(request.tenant)
    return tuple(f"{one.url}|{one.version}" if one.version else one.url for one in served)


async def smart_configuration(request: Request, repository: Repository) -> Answer:
    """The SMART configuration; 404 when authentication is off."""
    if repository.smart is None:
        raise Problem(Category.NOT_FOUND, "this server does not require authorization and has no SMART configuration")
    return Answer(200, dumps(await repository.smart()), content_type="application/json")


@lru_cache(maxsize=8)
def _statement(
    base_url: str,
    version: str,
    is_secured: bool,
    routes: tuple[Route, ...],
    generation: int,
    topics: tuple[str, ...],
    deletes_many: bool,
) -> bytes:
    """The CapabilityStatement, cached until search parameters (`generation`) or topics change."""
    known = definitions()
    made = capability_statement(
        known,
        routes,
        base_url=base_url,
        version=version,
        is_secured=is_secured,
        topics=topics,
        deletes_many=deletes_many,
    )
    return dumps(made)
