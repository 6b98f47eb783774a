"""The rules on Host and Origin, as tables."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.wire.http.origin import OwnNames, Sent, host_name, is_loopback, names_in, refusal_of

OWN = OwnNames(names_in(("ehr.example.org", "https://fhir.example.org/r4", "EHR-1")))
ANY = OwnNames()
LOCAL = "127.0.0.1"


def status(sent: Sent, names: OwnNames) -> int:
    """The status of the refusal, or 200."""
    problem = refusal_of(sent, names)
    return 200 if problem is None else problem.rendering.http_status


class HostTests(TestCase):
    def test_own_names(self) -> None:
        for host, expected in [
            ("localhost:8090", 200), ("LOCALHOST", 200), ("127.0.0.1:8090", 200), ("127.1.2.3", 200),
            ("[::1]:8090", 200),
            ("ehr.example.org", 200), ("EHR.example.org.:443", 200), ("fhir.example.org", 200), ("ehr-1:8090", 200),
            ("evil.example", 421), ("evil.example:8090", 421), ("localhost.evil.example", 421),
            ("127.0.0.1.evil.example", 421),
            ("10.0.0.5", 421), ("example.org", 421), ("", 421), ("a b", 421), ("ehr.example.org@evil.example", 421),
            ("[::1", 421), ("localhost:x", 421), ("0x7f000001", 421), ("2130706433", 421),
        ]:  # fmt: skip
            self.assertEqual(status(Sent("GET", "HTTP/1.1", [host], local=LOCAL), OWN), expected, host)

    def test_the_address_of_the_connection_is_a_name(self) -> None:
        for host, local, expected in [
            ("10.0.0.5:8090", "10.0.0.5", 200), ("10.0.0.6", "10.0.0.5", 421), ("10.0.0.5", "::ffff:10.0.0.5", 200),
            ("[fe80::1]", "fe80::1", 200), ("127.0.0.1", "10.0.0.5", 421), ("x", "", 421),
        ]:  # fmt: skip
            self.assertEqual(status(Sent("GET", "HTTP/1.1", [host], local=local), OWN), expected, (host, local))

    def test_a_listener_without_names_of_its_own_answers_for_any(self) -> None:
        for host in ("evil.example", "10.9.8.7:1", "proxy"):
            self.assertEqual(status(Sent("POST", "HTTP/1.1", [host], local=LOCAL), ANY), 200)

    def test_a_missing_host(self) -> None:
        for version, names, expected in [
            ("HTTP/1.1", ANY, 400), ("HTTP/1.1", OWN, 400), ("HTTP/1.0", ANY, 200), ("HTTP/1.0", OWN, 421),
        ]:  # fmt: skip
            self.assertEqual(status(Sent("GET", version, [], local=LOCAL), names), expected)

    def test_names(self) -> None:
        for host, name in [
            ("A.b:1", "a.b"), ("[::1]:80", "::1"), ("a.", "a"), (" a ", "a"), ("a:b", None), (".", None), ("", None),
        ]:  # fmt: skip
            self.assertEqual(host_name(host), name, host)

    def test_loopback(self) -> None:
        for host, expected in [
            ("127.0.0.1", True),
            ("::1", True),
            ("localhost", True),
            ("0.0.0.0", False),
            ("", False),
        ]:
            self.assertEqual(is_loopback(host), expected, host)


class OriginTests(TestCase):
    def sent(self, method: str, origin: str | None, host: str = "ehr.example.org", **more: bool) -> Sent:
        return Sent(method, "HTTP/1.1", [host], [] if origin is None else [origin], local=LOCAL, **more)

    def test_pages_of_other_sites_only_read(self) -> None:
        for method, origin, expected in [
            ("GET", "http://evil.example", 200), ("HEAD", "null", 200), ("OPTIONS", "null", 200),
            ("POST", None, 200), ("DELETE", None, 200),
            ("POST", "http://evil.example", 403), ("PATCH", "null", 403), ("PUT", "", 403), ("PURGE", "x", 403),
            ("POST", "http://ehr.example.org", 200), ("POST", "https://ehr.example.org", 200),
            ("POST", "http://EHR.example.org:80", 200), ("POST", "http://ehr.example.org:8091", 403),
            ("POST", "http://ehr.example.org.evil.example", 403), ("POST", "ftp://ehr.example.org", 403),
            ("POST", "http://ehr.example.org@evil.example", 403), ("POST", "http://[", 403),
        ]:  # fmt: skip
            self.assertEqual(status(self.sent(method, origin), OWN), expected, (method, origin))

    def test_the_page_of_plain_http_is_another_than_that_of_tls(self) -> None:
        for is_secure, origin, expected in [
            (True, "https://ehr.example.org", 200), (True, "http://ehr.example.org", 403),
            (False, "https://ehr.example.org", 200), (False, "http://ehr.example.org", 200),
        ]:  # fmt: skip
            self.assertEqual(status(self.sent("POST", origin, is_secure=is_secure), OWN), expected, (is_secure, origin))

    def test_a_websocket_is_no_plain_read(self) -> None:
        self.assertEqual(status(self.sent("GET", "http://evil.example", is_upgrade=True), OWN), 403)
        self.assertEqual(status(self.sent("GET", "http://ehr.example.org", is_upgrade=True), OWN), 200)
        self.assertEqual(status(self.sent("GET", None, is_upgrade=True), OWN), 200)

    def test_named_origins_and_the_base_url(self) -> None:
        for origins, base_urls, origin, expected in [
            (("https://app.example",), (), "https://app.example", 200),
            (("https://app.example",), (), "http://app.example", 403),
            (("*",), (), "http://evil.example", 200),
            ((), ("https://proxy.example/fhir",), "https://proxy.example", 200),
            ((), ("https://proxy.example/fhir",), "http://proxy.example", 403),
        ]:
            names = OwnNames(None, origins, base_urls)
            self.assertEqual(status(self.sent("POST", origin, "inner:8090"), names), expected, (origins, origin))

    def test_a_browser_says_that_the_page_is_of_another_site(self) -> None:
        for names, expected in ((ANY, 403), (OwnNames(origins=("*",)), 200)):
            self.assertEqual(status(Sent("POST", "HTTP/1.1", ["a"], [], ["cross-site"]), names), expected)
        self.assertEqual(status(Sent("GET", "HTTP/1.1", ["a"], [], ["cross-site"]), ANY), 200)
