"""Which neighbourhood an IP address, or a host that is written in a URL, belongs to.

Source: https://www.iana.org/assignments/iana-ipv4-special-registry and its counterpart for IPv6; the addresses at which
clouds serve the credentials of a machine (AWS, Azure, Google, Alibaba, Oracle, Tencent, Scaleway, OpenStack).
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_NUMERIC_HOST = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?")
_METADATA = frozenset(
    ip_address(one)
    for one in (
        "169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200", "192.0.0.192",
        "169.254.0.23", "169.254.42.42", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42",
        "fe80::a9fe:a9fe",
    )
)  # fmt: skip
_CARRIERS = tuple(ip_network(one) for one in ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96", "::/96"))
"""IPv6 networks whose last 32 bits are an address of IPv4 (RFC 6052, RFC 8215, RFC 2765, RFC 4291 2.5.5.1)."""
_GLOBAL = ip_network("2000::/3")
_SPECIAL = tuple(ip_network(one) for one in ("3fff::/20", "192.0.0.0/24", "192.88.99.0/24"))
"""Special purposes that the library of some Python calls public."""

Address = IPv4Address | IPv6Address


def address_of(text: str) -> Address | None:
    """The address that is meant, out of the IPv6 forms that carry one of IPv4; None when it is none."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and int(address) > 1 and any(address in network for network in _CARRIERS):
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        return inner or address
    return address


def is_metadata(address: Address) -> bool:
    """Whether a cloud gives away the credentials of its machines there."""
    return address in _METADATA


def is_inside(address: Address) -> bool:
    """Whether it is private, loopback, link-local, multicast, or otherwise not of the public internet."""
    if isinstance(address, IPv6Address) and address not in _GLOBAL:
        return True
    is_special = any(address in network for network in _SPECIAL)
    return is_special or not address.is_global or address.is_multicast or is_metadata(address)


def is_own_machine(address: Address) -> bool:
    """Whether it is this machine or its link."""
    return address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast


def is_inside_name(host: str) -> bool:
    """Whether a host is one of the machine's own neighbourhood, or an address in disguise (`127.1`, `0x7f000001`)."""
    host = host.rstrip(".")
    address = address_of(host)
    if address is not None:
        return is_inside(address)
    return (
        host == "localhost"
        or host.endswith((".localhost", ".local", ".internal", ".home.arpa"))
        or _NUMERIC_HOST.fullmatch(host) is not None
    )


def fits_network(address: Address, pattern: str) -> bool:
    """Whether a pattern is a network (or address) that holds this one."""
    try:
        return address in ip_network(pattern, strict=False)
    except ValueError:
        return False


def fits(host: str, pattern: str) -> bool:
    """Whether a host of a URL is within a host pattern (`*.example.org`) or a network (`10.1.0.0/16`)."""
    address = address_of(host.rstrip("."))
    if address is not None and fits_network(address, pattern):
        return True
    return fnmatchcase(host.rstrip(".").lower(), pattern.lower())
