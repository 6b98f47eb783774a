"""GET [base]/metadata: https://hl7.org/fhir/R4/http.html#capabilities"""

from __future__ import annotations

from functools import lru_cache

from ipf.fhir.capability import capability_statement
from ipf.fhir.definitions import definitions
from ipf.fhir.json import dumps
from ipf.ports import Answer, Request
from ipf.rest.repository import Repository


async def metadata(request: Request, repository: Repository) -> Answer:
    """The CapabilityStatement of this server; the same for everybody, so it is written once for each base URL."""
    return Answer(200, _statement(request.base_url, repository.software_version))


@lru_cache(maxsize=8)
def _statement(base_url: str, version: str) -> bytes:
    return dumps(capability_statement(definitions(), base_url=base_url, version=version))
