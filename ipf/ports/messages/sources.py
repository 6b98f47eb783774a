"""Polled sources: what a vendor profile says of a system that is asked for changes.

`vendor_profiles` makes a `PolledSource` of each polling item of a manifest, and `pipeline/poll` fetches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ipf.ports.base import DEFAULT_TENANT

FHIR_REST, NATIVE_API, MLLP, OTHER = "FHIR_REST", "EHR_NATIVE_API", "HL7V2_MLLP", "OTHER"
PROTOCOLS = (MLLP, FHIR_REST, NATIVE_API, OTHER)
"""Values of `source_protocol`.  OTHER: HL7 v2 by HTTP, as a file, or of an operator (`POST /admin/ingest`)."""
JSON_PROTOCOLS = frozenset({FHIR_REST, NATIVE_API})
"""Protocols whose payload is JSON."""
FHIR_TYPE = "fhir-r4-"
"""Prefix of the message type of a resource that was fetched from a FHIR server: `fhir-r4-observation`."""


class AuthKind(StrEnum):
    """How requests are authorized: not at all, by a fixed token, or by OAuth2 client credentials."""

    NONE = "none"
    BEARER = "bearer"
    SECRET = "oauth2-client-credentials"
    SIGNED = "oauth2-private-key-jwt"


@dataclass(frozen=True, slots=True)
class SourceAuth:
    """Credentials of a source.  Secrets are names of environment variables, read when a request is sent.

    `client_id`: a text with `${NAME}` for environment variables.  `secret`: the variable with the token, the client
    secret, or the PEM of the private key (or the path of its file).
    """

    kind: AuthKind = AuthKind.NONE
    token_url: str = ""
    client_id: str = ""
    secret: str = ""
    scope: str = ""
    key_id: str = ""
    algorithm: str = "RS384"


class Paging(StrEnum):
    """How the next page is found.

    `link`: `link[relation=next]` of a Bundle.  `field`: a URL in a field of the answer.  `offset`: a parameter counts
    the items.  `drain`: the source hands each item out once, and is asked until it has none left.
    """

    LINK = "link"
    FIELD = "field"
    OFFSET = "offset"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class Feed:
    """One search that is repeated.

    `query`: path and query relative to the base URL, with `{{lastRun}}` and `{{now}}`.  `message_type`: of its rows;
    empty for FHIR, where the resource type gives it.  `items`, `id_field`, `version_field`, `next_field`: names of
    fields, dots between levels.  `after_failure`: added to the query while the last poll is not complete, to get what
    the source handed out then.
    """

    id: str
    query: str
    message_type: str = ""
    items: str = ""
    id_field: str = ""
    version_field: str = ""
    paging: Paging = Paging.LINK
    next_field: str = ""
    offset_parameter: str = ""
    page_size: int = 0
    after_failure: str = ""


@dataclass(frozen=True, slots=True)
class PolledSource:
    """A system that is asked for changes.  Times are in seconds.

    `since`: ISO 8601; where the first poll begins, empty = everything.  `overlap`: how far each poll reaches back
    before the end of the last one.  `strip`: beginnings of URLs of extensions that are removed.  `identifier_base`:
    beginning of the system of the identifiers made of the source's ids.  `time_format`, `time_zone`: of `{{lastRun}}`;
    empty = ISO 8601 in UTC.
    """

    profile: str
    id: str
    protocol: str
    base_url: str
    source_system: str
    feeds: tuple[Feed, ...]
    interval: float = 300.0
    tenant: str = DEFAULT_TENANT
    auth: SourceAuth = field(default_factory=SourceAuth)
    headers: tuple[tuple[str, str], ...] = ()
    since: str = ""
    overlap: float = 60.0
    per_minute: int = 0
    strip: tuple[str, ...] = ()
    identifier_base: str = ""
    time_format: str = ""
    time_zone: str = ""

    @property
    def listener(self) -> str:
        """The name that its rows have as listener."""
        return f"poll:{self.profile}/{self.id}"

    @property
    def fetched_types(self) -> frozenset[str]:
        """The resource types that a FHIR source fetches, in lower case."""
        return frozenset(feed.query.partition("?")[0].strip("/").lower() for feed in self.feeds)
