"""From where listeners are reached, what the line `event=started` says about it, and the ports of the service."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.trial.unittest import TestCase

from ipf.app.listeners.check import endpoints_of
from ipf.app.listeners.endpoint_rules import own_ports, port_of
from ipf.app.listeners.endpoints import HTTP, MLLP, Listeners, OpenListener, names_interface, opened_as
from ipf.app.listeners.reach import reach
from ipf.config.environment import read
from ipf.config.settings import Settings

NOTHING: Any = None
ISSUER = {"SUBSCRIPTION_SERVICE_AUTH_ISSUER": "https://idp.example.org"}
TOKEN = {"IPF_ADMIN_AUTH_TOKEN": "admin"}
MLLP_TEXT = "IPF_MLLP_LISTEN listens on all interfaces, unless it names one (tcp:2575:interface=127.0.0.1)"
ON_LOOPBACK = "IPF_HTTP_LISTEN is on loopback until {0}, or it names an interface (tcp:8090:interface=0.0.0.0)"


def settings(*given: dict[str, str]) -> Settings:
    """The settings of these variables."""
    environ: dict[str, str] = {}
    for one in given:
        environ |= one
    return read(environ)[0]


class ReachTests(TestCase):
    def test_mllp_is_on_all_interfaces_and_http_on_loopback(self) -> None:
        for found in (settings(), settings(ISSUER), settings(TOKEN)):
            self.assertEqual(opened_as(found, MLLP, "tcp:2575"), "tcp:2575")
            self.assertEqual(opened_as(found, HTTP, "tcp:8090"), "tcp:8090:interface=127.0.0.1")
        self.assertEqual(opened_as(settings(ISSUER, TOKEN), HTTP, "tcp:8090"), "tcp:8090")

    def test_the_line_says_what_to_set(self) -> None:
        admin, issuer = "IPF_ADMIN_AUTH_TOKEN is set", "SUBSCRIPTION_SERVICE_AUTH_ISSUER is set"
        removed = "SUBSCRIPTION_SERVICE_AUTH_ENABLED=false is removed"
        sandbox = ISSUER | {"SUBSCRIPTION_SERVICE_AUTH_ENABLED": "false"}
        for given, missing in (
            ({}, f"{admin} and {issuer}"), (TOKEN, issuer), (ISSUER, admin), (TOKEN | sandbox, removed),
            (sandbox, f"{admin} and {removed}"),
        ):  # fmt: skip
            self.assertEqual(reach(settings(given)), f"{ON_LOOPBACK.format(missing)}; {MLLP_TEXT}", given)
        self.assertEqual(reach(settings(TOKEN, ISSUER)), MLLP_TEXT)

    def test_what_names_an_interface_is_where_it_says(self) -> None:
        named = {"IPF_MLLP_LISTEN": "tcp:2575:interface=10.1.2.3", "IPF_HTTP_LISTEN": "unix:/run/ipf.sock"}
        self.assertEqual(reach(settings(named)), "")

    def test_each_listener_has_its_token(self) -> None:
        others = {
            "IPF_FHIR_LISTEN": "tcp6:8091", "IPF_HL7_HTTP_LISTEN": "lab=tcp:8092", "IPF_METRICS_LISTEN": "tcp:9464",
            "IPF_MLLP_LISTEN": "tcp:2575:interface=127.0.0.1",
        }  # fmt: skip
        found = reach(settings(others)).split("; ")
        self.assertEqual([one.partition(",")[0] for one in found], [
            "IPF_HTTP_LISTEN is on loopback until IPF_ADMIN_AUTH_TOKEN is set",
            "IPF_FHIR_LISTEN is on loopback until SUBSCRIPTION_SERVICE_AUTH_ISSUER is set",
            "IPF_HL7_HTTP_LISTEN is on loopback until IPF_HL7_HTTP_TOKEN is set",
            "IPF_METRICS_LISTEN is on loopback until IPF_METRICS_TOKEN is set",
        ])  # fmt: skip
        self.assertIn(r"(tcp6:8091:interface=\:\:)", found[1])

    def test_the_line_is_about_every_listener_that_is_bound(self) -> None:
        """Whatever `opened_as` changes is named."""
        found = settings({"IPF_FHIR_LISTEN": "tcp:8091", "IPF_METRICS_LISTEN": "tcp:9464"})
        for variable, _, endpoint in endpoints_of(found):
            is_named = variable in reach(found)
            self.assertEqual(is_named, opened_as(found, variable, endpoint) != endpoint or variable == MLLP)
            self.assertFalse(names_interface(endpoint))


class OwnPortTests(TestCase):
    def test_ports_of_endpoints(self) -> None:
        for endpoint, port in (
            ("tcp:8090", 8090), ("tcp:port=8090:interface=10.0.0.1", 8090), (r"tcp6:2575:interface=\:\:1", 2575),
            ("ssl:8443:privateKey=k.pem", 8443), ("mtls:6661:privateKey=k:certKey=c", 6661), ("unix:/run/x.sock", 0),
            ("systemd:domain=INET:index=0", 0), ("tcp:0", 0), ("ssl:privateKey=k:port=8443", 8443),
        ):  # fmt: skip
            self.assertEqual(port_of(endpoint), port, endpoint)

    def test_the_ports_of_this_service(self) -> None:
        """Those of the settings, whichever process opens them, and those that a vendor profile opened."""
        listeners = Listeners(NOTHING)
        named = {"IPF_FHIR_LISTEN": "tcp:8091", "IPF_METRICS_LISTEN": "tcp:9464", "IPF_HL7_HTTP_LISTEN": "tcp:8092"}
        ports = own_ports(settings(named), listeners, {})
        expected = {
            8090: "IPF_HTTP_LISTEN", 8091: "IPF_FHIR_LISTEN", 9464: "IPF_METRICS_LISTEN", 2575: "IPF_MLLP_LISTEN",
            8092: "IPF_HL7_HTTP_LISTEN",
        }  # fmt: skip
        self.assertEqual(ports(), expected)
        opened = IPv4Address("TCP", "0.0.0.0", 6662)
        listeners.open_now.append(OpenListener("MLLP profile", "tcp:0", NOTHING, opened))
        self.assertEqual(ports(), expected | {6662: "MLLP profile"})

    def test_the_console_is_part_of_the_service(self) -> None:
        for roles, environ, port in (
            ("all", {}, None), ("all console", {}, 3000), ("all", {"IPF_UI_LISTEN": "tcp:3001"}, 3001),
        ):  # fmt: skip
            found = own_ports(settings({"IPF_ROLES": roles}), Listeners(NOTHING), environ)()
            self.assertEqual({one for one, name in found.items() if name == "IPF_UI_LISTEN"}, {port} - {None})
