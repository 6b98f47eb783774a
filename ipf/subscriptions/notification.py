"""An event and the Subscription it belongs to in, one HTTP request out (not sent here).

Legacy rest-hook, as the interface specification shows it: with a JSON payload `PUT {endpoint}/{Type}/{id}` carrying the
exact stored bytes of the version that fired; without a payload an empty `POST {endpoint}`.

Source: interface specification "Notification shapes".
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from ipf.ports import Event, Json, Notification
from ipf.subscriptions.terms import payload_of

CONTENT_TYPE = ("Content-Type", "application/fhir+json; charset=UTF-8")


def notification(subscription: Json, event: Event) -> Notification:
    """The request that tells the subscriber of one event."""
    channel = subscription["channel"]
    headers = registered_headers(channel)
    endpoint: str = channel["endpoint"]
    if payload_of(channel) is None:
        return Notification("POST", endpoint, headers, None, event.correlation_id)
    headers = [CONTENT_TYPE, *(header for header in headers if header[0].lower() != "content-type")]
    url = _below(endpoint, f"{event.resource_type}/{event.id}")
    return Notification("PUT", url, headers, event.body, event.correlation_id)


def registered_headers(channel: Json) -> list[tuple[str, str]]:
    """`channel.header` as pairs, in the subscriber's order and spelling."""
    pairs = (header.partition(":") for header in channel.get("header", ()))
    return [(name, value.strip()) for name, _, value in pairs]


def _below(endpoint: str, path: str) -> str:
    """`endpoint` with `path` added before its query string."""
    url = urlsplit(endpoint)
    return urlunsplit(url._replace(path=f"{url.path.rstrip('/')}/{path}"))
