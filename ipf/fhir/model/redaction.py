"""Redaction of the secrets within stored resources: the values of the headers of a Subscription.

A stored Subscription contains them encrypted, as `Name: ipf-sealed:1:...` (`ipf/security/vault.py`).  Responses contain
a mask instead, and an update with the mask keeps the stored value.  Patches, search parameters and topic expressions
see the mask too, so that clients can neither copy a secret nor guess it by queries.

A secret belongs to the endpoint that it was registered for.  Only the client that registered it may leave it out in an
update with a new endpoint; otherwise a client that may change a Subscription could have the secrets of another one sent
to its own endpoint.

Source: decisions "Masked headers".
"""

from __future__ import annotations

import re

from ipf.errors import Category, Problem
from ipf.ports import Json

STORED_SECRET = "ipf-sealed:"
MASK = "***"
_SECRETS = re.compile(rb"ipf-sealed:[01]:[A-Za-z0-9_=-]*")
_STORED_SECRET = STORED_SECRET.encode()


def redact_body(body: bytes) -> bytes:
    """Bytes that leave the server, with a mask instead of every stored secret."""
    return _SECRETS.sub(MASK.encode(), body) if _STORED_SECRET in body else body


def split_header(header: object) -> tuple[str, str]:
    """Name and value of `Name: value`; both empty for any other value."""
    name, sign, value = header.partition(":") if isinstance(header, str) else ("", "", "")
    return (name, value.strip()) if sign else ("", "")


def has_masks(subscription: Json) -> bool:
    """Whether a Subscription that a client sends has a mask instead of a secret."""
    headers = _channel(subscription).get("header", ())
    return any(split_header(one)[1] == MASK for one in headers)


def restore_redacted(resource: Json, stored: Json | None, *, may_move: bool = False) -> Json:
    """A Subscription with the stored values instead of the masks, matched by name and in order.

    `may_move`: the client has registered the secrets, so that it may change the endpoint.  Problem BUSINESS_RULE when
    no stored value matches a mask, or another client changes the endpoint.
    """
    if not has_masks(resource):
        return resource
    headers = resource["channel"]["header"]
    left = list((stored or {}).get("channel", {}).get("header", ()))
    found = []
    for number, one in enumerate(headers):
        name, value = split_header(one)
        if value == MASK:
            one = next((old for old in left if split_header(old)[0].lower() == name.lower()), None)
            if one is None:
                text = f"{MASK} means a stored secret, and none is stored for the header {name}"
                raise Problem(Category.BUSINESS_RULE, text, f"Subscription.channel.header[{number}]")
            left.remove(one)
            if not may_move and _channel(stored or {}).get("endpoint") != _channel(resource).get("endpoint"):
                raise _moved(name, number)
        found.append(one)
    return {**resource, "channel": {**resource["channel"], "header": found}}


def redact_resource(resource: Json) -> Json:
    """The resource as clients see it, for patches, expressions and indexes.

    Otherwise a client could guess a secret letter by letter with searches or tests.
    """
    if resource.get("resourceType") != "Subscription":
        return resource
    channel = _channel(resource)
    headers = channel.get("header")
    if not isinstance(headers, list):
        return resource
    shown = [
        f"{split_header(one)[0]}: {MASK}" if split_header(one)[1].startswith(STORED_SECRET) else one for one in headers
    ]
    return {**resource, "channel": {**channel, "header": shown}}


def refuse_encrypted_headers(sent: Json) -> None:
    """Problem BUSINESS_RULE for a value with the prefix of stored secrets: it may belong to another endpoint."""
    headers = _channel(sent).get("header", ())
    for number, one in enumerate(headers if isinstance(headers, list) else ()):
        name, value = split_header(one)
        if value.startswith(STORED_SECRET):
            text = f"the value of {name} cannot begin with {STORED_SECRET}"
            raise Problem(Category.BUSINESS_RULE, text, f"Subscription.channel.header[{number}]")


def _moved(name: str, number: int) -> Problem:
    text = f"the endpoint has changed: send the value of {name} again; only the client that registered it may mask it"
    return Problem(Category.BUSINESS_RULE, text, f"Subscription.channel.header[{number}]")


def _channel(subscription: Json) -> Json:
    channel = subscription.get("channel")
    return channel if isinstance(channel, dict) else {}
