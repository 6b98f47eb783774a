"""Connection strings and the servers that they name."""

from __future__ import annotations

import psycopg2
from psycopg2.extensions import parse_dsn
from twisted.trial.unittest import SynchronousTestCase

from ipf.store.postgres.hosts import CONNECT_SECONDS, hosts_of

URLS = {
    "postgresql://h/ipf": ["h::"],
    "postgresql://h:77/ipf?target_session_attrs=standby": ["h:77:standby"],
    "postgresql:///ipf": ["::"],
    "postgresql://h1,h2/ipf": ["h1::read-write", "h2::read-write"],
    "postgresql://h1:1,h2,h3:3/ipf?target_session_attrs=any": ["h1:1:any", "h2::any", "h3:3:any"],
    "postgresql://h1,h2/ipf?port=77&target_session_attrs=primary": ["h1:77:primary", "h2:77:primary"],
    "postgresql://h1,h2/ipf?target_session_attrs=prefer-standby": [
        "h1::standby", "h2::standby", "h1::any", "h2::any",
    ],
    "postgresql://%2Frun%2Fpg,[::1]:77/ipf": ["/run/pg::read-write", "::1:77:read-write"],
    "host=a,,b port=1,2,3": ["a:1:read-write", ":2:read-write", "b:3:read-write"],
    "host=a,b hostaddr=10.0.0.1,10.0.0.2": ["a/10.0.0.1::read-write", "b/10.0.0.2::read-write"],
    "hostaddr=10.0.0.1,10.0.0.2": ["/10.0.0.1::read-write", "/10.0.0.2::read-write"],
}  # fmt: skip
WRONG = {
    "postgresql://ipf:s3cret@h1:1,h2:2,h3:3/ipf?port=1,2": "2 port numbers for 3 hosts",
    "host=a,b hostaddr=10.0.0.1 password=s3cret": "2 host names for 1 addresses",
    "postgresql://ipf:p@s3cret@h/ipf": "%40",
    "postgresql://ipf:s3cret@h/ipf?connect_timeout=soon": "connect_timeout",
}
TIMEOUTS = {"": CONNECT_SECONDS, "0": CONNECT_SECONDS, "-1": CONNECT_SECONDS, "1": 2.0, "9": 9.0}


class HostsTests(SynchronousTestCase):
    """Order, ports, addresses, sockets, `target_session_attrs`."""

    def test_hosts(self) -> None:
        for url, wanted in URLS.items():
            found = [
                f"{host.name}{'/' + host.address if host.address else ''}:{host.port}:{host.attributes}"
                for host in hosts_of(url)
            ]
            self.assertEqual(found, wanted, url)

    def test_each_has_a_connection_string_of_its_own(self) -> None:
        """With one host, its port and all other parameters."""
        url = "postgresql://ipf:s3cret@h1:1,h2:2/ipf?sslmode=require&connect_timeout=4&application_name=x"
        for host, port in zip(hosts_of(url), "12", strict=True):
            parts = parse_dsn(host.at("10.0.0.9").dsn)
            wanted = {
                "host": f"h{port}", "port": port, "hostaddr": "10.0.0.9", "user": "ipf", "password": "s3cret",
                "dbname": "ipf", "sslmode": "require", "application_name": "x", "target_session_attrs": "read-write",
                "client_encoding": "UTF8",
            }  # fmt: skip
            self.assertEqual({name: parts.get(name) for name in wanted}, wanted)
            self.assertNotIn("connect_timeout", parts)

    def test_a_password_is_in_no_representation(self) -> None:
        """Hosts may be printed."""
        self.assertNotIn("s3cret", repr(hosts_of("postgresql://ipf:s3cret@h1,h2/ipf")))

    def test_wrong_strings(self) -> None:
        """Each names its rule and quotes no password."""
        for url, rule in WRONG.items():
            text = str(self.assertRaises(ValueError, hosts_of, url))
            self.assertIn(rule, text)
            self.assertNotIn("s3cret", text)
        self.assertRaises(psycopg2.ProgrammingError, hosts_of, "postgresql://[::1/ipf")

    def test_connect_timeout(self) -> None:
        """As in libpq, but that none means ours."""
        for given, wanted in TIMEOUTS.items():
            self.assertEqual(hosts_of(f"postgresql://h/ipf?connect_timeout={given}")[0].seconds, wanted)

    def test_names_that_need_an_address(self) -> None:
        """Addresses and socket folders do not."""
        for name, wanted in {"h": True, "localhost": True, "10.0.0.1": False, "::1": False, "/run": False}.items():
            self.assertEqual(hosts_of(f"host={name}")[0].needs_address, wanted, name)
        self.assertFalse(hosts_of("host=h hostaddr=10.0.0.1")[0].needs_address)
