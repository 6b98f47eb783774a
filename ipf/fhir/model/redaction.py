"""Secrets within stored resources: how they are marked, kept over an update, and hidden from whoever reads.

The value of a sealed header of a Subscription stands in the stored resource as `Name: ipf-sealed:1:...`
(`security/vault.py` makes and opens it).  Nobody outside is shown that: every answer has the mask in its place, and a
resource that comes back with the mask keeps what is stored.  Patches, search parameters and expressions of topics see
the mask as well, so that nothing can be copied from there, and no question about it is answered.

A secret stays with the endpoint that it was registered for: whoever has notifications sent elsewhere must bring it
anew, so that nobody who may change a Subscription, but not see its secrets, has them sent to himself.
"""

from __future__ import annotations

import re

from ipf.errors import Category, Problem
from ipf.ports import Json

MARK = "ipf-sealed:"
MASK = "***"
_SEALED = re.compile(rb"ipf-sealed:[01]:[A-Za-z0-9_=-]*")
_MARK = MARK.encode()


def masked(body: bytes) -> bytes:
    """Bytes that leave the server, with every sealed secret hidden."""
    return _SEALED.sub(MASK.encode(), body) if _MARK in body else body


def parts(header: object) -> tuple[str, str]:
    """Name and value of a registered header; empty when it is none."""
    name, sign, value = header.partition(":") if isinstance(header, str) else ("", "", "")
    return (name, value.strip()) if sign else ("", "")


def kept(resource: Json, stored: Json | None) -> Json:
    """A Subscription whose masked headers are those that are stored, name by name and in order.

    Problem BUSINESS_RULE when there is nothing that a mask could stand for, or notifications go elsewhere.
    """
    channel = resource.get("channel")
    headers = channel.get("header", ()) if isinstance(channel, dict) else ()
    if not any(parts(one)[1] == MASK for one in headers):
        return resource
    left = list((stored or {}).get("channel", {}).get("header", ()))
    found = []
    for number, one in enumerate(headers):
        name, value = parts(one)
        if value == MASK:
            one = next((old for old in left if parts(old)[0].lower() == name.lower()), None)
            if one is None:
                text = f"{MASK} stands for a secret that is stored, and there is none for the header {name}"
                raise Problem(Category.BUSINESS_RULE, text, f"Subscription.channel.header[{number}]")
            left.remove(one)
            if _channel(stored or {}).get("endpoint") != _channel(resource).get("endpoint"):
                raise _moved(name, number)
        found.append(one)
    return {**resource, "channel": {**resource["channel"], "header": found}}


def hidden(resource: Json) -> Json:
    """A resource as whoever reads it knows it: for all that a client may ask about it (patches, expressions, indexes).

    An answer to a question about sealed text would tell of it, letter by letter.
    """
    if resource.get("resourceType") != "Subscription":
        return resource
    channel = _channel(resource)
    headers = channel.get("header")
    if not isinstance(headers, list):
        return resource
    shown = [f"{parts(one)[0]}: {MASK}" if parts(one)[1].startswith(MARK) else one for one in headers]
    return {**resource, "channel": {**channel, "header": shown}}


def check_unsealed(sent: Json) -> None:
    """Problem BUSINESS_RULE for a header that a client has sealed: it could be a secret of another endpoint."""
    headers = _channel(sent).get("header", ())
    for number, one in enumerate(headers if isinstance(headers, list) else ()):
        name, value = parts(one)
        if value.startswith(MARK):
            text = f"the value of {name} cannot begin with {MARK}"
            raise Problem(Category.BUSINESS_RULE, text, f"Subscription.channel.header[{number}]")


def _moved(name: str, number: int) -> Problem:
    text = f"the endpoint has changed: give the value of {name} again, this one was for another"
    return Problem(Category.BUSINESS_RULE, text, f"Subscription.channel.header[{number}]")


def _channel(subscription: Json) -> Json:
    channel = subscription.get("channel")
    return channel if isinstance(channel, dict) else {}
