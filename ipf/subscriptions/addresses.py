"""Classification of IP addresses and of hosts in URLs: public, private, local, or a cloud metadata service.

Source: https://www.iana.org/assignments/iana-ipv4-special-registry, the IPv6 registry of the same name, and the
metadata addresses of AWS, Azure, Google, Alibaba, Oracle, Tencent, Scaleway and OpenStack.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+", re.IGNORECASE)
_METADATA = frozenset(
    ip_address(one)
    for one in (
        "169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200", "192.0.0.192",
        "169.254.0.23", "169.254.42.42", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42",
        "fe80::a9fe:a9fe",
    )
)  # fmt: skip
_NETWORKS_WITH_IPV4 = tuple(ip_network(one) for one in ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96", "::/96"))
"""IPv6 networks that carry an IPv4 address in their last 32 bits (RFC 6052, RFC 8215, RFC 2765, RFC 4291 2.5.5.1)."""
_GLOBAL = ip_network("2000::/3")
_THIS_NETWORK, _RESERVED = ip_network("0.0.0.0/8"), ip_network("240.0.0.0/4")
_SPECIAL = tuple(ip_network(one) for one in ("3fff::/20", "192.0.0.0/24", "192.88.99.0/24"))
"""Special-purpose networks that `ipaddress` of some Python versions reports as global."""

Address = IPv4Address | IPv6Address


def address_of(text: str) -> Address | None:
    """The address, with an IPv4 address taken out of its IPv6 form; None when the text is no address."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and int(address) > 1 and any(address in network for network in _NETWORKS_WITH_IPV4):
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        return inner or address
    return address


def is_metadata(address: Address) -> bool:
    """Whether a cloud serves instance credentials at this address."""
    return address in _METADATA


def never_an_endpoint(address: Address) -> str | None:
    """The kind of an address that no notification is sent to; None when the address has a host that may be one.

    Source: RFC 3927, RFC 4291 (link-local, unspecified, multicast), RFC 919 and RFC 1112 section 4 (broadcast).
    """
    if address.is_unspecified or address in _THIS_NETWORK:
        return "unspecified"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if address in _RESERVED:
        return "broadcast and reserved"
    return "cloud metadata" if is_metadata(address) else None


def is_private(address: Address) -> bool:
    """Whether the address is private, loopback, link-local, multicast or otherwise not public."""
    if isinstance(address, IPv6Address) and address not in _GLOBAL:
        return True
    is_special = any(address in network for network in _SPECIAL)
    return is_special or not address.is_global or address.is_multicast or is_metadata(address)


def is_local(address: Address) -> bool:
    """Whether the address is of this machine or its link."""
    return address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast


def is_numeric(host: str) -> bool:
    """Whether a host is an address in a form that only some programs read (`127.1`, `0x7f000001`, `0177.0.0.1`).

    Source: https://url.spec.whatwg.org/#ends-in-a-number-checker
    """
    return address_of(host) is None and _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def is_local_name(host: str) -> bool:
    """Whether a host name is one of this host or of its network alone."""
    return host == "localhost" or host.endswith((".localhost", ".local", ".internal", ".home.arpa"))


def is_private_host(host: str) -> bool:
    """Whether a host name or address is private, or an address in a non-standard form."""
    host = host.rstrip(".").lower()
    address = address_of(host)
    return is_private(address) if address is not None else is_local_name(host) or is_numeric(host)


def matches_network(address: Address, pattern: str) -> bool:
    """Whether the pattern is a network or address that contains this address."""
    try:
        return address in ip_network(pattern, strict=False)
    except ValueError:
        return False


def matches_host(host: str, pattern: str) -> bool:
    """Whether the host of a URL matches a host pattern (`*.example.org`) or a network (`10.1.0.0/16`)."""
    address = address_of(host.rstrip("."))
    if address is not None and matches_network(address, pattern):
        return True
    return fnmatchcase(host.rstrip(".").lower(), pattern.lower())
