"""etc/keepalived and etc/haproxy fit the settings of ipf and each other; `bin/test-vip` runs them."""

from __future__ import annotations

import inspect
import re

from twisted.trial.unittest import TestCase

from ipf.config.settings import Settings
from ipf.wire.admin.actuator import Health
from tests.deployment.helm_values import ROOT

KEEPALIVED, HAPROXY = ROOT / "etc/keepalived/keepalived.conf", ROOT / "etc/haproxy/haproxy.cfg"
READINESS = "/actuator/health/readiness"
ANSWER_SECONDS = inspect.signature(Health).parameters["limit_seconds"].default


def statements(text: str) -> list[str]:
    """Its lines without comments."""
    return [line for one in text.splitlines() if (line := one.partition("#")[0].strip())]


class TwoHostsTests(TestCase):
    def setUp(self) -> None:
        self.keepalived, self.haproxy = statements(KEEPALIVED.read_text()), statements(HAPROXY.read_text())
        listen = Settings().http_listen, *(one.endpoint for one in Settings().mllp_listen)
        self.http, self.mllp = (endpoint.removeprefix("tcp:") for endpoint in listen)

    def test_the_check_of_keepalived_is_readiness_and_may_take_as_long_as_its_answer(self) -> None:
        (script,) = [line for line in self.keepalived if line.startswith("script ")]
        self.assertIn(f' http://127.0.0.1:{self.http}{READINESS}"', script)
        seconds = re.search(r" -m (\d+) ", script)
        (timeout,) = [int(line.split()[1]) for line in self.keepalived if line.startswith("timeout ")]
        assert seconds is not None
        self.assertGreater(int(seconds[1]), ANSWER_SECONDS)
        self.assertGreater(timeout, int(seconds[1]))

    def test_an_unready_host_counts_less_than_a_ready_one_but_keeps_the_address_when_both_are(self) -> None:
        values = dict(line.split(maxsplit=1) for line in self.keepalived if " " in line and not line.startswith("@"))
        self.assertLess(int(values["weight"]), 0)
        self.assertGreater(int(values["priority"]) + int(values["weight"]), 0)
        self.assertEqual(values["state"], "BACKUP")
        self.assertNotIn("nopreempt", self.keepalived)  # the address would stay with a host that is not ready

    def test_the_check_of_haproxy_is_readiness_and_may_take_as_long_as_its_answer(self) -> None:
        self.assertIn(f"option httpchk GET {READINESS}", self.haproxy)
        (server,) = [line for line in self.haproxy if line.startswith("default-server ")]
        self.assertIn(f" check port {self.http} ", server)
        self.assertIn(" on-marked-down shutdown-sessions", server)
        (timeout,) = [line.split()[2] for line in self.haproxy if line.startswith("timeout check ")]
        self.assertGreater(int(timeout.removesuffix("s")), ANSWER_SECONDS)

    def test_ports_and_addresses_are_the_same_everywhere(self) -> None:
        binds = [line.split()[1] for line in self.haproxy if line.startswith("bind ")]
        self.assertEqual(sorted(binds), sorted([f":{self.mllp}", f":{self.http}"]))
        servers = {line.split()[2] for line in self.haproxy if line.startswith("server ")}
        sources = {line.split()[0]: line.split()[2] for line in self.keepalived if " unicast_src_ip " in line}
        self.assertEqual(set(sources), {"@ipf1", "@ipf2"})
        hosts = set(sources.values())
        self.assertEqual(servers, {f"{host}:{port}" for host in hosts for port in (self.mllp, self.http)})
        peers = {line.split()[0]: line.split()[1] for line in self.keepalived if re.match(r"@\w+ [0-9.]+$", line)}
        self.assertEqual(peers, {"@ipf1": sources["@ipf2"], "@ipf2": sources["@ipf1"]})
        self.assertIn("10.0.0.10/24 dev eth0", self.keepalived)
        text = (ROOT / "docs/how-to/high-availability.md").read_text()
        for address in ("10.0.0.10", *hosts):
            self.assertIn(address, text)
