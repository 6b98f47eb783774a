"""Redaction of the secrets within stored resources: the values of the headers of a Subscription.

A stored Subscription holds them encrypted, as `Name: ipf-sealed:1:...` (`ipf/security/vault.py`).  Every answer has a
mask instead, and a Subscription that is sent back with the mask keeps the stored value.  Patches, search parameters
and topic expressions see the mask too, so a secret can neither be copied nor found out by queries.

A secret belongs to the endpoint that it was registered for.  A Subscription with a new endpoint must state its secrets
again; otherwise whoever may change a Subscription, but not read its secrets, could have them sent to himself.
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


def restore_redacted(resource: Json, stored: Json | None) -> Json:
    """A Subscription with the stored values instead of the masks, matched by name and in order.

    Problem BUSINESS_RULE when there is nothing that a mask could stand for, or notifications go elsewhere.
    """
    channel = resource.get("channel")
    headers = channel.get("header", ()) if isinstance(channel, dict) else ()
    if not any(split_header(one)[1] == MASK for one in headers):
        return resource
    left = list((stored or {}).get("channel", {}).get("header", ()))
    found = []
    for number, one in enumerate(headers):
        name, value = split_header(one)
        if value == MASK:
            one = next((old for old in left if split_header(old)[0].lower() == name.lower()), None)
            if one is None:
                text = f"{MASK} stands for a secret that is stored, and there is none for the header {name}"
                raise Problem(Category.BUSINESS_RULE, text, f"Subscription.channel.header[{number}]")
            left.remove(one)
            if _channel(stored or {}).get("endpoint") != _channel(resource).get("endpoint"):
                raise _moved(name, number)
        found.append(one)
    return {**resource, "channel": {**resource["channel"], "header": found}}


def redact_resource(resource: Json) -> Json:
    """The resource as clients see it, for patches, expressions and indexes.

    A client that could search or test an encoded secret would find it out letter by letter.
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
    """Problem BUSINESS_RULE for a value with the mark of a stored secret: it may belong to another endpoint."""
    headers = _channel(sent).get("header", ())
    for number, one in enumerate(headers if isinstance(headers, list) else ()):
        name, value = split_header(one)
        if value.startswith(STORED_SECRET):
            text = f"the value of {name} cannot begin with {STORED_SECRET}"
            raise Problem(Category.BUSINESS_RULE, text, f"Subscription.channel.header[{number}]")


def _moved(name: str, number: int) -> Problem:
    text = f"the endpoint has changed: give the value of {name} again, this one was for another"
    return Problem(Category.BUSINESS_RULE, text, f"Subscription.channel.header[{number}]")


def _channel(subscription: Json) -> Json:
    channel = subscription.get("channel")
    return channel if isinstance(channel, dict) else {}
