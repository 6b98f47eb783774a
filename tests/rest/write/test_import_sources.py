"""Which servers an import reads from: the URL as it is submitted, and each address that its host resolves to."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.rest.write.import_sources import ImportSources
from ipf.subscriptions.policy import PERMISSIVE, RELAXED, STRICT

STRICTLY = ImportSources()
HOOK, NAMES = "files.example.org", ("*.example.org",)


class SourceTests(TestCase):
    def test_urls(self) -> None:
        refused = (
            "localhost LOCALHOST localhost. a.localhost 127.0.0.1 127.1 2130706433 0x7f.1 0 10.1.2.3 172.16.0.1 "
            "192.168.1.1 169.254.169.254 100.64.0.1 [::1] [::ffff:10.0.0.1] [fe80::1] [fd00::1] printer.local "
            "db.internal 224.0.0.1"
        )
        for host in refused.split():
            self.assertEqual(len(list(STRICTLY.refusals(f"https://{host}/x"))), 1, host)
        for host in ("example.org", "8.8.8.8", "[2001:4860:4860::8888]", "3com.example", "example.org:8443"):
            self.assertEqual(list(STRICTLY.refusals(f"https://{host}/x")), [], host)
        for mode, url, count in (
            (STRICT, "http://example.org/", 1),
            (PERMISSIVE, "http://10.0.0.1/", 0),
            (RELAXED, "https://169.254.169.254/", 1),
            (PERMISSIVE, "https://a:b@example.org/", 1),
            (PERMISSIVE, "file:///etc/passwd", 1),
        ):
            self.assertEqual(len(list(ImportSources(mode).refusals(url))), count, url)

    def test_the_list_is_all_there_is(self) -> None:
        sources = ImportSources(STRICT, ("*.example.org", "10.1.0.0/16", "sink"))
        for host, is_good in (
            ("hook.example.org", True), ("example.org", False), ("evil-example.org", False), ("10.1.2.3", True),
            ("10.2.2.3", False), ("sink", True), ("8.8.8.8", False),
        ):  # fmt: skip
            self.assertEqual(list(sources.refusals(f"https://{host}/")) == [], is_good, host)

    def test_resolved_addresses(self) -> None:
        for sources, host, address, is_good in (
            (STRICTLY, HOOK, "10.0.0.1", False),
            (STRICTLY, HOOK, "8.8.8.8", True),
            (STRICTLY, HOOK, "::ffff:127.0.0.1", False),
            (STRICTLY, HOOK, "64:ff9b::a9fe:a9fe", False),
            (STRICTLY, HOOK, "2002:7f00:1::", False),
            (STRICTLY, HOOK, "nonsense", False),
            (ImportSources(STRICT, NAMES), HOOK, "10.0.0.1", True),
            (ImportSources(STRICT, NAMES), HOOK, "127.0.0.1", False),
            (ImportSources(STRICT, NAMES), HOOK, "169.254.169.254", False),
            (ImportSources(STRICT, NAMES), "other.example.net", "8.8.8.8", False),
            (ImportSources(STRICT, ("localhost",)), "localhost", "127.0.0.1", True),
            (ImportSources(STRICT, ("169.254.0.0/16",)), HOOK, "169.254.169.254", True),
            (ImportSources(RELAXED), HOOK, "10.0.0.1", True),
            (ImportSources(RELAXED), HOOK, "169.254.169.254", False),
            (ImportSources(PERMISSIVE), HOOK, "127.0.0.1", True),
        ):
            found = sources.forbids(host, address, 443)
            self.assertEqual(found is None, is_good, (sources, host, address))
            self.assertIn("IPF_IMPORT_ALLOW", found or "IPF_IMPORT_ALLOW")
