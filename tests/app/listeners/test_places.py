"""The places that the line `event=started` names."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress
from twisted.trial.unittest import TestCase

from ipf.app.listeners.endpoints import OpenListener
from ipf.app.listeners.places import places

NO_PORT: Any = None
WEB = (("FHIR", "/fhir"), ("admin", "/admin"))


def opened(endpoint: str, address: IAddress, *offers: tuple[str, str]) -> OpenListener:
    return OpenListener("", endpoint, NO_PORT, address, offers)


class PlaceTests(TestCase):
    def test_each_kind_of_client(self) -> None:
        listeners = [
            opened("tcp:8090", IPv4Address("TCP", "127.0.0.1", 8090), *WEB),
            opened("tcp:2575", IPv4Address("TCP", "0.0.0.0", 2575), ("MLLP", "")),
            opened("mtls:2576:x", IPv4Address("TCP", "10.0.0.1", 2576), ("MLLP lab of tenant a", "")),
            opened("tcp6:6661", IPv6Address("TCP", "::", 6661), ("MLLP", "")),
            opened("unix:/run/ipf.sock", UNIXAddress(b"/run/ipf.sock"), ("MLLP pacs", "")),
        ]
        mllp = [
            "MLLP 127.0.0.1:2575 (all interfaces)",
            "MLLP lab of tenant a over TLS 10.0.0.1:2576",
            "MLLP [::1]:6661 (profile acme of tenant b, all interfaces)",
            "MLLP pacs unix:/run/ipf.sock",
        ]
        expected = {
            "fhir": "FHIR http://127.0.0.1:8090/fhir",
            "admin": "admin http://127.0.0.1:8090/admin",
            "mllp": ", ".join(mllp),
        }
        self.assertEqual(places(listeners, {6661: "profile acme of tenant b"}), expected)

    def test_tls(self) -> None:
        found = places([opened("ssl:8443:x", IPv6Address("TCP", "fd00::1", 8443), *WEB)], {})
        expected = {"fhir": "FHIR https://[fd00::1]:8443/fhir", "admin": "admin https://[fd00::1]:8443/admin"}
        self.assertEqual(found, expected)
