"""Checks of resources that clients send.

First the structure (`ipf.fhir.structure`): elements, JSON shapes, formats and required codes.  Then, in validation
mode `enforce` (`SUBSCRIPTION_SERVICE_VALIDATION_MODE`), type and profiles; then the rules for Subscriptions, topics and
search parameters.  `pipeline/convert/structure.py` checks converted messages.
"""

from __future__ import annotations

from twisted.logger import Logger

from ipf.errors import Problem
from ipf.fhir.model.redaction import refuse_encrypted_headers
from ipf.fhir.search.parameters.custom import check as check_parameter
from ipf.fhir.structure.check import check_structure
from ipf.fhir.topics.basic import TOPIC_TYPES, topic_in
from ipf.fhir.topics.topic import check_topic
from ipf.fhir.topics.unsupported import with_unsupported
from ipf.ports import DEFAULT_TENANT, Json, Request
from ipf.rest.http.exchange import resource_body
from ipf.rest.write.repository import Repository
from ipf.subscriptions.criteria import check

log = Logger()


async def read_incoming(request: Request, resource_type: str, repository: Repository) -> tuple[Json, Json]:
    """The resource in the body of a request, as sent and as it will be stored; a large body is read in a thread."""

    def read() -> tuple[Json, Json]:
        sent = resource_body(request, resource_type)
        return sent, check_incoming(sent, repository)

    if not repository.validates:
        return await repository.parsed(request, read)
    found: tuple[Json, Json] = await repository.run_in_thread(read)
    return found


def check_incoming(resource: Json, repository: Repository, place: str | None = None) -> Json:
    """The resource as it will be stored; Problem MALFORMED, INVALID or BUSINESS_RULE with a location below `place`."""
    try:
        check_structure(resource)
        if repository.conformance is not None:
            repository.conformance.check(resource, repository.tenant)
        if resource["resourceType"] != "Subscription":
            if resource["resourceType"] == "SearchParameter":
                check_parameter(resource, is_served=repository.tenant == DEFAULT_TENANT)
            elif resource["resourceType"] in TOPIC_TYPES and (topic := topic_in(resource)) is not None:
                return _topic(resource, topic)
            return resource
        check(resource, repository.policy)
        refuse_encrypted_headers(resource)
    except Problem as refused:
        if place is None:
            raise
        raise refused.inside(place) from refused
    stored = {name: value for name, value in resource.items() if name != "error"}  # `error` is set by the server only
    if stored.get("status") == "active":  # the guide allows it; the service activates the subscription
        stored["status"] = "requested"
    return repository.vault.encrypt_headers(stored)


def _topic(resource: Json, topic: Json) -> Json:
    """A topic with the list of its parts that have no effect here; `topic`: the topic that it is or contains."""
    unsupported = check_topic(topic)
    if unsupported:
        parts = "; ".join(f"{issue.place}: {issue.text}" for issue in unsupported)
        log.warn("event=topic_partly_served topic={topic} unsupported={parts}", topic=topic["url"], parts=parts[:1000])
    return with_unsupported(resource, unsupported)
