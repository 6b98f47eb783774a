"""Where clients and senders find the service, as the line `event=started` says it: `FHIR http://127.0.0.1:8090/fhir`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress

from ipf.app.listeners.endpoints import OpenListener

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def places(listeners: Iterable[OpenListener], profiles: Mapping[int, str]) -> dict[str, str]:
    """Each kind of client (`fhir`, `mllp` ...) with its places, senders last.

    `profiles`: vendor profiles by the port they name.
    """
    found: dict[str, list[str]] = {}
    for listener in sorted(listeners, key=_is_of_senders):
        for kind, text in _of_listener(listener, profiles):
            found.setdefault(kind, []).append(text)
    return {kind: ", ".join(texts) for kind, texts in found.items()}


def _is_of_senders(listener: OpenListener) -> bool:
    """Whether it offers no path of a URL, as MLLP does."""
    return not any(path for _, path in listener.offers)


def _of_listener(listener: OpenListener, profiles: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    host = getattr(listener.address, "host", "")
    remarks = [profiles.get(getattr(listener.address, "port", 0), ""), "all interfaces" if host in _LOOPBACK else ""]
    remark = ", ".join(filter(None, remarks))
    for label, path in listener.offers:
        scheme = "https://" if listener.has_tls else "http://"
        over = " over TLS" if listener.has_tls and not path else ""
        text = f"{label}{over} {scheme if path else ''}{shown_address(listener.address)}{path}"
        yield label.partition(" ")[0].lower(), f"{text} ({remark})" if remark else text


def shown_address(address: IAddress) -> str:
    """`127.0.0.1:8090`: an address to connect to from this host."""
    if isinstance(address, IPv4Address):
        return f"{_LOOPBACK.get(address.host, address.host)}:{address.port}"
    if isinstance(address, IPv6Address):
        return f"[{_LOOPBACK.get(address.host, address.host)}]:{address.port}"
    return f"unix:{address.name.decode(errors='replace')}" if isinstance(address, UNIXAddress) and address.name else "?"
