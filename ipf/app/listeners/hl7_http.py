"""The listeners of HL7 v2 over HTTP (`IPF_HL7_HTTP_LISTEN`), on the receive stage of the MLLP listeners."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from ipf.app.listeners.endpoints import HL7_HTTP, Listeners, needs_token, opened_as
from ipf.app.listeners.names import own_names
from ipf.config.parsers import Listener
from ipf.config.settings import Settings
from ipf.pipeline.receive.receive import MllpListener, Receiver
from ipf.ports import DEFAULT_TENANT
from ipf.ports.messages.sources import OTHER
from ipf.wire.http.hl7 import PATHS, Hl7Access, Receive, resource
from ipf.wire.http.limits import HttpLimits
from ipf.wire.http.site import site
from ipf.wire.mllp.access import SenderAccess, networks_of


async def open_hl7_http(
    settings: Settings, receiver: Receiver, connections: int, listeners: Listeners, stack: AsyncExitStack
) -> None:
    """Open all of them, each for so many connections.  Problem UNAVAILABLE names IPF_HL7_HTTP_LISTEN.

    Without a token they are bound to loopback unless they name an interface, and answer there for their own names only.
    """
    has_token = needs_token(settings, HL7_HTTP)
    limits = HttpLimits(settings.http_max_header_bytes, settings.http_request_seconds, connections=connections)
    for one in settings.hl7_http_listen:
        senders = SenderAccess(networks_of(one.name, settings.mllp_allow))
        served = resource(_receive(settings, receiver, one), Hl7Access(senders.permits, settings.hl7_http_token))
        factory = site(dict.fromkeys(PATHS, served), max_body=settings.mllp_max_frame_bytes, limits=limits)
        endpoint = opened_as(settings, HL7_HTTP, one.endpoint)
        label = "HL7" if one.name == one.endpoint else f"HL7 {one.name}"
        opened = await listeners.open(endpoint, factory, f"HL7 over HTTP {one.name}", HL7_HTTP, ((label, "/"),))
        factory.limits = replace(limits, names=own_names(settings, opened.address, has_token))
        stack.push_async_callback(listeners.close, opened)


def _receive(settings: Settings, receiver: Receiver, one: Listener) -> Receive:
    tenant = dict(settings.mllp_tenants).get(one.name, DEFAULT_TENANT)
    listener = MllpListener(one.name, settings.mllp_fallback_charset, tenant, protocol=OTHER)

    async def receive(raw: bytes, codec: str | None, peer: str) -> bytes | None:
        taken_by = listener if codec is None else replace(listener, fallback_charset=codec)
        return await receiver.receive(raw, taken_by, peer)

    return receive
