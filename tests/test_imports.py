"""What a converter process must not import: each of these weighs megabytes of its memory, for nothing.

An import creeps in with one line; the resident memory of the service is a promise (docs/benchmarks.md).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import TestCase

ROOT = Path(__file__).resolve().parent.parent
FORBIDDEN = (
    "OpenSSL", "cryptography", "treq", "twisted.web", "twisted.protocols.tls", "twisted.internet.endpoints",
    "klein", "werkzeug", "autobahn", "psutil", "opentelemetry", "yaml",
    "ipf.fhir.validation.validator", "ipf.fhir.xml", "ipf.rest.router", "ipf.rest.repository", "ipf.wire",
)  # fmt: skip
PROGRAM = """
import sys
from ipf import converter
from ipf.settings import read
converter._reactor(read({settings})[0])
print(*sorted(sys.modules))
"""


def imported(settings: dict[str, str]) -> set[str]:
    """The modules of a converter process with these settings, when it has its reactor."""
    program = PROGRAM.replace("{settings}", repr(settings))
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


class ConverterImportTests(TestCase):
    def test_a_converter_imports_what_it_needs(self) -> None:
        """The reactor as well: it has no TLS, and whoever needs OpenSSL later can still have it."""
        found = imported({})
        self.assertIn("twisted.internet.epollreactor", found)
        wrong = [name for name in sorted(found) if name.startswith(FORBIDDEN) and not is_package_only(name, found)]
        self.assertEqual(wrong, [])

    def test_a_converter_that_asks_elsewhere_has_tls(self) -> None:
        """The mapping service or the FHIR server elsewhere may be at an https address."""
        self.assertIn("twisted.protocols.tls", imported({"IPF_FHIR_URL": "https://fhir.example.org/fhir"}))


def is_package_only(name: str, found: set[str]) -> bool:
    """A package without any of its modules is nothing."""
    return not any(one.startswith(f"{name}.") for one in found) and "." not in name
